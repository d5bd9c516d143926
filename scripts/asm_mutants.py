# SPDX-License-Identifier: GPL-2.0
"""Take the order from each instruction that check-asm relies on, one at a time.

Each of these mutants has to be a fault for asm_sites.py: else the check would let
through what it is there for.  An instruction that may go because another still
gives the access its order is none.
"""

import os
import sys

import asm_sites


def carriers(arch, access):
    """The instructions that give an access its order, as far as one alone can."""
    return [i for i in access.carriers if arch.fence(i) or arch.plain(i) != i.name]


def still(obj, function, access, order):
    """Whether an access has its order without an instruction."""
    return any(a.at == access.at and a.itself is access.itself and a.has(order)
               for a in obj.accesses(function))


def tries(obj, instances, ops, judge):
    """(number of mutants, [text] of those that judge() has nothing to say about).

    judge: of a function of the object, its faults.
    """
    seen, missed = set(), []
    for instance in instances:
        function = instance.function
        for op in ops:
            for access in [a for place in instance.places(op)[0] for a in place if op.order]:
                for insn in carriers(obj.arch, access):
                    if (id(insn), op) in seen:
                        continue
                    text = access.text
                    with obj.weakened(insn, function):
                        if still(obj, function, access, op.order):
                            continue
                        faults = judge(function)
                    seen.add((id(insn), op))
                    if not faults:
                        missed.append(f"in {instance.name}: {text}: without the order of "
                                      f"{insn.name} nothing is found")
    return len(seen), missed


def point(name, count, missed):
    said = f"{name}: {count} weakened, {count - len(missed)} noticed"
    return said, missed if count else ["there is nothing to weaken"], []


def of_sites(obj):
    """[(name, faults, notes)] of the sites in an object of Rust code."""
    points, found = [], obj.instances(asm_sites.sites_of)
    for site in asm_sites.SITES:
        if site.obj != obj.name or not any(op.order for op in site.ops):
            continue

        def judge(function, site=site):
            instances = obj.instances(asm_sites.sites_of, {function}).get(site, [])
            return asm_sites.judge_site(site, obj, instances)[1]

        result = tries(obj, found.get(site, []), site.ops, judge)
        points.append(point(f"{site.key}: {site.function}()", *result))
    return points


def of_completion(obj, source, name):
    """The same of the calls of ib_cq_completion() in an object of C code."""
    which = asm_sites.completion_of
    found = obj.instances(which).get(asm_sites.COMPLETION, [])
    return tries(obj, found, asm_sites.DISPATCH.ops,
                 lambda _: asm_sites.judge_converted(obj, source, name)[2])


def of_drivers(arch, directory, trees):
    """[(name, faults, notes)] of the converted drivers, a point for each."""
    with open(os.path.join(directory, "drivers"), encoding="utf-8") as f:
        files = f.read().split()
    drivers = {}
    for path in files:
        name = "after," + path[:-2].replace("/", ",")
        if asm_sites.there(directory, name):
            with open(os.path.join(trees, "after", path), encoding="utf-8") as f:
                source = f.read()
            obj = asm_sites.Object.read(arch, directory, name)
            count, missed = of_completion(obj, source, os.path.basename(path))
            driver = drivers.setdefault(path.split("/")[3], [0, []])
            driver[0] += count
            driver[1] += missed
    return [point(f"H: {driver}", *result) for driver, result in sorted(drivers.items())]


def judge(arch, directory, trees):
    """[(name, faults, notes)] for one architecture."""
    points = []
    for obj in asm_sites.rust_objects(arch, directory):
        if obj.name == "helpers":
            points.append(point("H: the helper of raise_event()", *of_completion(obj, "", "")))
        else:
            points += of_sites(obj)
    if os.path.exists(os.path.join(directory, "drivers")):
        points += of_drivers(arch, directory, trees)
    return points + list(asm_sites.without_rust(arch, directory))


if __name__ == "__main__":
    sys.exit(asm_sites.main(sys.argv[1], sys.argv[2:], judge))
