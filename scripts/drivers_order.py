# SPDX-License-Identifier: GPL-2.0
"""Judge what the conversion to ib_cq_completion() has made of the drivers.

For scripts/check-drivers.  The same questions are asked of the drivers as they
are in the kernel, where the answers are known: this shows that the questions
can be answered with no.
"""

import os
import re
import sys

import asm_order
import convert

PROJECT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Direct calls through comp_handler in Linux 7.3.4.
CALLS = {
    "bnxt_re": 1,
    "cxgb4": 9,
    "efa": 1,
    "erdma": 1,
    "hns": 2,
    "ionic": 4,
    "irdma": 2,
    "mana": 2,
    "mlx4": 1,
    "mlx5": 2,
    "mthca": 1,
    "ocrdma": 2,
    "qedr": 3,
    "rdmavt": 1,
    "rxe": 1,
    "siw": 2,
    "vmw_pvrdma": 1,
}
# Stores without order.  Those of cq.c stay: cq_rust is what replaces it.
STORES = {
    "core/cq.c": 3,
    "core/uverbs_cmd.c": 1,
    "core/uverbs_std_types_cq.c": 1,
    "core/verbs.c": 1,
    "hw/ionic/ionic_admin.c": 1,
}
STORES_LEFT = {"core/cq.c": 3}
CORE = [
    "drivers/infiniband/core/" + n
    for n in ("cq.c", "uverbs_cmd.c", "uverbs_std_types_cq.c", "verbs.c")
]
FINDING = re.compile(r"(?m)^(?:\./)?(drivers/infiniband/(\S+?)):\d+:\d+-\d+: WARNING: (.*)$")


class Publication:
    """How a driver makes a CQ known, and what has to be done before that.

    where: (file below drivers, function); how: what makes it known, with
    order; first: what has to come before it in the function.
    """

    def __init__(self, where, how, *first, text=None):
        self.file, self.function = where
        self.how, self.first = how, first
        self.text = text

    def fault(self, tree):
        with open(
            os.path.join(tree, "drivers", self.file), encoding="utf-8", errors="replace"
        ) as f:
            body = function(f.read(), self.function)
        if body is None:
            return f"{self.function}() is not there"
        known = re.search(self.how, body)
        if not known:
            return f"{self.function}(): not published with order"
        late = [
            what
            for what in self.first
            if not re.search(what, body) or re.search(what, body).start() > known.start()
        ]
        return f"{self.function}(): {plain(late[0])} comes later" if late else ""


def plain(regex):
    return re.sub(r"\\(.)", r"\1", regex)


def function(text, name):
    """The body of a C function, without comments."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    found = re.search(
        r"(?m)^[a-z][^\n;]*\b%s\((?:[^;{]*)\n\{\n(.*?)\n\}" % re.escape(name), text, re.S
    )
    return found.group(1) if found else None


MLX4 = "net/ethernet/mellanox/mlx4/cq.c"
PUBLISHED = {
    "bnxt_re": (
        "address in the event",
        [
            Publication(
                ("infiniband/hw/bnxt_re/qplib_fp.c", "bnxt_qplib_create_cq"),
                r"bnxt_qplib_rcfw_send_message\(",
                r"spin_lock_init\(&cq->compl_lock",
                r"INIT_LIST_HEAD\(&cq->rqf_head",
            )
        ],
    ),
    "cxgb4": (
        "xarray",
        [
            Publication(
                ("infiniband/hw/cxgb4/cq.c", "c4iw_create_cq"),
                r"xa_insert_irq\(",
                r"spin_lock_init\(&chp->comp_handler_lock",
                r"refcount_set\(&chp->refcnt",
            )
        ],
    ),
    "efa": (
        "xarray",
        [
            Publication(
                ("infiniband/hw/efa/efa_verbs.c", "efa_create_user_cq"),
                r"xa_store\(&dev->cqs_xa",
                r"efa_com_create_cq\(|efa_create_cq_cmd\(|cq->cq_idx =",
            )
        ],
    ),
    "erdma": (
        "xarray, when created",
        [
            Publication(
                ("infiniband/hw/erdma/erdma_verbs.c", "erdma_create_cq"),
                r"xa_alloc_cyclic_irq\([^;]*&cq->cqn, cq,|xa_store_irq\(&dev->cq_xa",
                r"erdma_init_kernel_cq\(",
                r"create_cq_cmd\(",
            )
        ],
    ),
    "hns": (
        "xarray",
        [
            Publication(
                ("infiniband/hw/hns/hns_roce_cq.c", "hns_roce_create_cq"),
                r"ret = alloc_cqc\(",
                r"refcount_set\(&hr_cq->refcount",
                r"init_completion\(&hr_cq->free",
            )
        ],
    ),
    "ionic": (
        "xarray, mask by release",
        [
            Publication(
                ("infiniband/hw/ionic/ionic_controlpath.c", "ionic_create_cq_common"),
                r"xa_store_irq\(",
                r"kref_init\(&cq->cq_kref",
                r"spin_lock_init\(&cq->lock",
            ),
            Publication(
                ("infiniband/hw/ionic/ionic_controlpath.c", "ionic_create_cq"),
                r"smp_store_release\(&vcq->udma_mask",
                r"ionic_create_cq_cmd\(",
            ),
        ],
    ),
    "irdma": (
        "smp_store_release()",
        [
            Publication(
                ("infiniband/hw/irdma/verbs.c", "irdma_create_cq"),
                r"smp_store_release\(&rf->cq_table",
                r"spin_lock_init\(&iwcq->lock",
                r"init_completion\(&iwcq->free_cq",
            )
        ],
    ),
    "mana": (
        "smp_store_release()",
        [
            Publication(
                ("infiniband/hw/mana/cq.c", "mana_ib_create_cq"),
                r"mana_ib_install_cq_cb\(",
                r"spin_lock_init\(&cq->cq_lock",
                r"INIT_LIST_HEAD\(&cq->list_recv_qp",
            ),
            Publication(
                ("infiniband/hw/mana/cq.c", "mana_ib_install_cq_cb"),
                r"smp_store_release\(&gc->cq_table",
                r"gdma_cq->cq\.callback =",
            ),
        ],
    ),
    "mlx4": (
        "radix tree",
        [
            Publication(
                (MLX4, "mlx4_cq_alloc"),
                r"radix_tree_insert\(",
                r"refcount_set\(&cq->refcount",
                r"init_completion\(&cq->free",
                r"cq->comp =",
            ),
            Publication(
                ("infiniband/hw/mlx4/cq.c", "mlx4_ib_create_cq"),
                r"mlx4_cq_alloc\(",
                r"cq->mcq\.event =",
                r"cq->mcq\.tasklet_ctx\.comp =",
            ),
            Publication(
                ("infiniband/hw/mlx4/cq.c", "mlx4_ib_create_user_cq"),
                r"mlx4_cq_alloc\(",
                r"cq->mcq\.event =",
                r"cq->mcq\.tasklet_ctx\.comp =",
            ),
        ],
    ),
    "mlx5": (
        "radix tree",
        [
            Publication(
                ("infiniband/hw/mlx5/cq.c", name),
                r"mlx5_core_create_cq\(",
                r"cq->mcq\.event =",
                r"INIT_LIST_HEAD\(&cq->wc_list",
            )
            for name in ("mlx5_ib_create_cq", "mlx5_ib_create_user_cq")
        ],
    ),
    "mthca": (
        "smp_store_release()",
        [
            Publication(
                ("infiniband/hw/mthca/mthca_allocator.c", "mthca_array_set"),
                r"smp_store_release\(&page\[index",
                r"smp_store_release\(&array->page_list",
            ),
            Publication(
                ("infiniband/hw/mthca/mthca_cq.c", "mthca_init_cq"),
                r"mthca_array_set\(",
                r"cq->cons_index = 0",
                r"spin_lock_init\(&cq->lock",
            ),
        ],
    ),
    "ocrdma": (
        "smp_store_release()",
        [
            Publication(
                ("infiniband/hw/ocrdma/ocrdma_verbs.c", "ocrdma_create_cq"),
                r"smp_store_release\(&dev->cq_tbl",
                r"spin_lock_init\(&cq->comp_handler_lock",
                r"cq->phase =",
            )
        ],
    ),
    "qedr": (
        "address in the event",
        [
            Publication(
                ("infiniband/hw/qedr/verbs.c", "qedr_create_cq"),
                r"smp_store_release\(&cq->sig",
                r"spin_lock_init\(&cq->cq_lock",
                r"consume_cqe\(cq",
            )
        ],
    ),
    "rdmavt": (
        "through the QP",
        [
            Publication(
                ("infiniband/sw/rdmavt/cq.c", "rvt_create_cq"),
                r"return err;\s*$|ret = 0;|return 0;",
                r"spin_lock_init\(&cq->lock",
                r"INIT_WORK\(&cq->comptask",
            )
        ],
    ),
    "rxe": (
        "through the QP",
        [
            Publication(
                ("infiniband/sw/rxe/rxe_cq.c", "rxe_cq_from_init"),
                r"return 0;",
                r"spin_lock_init\(&cq->cq_lock",
            )
        ],
    ),
    "siw": (
        "through the QP",
        [
            Publication(
                ("infiniband/sw/siw/siw_verbs.c", "siw_create_cq"),
                r"return 0;",
                r"spin_lock_init\(&cq->lock",
            )
        ],
    ),
    "vmw_pvrdma": (
        "table under a lock",
        [
            Publication(
                ("infiniband/hw/vmw_pvrdma/pvrdma_cq.c", "pvrdma_create_cq"),
                r"spin_lock_irqsave\(&dev->cq_tbl_lock",
                r"refcount_set\(&cq->refcnt",
                r"init_completion\(&cq->free",
            )
        ],
    ),
}
# Those of which Linux 7.3.4 makes CQs known too early, or without order.
TOO_EARLY = {"bnxt_re", "erdma", "hns", "ionic", "mana", "mlx4", "mlx5", "mthca", "ocrdma", "qedr"}

# Where a driver tests the handler, if not in the function that calls it: what was tested
# is loaded again then.
ELSEWHERE = {"siw": ("infiniband/sw/siw/siw_qp.c", "siw_cq_notify_now")}


# A call, also as (*cq->comp_handler)(...).
CALL = r"(?:->|\.)comp_handler\s*\(|\(\*[^();{]*(?:->|\.)comp_handler\s*\)\s*\("


def driver(path):
    return path.split("/")[3]


def findings(tree):
    """[(path, path below infiniband, message)] of the script's report mode."""
    files = convert.callers(tree) + [p for p in CORE if os.path.exists(os.path.join(tree, p))]
    out = convert.apply_report(tree, PROJECT, files)
    return [m.groups() for m in FINDING.finditer(out)]


def direct_calls(tree):
    """Calls through comp_handler by another eye than coccinelle's."""
    found = []
    for path in convert.callers(tree):
        with open(os.path.join(tree, path), encoding="utf-8", errors="replace") as f:
            text = re.sub(r"/\*.*?\*/|//[^\n]*", "", f.read(), flags=re.S)
        found += [path] * len(re.findall(CALL, text))
    return found


def tested(tree, name):
    """(direct calls behind a test of the pointer, all) in the C code."""
    good = total = 0
    for path in convert.callers(tree):
        if driver(path) != name:
            continue
        with open(os.path.join(tree, path), encoding="utf-8", errors="replace") as f:
            text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
        for call in re.finditer(CALL, text):
            total += 1
            before = text[max(0, text.rfind("\n}\n", 0, call.start())) : call.start()]
            good += bool(re.search(r"if \([^;]*comp_handler\b", before))
    return good, total


def elsewhere(tree, name):
    """The function in which a driver tests the handler for a later call, or None."""
    if name not in ELSEWHERE:
        return None
    path, where = ELSEWHERE[name]
    with open(os.path.join(tree, "drivers", path), encoding="utf-8", errors="replace") as f:
        body = function(f.read(), where) or ""
    return where if re.search(r"if \(!?[^;{]*comp_handler\b", body) else None


def converted(before, after, name):
    """Calls of ib_cq_completion(), each of which tests the pointer."""
    total = 0
    # Converted, most of these files do not name the handler any more.
    for path in convert.callers(before):
        if driver(path) == name:
            with open(os.path.join(after, path), encoding="utf-8", errors="replace") as f:
                text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
            total += len(re.findall(r"\bib_cq_completion\s*\(", text))
    return total


# What the columns of the table are.
LEGEND = """
calls: calls of the handler in the source.
test: calls behind a test for NULL in the same function, in Linux 7.3.4 and converted.
arm64: places in the machine code where the handler is loaded by an acquire, then tested for
NULL, then called: in Linux 7.3.4, and converted, of all that load it by an acquire. The
compiler makes one of several calls, and several of one.
known: how the driver makes a CQ known.
"""


def row(name, known, test=("", ""), code=("", "")):
    """A line of the table."""
    return (
        f"{name:<11} {CALLS.get(name, 'calls'):>5}  {test[0]:>11} {test[1]:>9}  "
        f"{code[0]:>12} {code[1]:>9}  {known}"
    )


def dispatches(insns):
    """[(load, test, call)] where a pointer is loaded, tested for NULL and called, on arm64.

    load and test are None where there is none.
    """
    found, loads, tests = [], {}, {}
    for insn in insns:
        kind = asm_order.Arm64.access(insn)
        target = re.match(r"(x\d+)\b", insn.operands)
        if insn.name in ("cbz", "cbnz") and target:
            tests[target.group(1)] = insn
        elif insn.name in ("blr", "br") and target:
            load = loads.get(target.group(1))
            if load:
                found.append((load, tests.get(target.group(1)), insn))
        elif target and not insn.name.startswith(("st", "cmp", "cmn", "tst", "tb", "b.")):
            # The register has another value from here on.
            tests.pop(target.group(1), None)
            loads.pop(target.group(1), None)
            if kind and kind[0] == "load":
                loads[target.group(1)] = insn
    return found


def acquires(insns):
    return [
        d
        for d in dispatches(insns)
        if re.match(r"ldap?u?r|ldar", d[0].name) and "ACQ" in order(d[0])
    ]


def order(insn):
    kind = asm_order.Arm64.access(insn)
    return "ACQ" if kind and asm_order.ACQUIRE in kind[1] else ""


def machine_code(directory):
    """{driver: {object: {function: [Insn]}}}"""
    found = {}
    for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else []:
        path = name.replace(",", "/")[: -len(".dis")]
        with open(os.path.join(directory, name), encoding="utf-8") as f:
            found.setdefault(driver(path), {})[path] = asm_order.parse(f.read())
    return found


def count(objects):
    """Dispatches with an acquire: (all, with a test for NULL, text of the first)."""
    all_ = [
        d for functions in objects.values() for insns in functions.values() for d in acquires(insns)
    ]
    good = [d for d in all_ if d[1]]
    text = "; ".join(i.text for i in good[0]) if good else ""
    return len(all_), len(good), re.sub(r", 0x[0-9a-f]+", "", text)


def failed_objects(log):
    try:
        with open(log, encoding="utf-8", errors="replace") as f:
            return re.findall(r"\*\*\* \[[^\]]*?([\w./-]+\.o)\] Error", f.read())
    except FileNotFoundError:
        return []


class Points:
    def __init__(self):
        self.lines, self.number, self.failed = [], 0, 0

    def add(self, name, faults, notes=()):
        self.number += 1
        self.failed += bool(faults)
        self.lines += [f"# {text}" for text in list(notes) + list(faults)]
        self.lines.append(f"{'not ' if faults else ''}ok {self.number} {name}")

    def print(self):
        print("KTAP version 1")
        print(f"1..{self.number}")
        print("\n".join(self.lines), flush=True)
        return 1 if self.failed else 0


def histogram(items):
    found = {}
    for item in items:
        found[item] = found.get(item, 0) + 1
    return found


def difference(found, wanted):
    return [
        f"{key}: {found.get(key, 0)} instead of {wanted.get(key, 0)}"
        for key in sorted(set(found) | set(wanted))
        if found.get(key, 0) != wanted.get(key, 0)
    ]


def uncompiled(tree, build, name):
    """Callers of a driver that have no object."""
    objects = [
        p[:-2] + ".o" for p in convert.callers(tree) if p.endswith(".c") and driver(p) == name
    ]
    return [o for o in objects if not os.path.exists(os.path.join(build, o))]


def main(trees, logs, builds, arches):
    before, after = os.path.join(trees, "before"), os.path.join(trees, "after")
    points = Points()

    found = findings(before)
    points.add(
        "report mode finds the direct calls of Linux 7.3.4",
        difference(histogram(driver(p) for p, _, what in found if "direct call" in what), CALLS),
    )
    points.add(
        "report mode finds the stores without order of Linux 7.3.4",
        difference(histogram(below for _, below, what in found if "stored" in what), STORES),
    )
    left = findings(after)
    points.add(
        "report mode finds no direct call after the conversion",
        [f"{p}: {what}" for p, _, what in left if "stored" not in what],
    )
    points.add(
        "report mode finds no store without order after it, but in cq.c",
        difference(histogram(below for _, below, what in left if "stored" in what), STORES_LEFT),
    )
    calls = histogram(driver(p) for p in direct_calls(before))
    points.add("a plain search finds the same calls", difference(calls, CALLS))
    points.add("a plain search finds none after the conversion", direct_calls(after))

    code, old = machine_code(os.path.join(trees, "dis/after")), machine_code(
        os.path.join(trees, "dis/before")
    )
    table = LEGEND.strip().split("\n") + [
        "",
        row("driver", "known", ("test: 7.3.4", "converted"), ("arm64: 7.3.4", "converted")),
    ]
    early = set()
    for arch in arches:
        bad = os.path.exists(os.path.join(logs, arch + ".failed"))
        points.add(f"the run of make for {arch} ends well", [f"see {arch}.build"] if bad else [])
    for name in sorted(CALLS):
        for arch in arches:
            bad = [
                o for o in failed_objects(os.path.join(logs, arch + ".build")) if f"/{name}/" in o
            ]
            bad += [
                o
                for o in uncompiled(before, os.path.join(builds, "drivers-" + arch), name)
                if o not in bad
            ]
            points.add(f"{name} compiles for {arch}", [f"{o}: see {arch}.build" for o in bad])
        if "arm64" in arches:
            sites, good, text = count(code.get(name, {}))
            faults = (
                []
                if good and good == sites
                else [f"{good} of {sites} loads by an acquire are tested"]
            )
            calling = [o for o in old.get(name, {}) if o not in code.get(name, {})]
            faults += [f"{o} was not compiled" for o in calling]
            points.add(
                f"{name} loads the handler by an acquire and tests it, arm64",
                faults,
                [text] if text else [],
            )
            sites_before = count(old.get(name, {}))[0]
            points.add(
                f"{name} did not before, arm64",
                (
                    [f"{sites_before} acquires"]
                    if sites_before
                    else [] if old.get(name) else ["there is no object"]
                ),
            )
        else:
            sites = good = sites_before = "-"
        text, places = PUBLISHED[name]
        if any(p.fault(before) for p in places):
            early.add(name)
        points.add(
            f"{name} makes a CQ known when it is initialised",
            [f for f in (p.fault(after) for p in places) if f],
            [f"before: {f}" for f in (p.fault(before) for p in places) if f],
        )
        good_before, now = tested(before, name)[0], converted(before, after, name)
        points.add(
            f"{name} calls ib_cq_completion() where it called the handler",
            [] if now == CALLS[name] else [f"{now} calls instead of {CALLS[name]}"],
        )
        notes = [text]
        if name in early:
            notes.append("was too early")
        if elsewhere(before, name):
            notes.append(f"was tested in {elsewhere(before, name)}(), then loaded again")
        table.append(
            row(
                name,
                "; ".join(notes),
                (good_before, now),
                (sites_before, f"{good} of {sites}"),
            )
        )
    points.add(
        "Linux 7.3.4 makes CQs known too early where it is said to",
        [f"{n}: {'yes' if n in early else 'no'}" for n in sorted(early ^ TOO_EARLY)],
    )
    points.lines = [f"# {line}" for line in table] + points.lines
    return points.print()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
