# SPDX-License-Identifier: GPL-2.0
"""Say where the orders of the source have to be in the machine code, and look.

For scripts/check-asm.  The debug information tells of each instruction from which
line of which function it comes, and through which functions that was inlined.  So
a place is named by the function of the source, and is found wherever the compiler
has put it.
"""

import collections
import contextlib
import os
import re
import sys

import asm_order
import convert
from asm_order import ACQUIRE, FULL, RELEASE

Frame = collections.namedtuple("Frame", "function file line column")


def simple(function):
    """The path of a function without the types that it was made for.

    <crate::m::T<A> as crate::Trait>::f::<B>::{closure#0} is crate::m::T::f::{closure#0}
    """
    function = re.sub(r" \(\d+\)$", "", function)
    if function.startswith("<"):
        end = _closing(function)
        inner, rest = function[1:end], function[end + 1 :]
        depth, of = 0, inner
        for i, c in enumerate(inner):
            depth += {"<": 1, ">": -1}.get(c, 0)
            if not depth and inner.startswith(" as ", i):
                of = inner[:i]
                break
        function = (simple(of) if of.startswith("<") else of) + rest
    while True:
        shorter = re.sub(r"(?:::)?<[^<>]*>", "", function.replace("->", ""))
        if shorter == function:
            break
        function = shorter
    return function


def _closing(text):
    depth = 0
    for i, c in enumerate(text):
        depth += {"<": 1, ">": -1 if text[i - 1] != "-" else 0}.get(c, 0)
        if not depth:
            return i
    return len(text) - 1


def frames(text):
    """{address: [Frame]} of what llvm-symbolizer -a --inlines prints, innermost first."""
    found, address = {}, None
    lines = iter(text.split("\n"))
    for line in lines:
        if not line:
            address = None
        elif address is None:
            address = int(line, 16)
            found[address] = []
        else:
            file, at, column = next(lines).rsplit(":", 2)
            name = sys.intern(os.path.basename(file))
            found[address].append(Frame(sys.intern(line), name, int(at), int(column)))
    return found


# What has to be there -------------------------------------------------------


class Op:
    """An operation that a function has to have, at `count` places in it.

    others: an inline function of C is one place in Rust, with all that it does.
    """

    def __init__(self, kind, order=None, count=1, name=None, others=False):
        self.kind, self.order, self.count, self.name = kind, order, count, name
        self.others = others

    def fits(self, access):
        return access.kind == self.kind and self.name in (None, access.name)

    @property
    def text(self):
        text = self.name + "()" if self.name else self.kind
        return f"{self.order} {text}" if self.order else text


class Site:
    """A function of the source and the operations that it has to have."""

    def __init__(self, key, title, obj, function, *ops, guards=False):
        self.key, self.title, self.obj, self.function, self.ops = key, title, obj, function, ops
        # A call through a pointer is reached from the load with an order only.
        self.guards = guards

    def is_at(self, path):
        return path == self.function or path.endswith("::" + self.function)


def load(order, count=1):
    return Op("load", order, count)


def store(order, count=1):
    return Op("store", order, count)


def rmw(order, count=1):
    return Op("rmw", order, count)


def call(name, count=1):
    return Op("call", None, count, name)


CORE, RRXE, XARRAY = "cq_rust", "rrxe_main", "xarray"

SITES = [
    Site("R", "the handler is published by a release", CORE, "cq::build::store_handler",
         store(RELEASE)),
    Site("N", "a queue is opened by a full barrier", CORE, "cq::poller::open", rmw(FULL)),
    Site("N", "an early event is noted by a full barrier", CORE, "cq::poller::handler_early",
         rmw(FULL)),
    Site("D", "the end of a run is counted by a release", CORE, "cq::poller::Polled::poll",
         rmw(RELEASE)),
    Site("D", "the runs that ended are loaded by an acquire", CORE, "cq::poller::quiesce",
         load(ACQUIRE)),
    Site("M", "the moderation state is stored by a release", CORE, "cq::dim::DimWork::run",
         store(RELEASE)),
    Site("M", "the moderation state is loaded by an acquire", CORE, "cq::dim::update",
         load(ACQUIRE)),
    Site("H", "the handler is loaded by an acquire, and then called", RRXE,
         "cq::event::raise_event", Op("load", ACQUIRE, others=True), call("(indirect)"),
         guards=True),
    Site("E1", "an event is queued: two acquires, a slot is claimed and released", RRXE,
         "eq::Eq::push", load(ACQUIRE, 2), rmw(FULL), store(RELEASE)),
    Site("E2", "an event is taken: acquire of the slot, release of the head", RRXE,
         "eq::Eq::pop", load(ACQUIRE), store(RELEASE)),
    Site("O", "an event queue is owned, or its owner told, by a full barrier", RRXE,
         "owner::Owner::own_or_pend", rmw(FULL)),
    Site("O", "an event queue is given up by a full barrier", RRXE, "owner::Owner::release",
         rmw(FULL)),
    Site("A", "a queue is armed by a full barrier", RRXE, "arm::Arm::arm", rmw(FULL)),
    Site("A", "an event is made: a full barrier, then another", RRXE, "arm::Arm::fire",
         Op("fence", FULL), rmw(FULL)),
    Site("A", "a handler begins with a full barrier", RRXE, "arm::Arm::begin", rmw(FULL)),
    Site("K", "a handler ends with a full barrier", RRXE, "arm::Arm::end", rmw(FULL)),
    Site("K", "a queue is killed by a full barrier", RRXE, "arm::Arm::kill", rmw(FULL)),
    Site("K", "handlers that ended are seen by an acquire", RRXE, "arm::Arm::is_quiet",
         load(ACQUIRE)),
    Site("U", "a completion for user space: acquire of the index, release of the other", RRXE,
         "cq::UserRing::push", load(ACQUIRE), store(RELEASE)),
    Site("U", "a work request of user space: acquire of the index, release of the other", RRXE,
         "qp::rings::UserRing::take", load(ACQUIRE), store(RELEASE)),
    Site("B", "a doorbell is counted by a full barrier", RRXE, "bell::Bell::ring", rmw(FULL)),
    Site("B", "doorbells are taken by a full barrier", RRXE, "bell::Bell::take", rmw(FULL)),
    # What is a full barrier is a release, too, so that there are two.
    Site("G", "the core's queue is entered by a full barrier, left by a release", RRXE,
         "driver::gate::Gate::enter", rmw(FULL), rmw(RELEASE, 2)),
    Site("P", "a number is published by __xa_store()", RRXE, "rcu::array::RcuArray::publish",
         call("__xa_store")),
    Site("P", "a number is looked up by xa_load()", RRXE, "rcu::array::RcuArray::find",
         call("xa_load")),
    Site("P", "__xa_store() stores by a release", XARRAY, "xas_store", store(RELEASE)),
]


class Instance:
    """A function of the source at one of the places where the compiler has put it."""

    def __init__(self, name, code):
        self.name, self.code = name, code
        self.function = name  # as the object names it
        self.outer = []  # the frames that it was inlined into
        self.accesses = []  # with the place in the function that each comes from

    def add(self, at, access):
        """at: the places, of the function and of those that it calls, outermost first."""
        self.accesses.append((at, access))

    def places(self, op):
        """The places in the source with an operation: ([[Access]] with the order, without).

        There may be several accesses for one: other ones of the same line of a C
        function, and a form of an atomic operation for each kind of CPU. Of the
        latter each needs the order.
        """
        found, kinds = {}, {}
        for at, access in self.accesses:
            kinds.setdefault(at[0], set()).add(access.kind)
        for at, access in self.accesses:
            # What an operation has besides, or its fence, is none of its own.
            part = "rmw" in kinds[at[0]] and op.kind in ("load", "store", "fence")
            part = part or op.kind == "fence" and kinds[at[0]] != {"fence"}
            if op.fits(access) and not part:
                found.setdefault(at[0], {}).setdefault(at, []).append(access)
        good, bad = [], []
        for forms in found.values():
            enough = any if op.others else all
            fine = [f for f in forms.values() if enough(a.has(op.order) for a in f)]
            if fine and (op.kind != "rmw" or len(fine) == len(forms)):
                good.append([a for f in fine for a in f if a.has(op.order)])
            else:
                bad += [f[0] for f in forms.values() if f not in fine]
        return good, bad

    def judge(self, site):
        """(accesses with the order, faults)."""
        good, faults = [], []
        for op in site.ops:
            mine, others = self.places(op)
            good += [access for place in mine for access in place]
            if len(mine) < op.count:
                faults.append(f"{op.text} {len(mine)} times instead of {op.count}"
                              + "".join(f"; {a.text}" for a in others))
        if site.guards:
            faults += self.unguarded()
        return good, faults

    def unguarded(self):
        """Calls of a pointer that are reached without a load that is an acquire."""
        loads = [a for _, a in self.accesses if a.kind == "load" and a.has(ACQUIRE)]
        calls = [a for _, a in self.accesses if a.kind == "call" and a.name == "(indirect)"]
        first = {a.at for a in loads}
        return [
            f"{a.text} is reached without an acquire"
            for a in calls
            # Both may be in a helper.
            if a.at not in first and not self.code.always_behind(first, a.at)
        ]


class Object:
    """A disassembled object with its debug information."""

    def __init__(self, arch, name, disassembly, lines, helpers=None):
        self.arch, self.name = arch, name
        self.functions = asm_order.parse(disassembly)
        self.frames = frames(lines)
        self.code = {n: asm_order.Code(arch, i) for n, i in self.functions.items()}
        self.helpers = helpers or {}
        self._inlined = {}
        self._accesses = {}

    @classmethod
    def read(cls, arch, directory, name, helpers=None):
        text = []
        for kind in (".dis", ".frames"):
            with open(os.path.join(directory, name + kind), encoding="utf-8") as f:
                text.append(f.read())
        return cls(arch, name, *text, helpers)

    def inline(self, functions):
        """Look into small functions where they are called: {name: [Insn]}."""
        self._inlined = functions
        self.helpers = {n: asm_order.accesses(self.arch, i) for n, i in functions.items()}
        self._accesses.clear()

    @contextlib.contextmanager
    def weakened(self, insn, function):
        """While this lasts an instruction of a function, or of a helper, has no order."""
        name, operands = insn.name, insn.operands
        if self.arch.fence(insn):
            insn.name, insn.operands = "nop", ""
        else:
            insn.name = self.arch.plain(insn)
        helpers = {n: i for n, i in self._inlined.items() if any(j is insn for j in i)}
        before = {n: self.helpers[n] for n in helpers}
        try:
            self.helpers |= {n: asm_order.accesses(self.arch, i) for n, i in helpers.items()}
            self._accesses.pop(function, None)
            yield
        finally:
            insn.name, insn.operands = name, operands
            self.helpers |= before
            self._accesses.pop(function, None)

    def accesses(self, function):
        if function not in self._accesses:
            self._accesses[function] = asm_order.accesses(
                self.arch, self.code[function], self.helpers
            )
        return self._accesses[function]

    def chain(self, function, access):
        """The frames of an access, innermost first."""
        chain = self.frames.get(self.code[function].insns[access.at].addr, [])
        # A local label may have taken the name of the function.
        return chain[:-1] + [f._replace(function=function) for f in chain[-1:]]

    def instances(self, which, only=None):
        """{what which() says of a function: [Instance]}; it says None for most.

        only: the functions of the object to look at, all if None.
        """
        found, said = {}, {}
        for function, code in self.code.items():
            if only is not None and function not in only:
                continue
            for access in self.accesses(function):
                chain = self.chain(function, access)
                for depth, frame in enumerate(chain):
                    if frame.function not in said:
                        said[frame.function] = which(simple(frame.function))
                    for what in said[frame.function]:
                        key = (function, tuple(chain[depth + 1 :]))
                        mine = found.setdefault(what, {})
                        if key not in mine:
                            mine[key] = Instance(simple(function), code)
                            mine[key].function = function
                            mine[key].outer = chain[depth + 1 :]
                        places = [(f.line, f.column) for f in chain[: depth + 1]]
                        mine[key].add(tuple(reversed(places)), access)
                    # What another of them does is that one's.
                    if said[frame.function]:
                        break
        return {what: list(mine.values()) for what, mine in found.items()}


def small(functions, pattern):
    """The functions whose name fits, for whoever calls them."""
    return {n: insns for n, insns in functions.items() if re.search(pattern, simple(n))}


def sites_of(path):
    # A closure is part of the function only where it is called by that.
    return [] if path.endswith("}") else [site for site in SITES if site.is_at(path)]


# The report -----------------------------------------------------------------


def row(arch, key, where, text):
    return f"{arch.name:<10} {key:<3} {where:<28} {text}"


def short(path):
    return re.sub(r"^(?:kernel|rrxe_main|cq_rust)::(?:rdma::|sync::)?", "", path)


def judge_site(site, obj, instances):
    """([Access] with the order, faults) of a site in all places."""
    found, faults = [], []
    for instance in instances:
        good, bad = instance.judge(site)
        faults += [f"in {instance.name}: {text}" for text in bad]
        found += good
    if not instances:
        faults = [f"no code of {site.function}() is in {obj.name}.o: "
                  "is it called otherwise now?"]
    return found, faults


def judge_sites(arch, obj):
    """[(name, faults, notes)] for the sites in an object of the kernel's Rust code."""
    points, found = [], obj.instances(sites_of)
    for site in SITES:
        if site.obj != obj.name:
            continue
        good, faults = judge_site(site, obj, found.get(site, []))
        rows = collections.Counter(access.text for access in good)
        notes = [row(arch, site.key, short(site.function), f"{text}{f'  (x {n})' if n > 1 else ''}")
                 for text, n in rows.items()]
        points.append((f"{site.key}: {site.function}(): {site.title}", faults, notes))
    return points


# Where the handler of a completion queue is: struct ib_cq begins with two
# pointers.  The C code stores there too, which the negative control relies on.
COMP_HANDLER = 16


def behind(obj, function, name):
    """The accesses that can come after a call."""
    found = obj.accesses(function)
    reach = obj.code[function].reach(
        {a.at for a in found if a.kind == "call" and a.name == name}
    )
    return [a for a in found if a.at in reach]


def calling(obj, name):
    return [f for f in obj.code if any(a.kind == "call" and a.name == name
                                       for a in obj.accesses(f))]


def judge_cq(arch, obj):
    """The same questions about cq.c, where the answers are no."""
    points = []

    def add(key, title, functions, ordered, plain=None):
        faults = [f"{f}(): {a.text}" for f in functions for a in ordered(f)]
        if not functions:
            faults.append("no function in cq.o does this: is it called otherwise now?")
        seen = [(f, a) for f in functions for a in (plain(f) if plain else [])]
        if plain and not seen:
            faults.append("the plain accesses of C are not seen either")
        points.append((f"{key}: C cq.c: {title}", faults,
                       [row(arch, key, f, a.text) for f, a in seen]))

    def handlers(f, ordered):
        return [a for a in obj.accesses(f) if a.kind == "store" and a.offset == COMP_HANDLER
                and a.base not in arch.stack and a.has(RELEASE) == ordered]

    add("R", "the handler is stored without a release", calling(obj, "irq_poll_init"),
        lambda f: handlers(f, True), lambda f: handlers(f, False))
    add("D", "the end of a run is not counted", calling(obj, "irq_poll_complete"),
        lambda f: [a for a in behind(obj, f, "irq_poll_complete")
                   if a.kind in ("rmw", "store") and a.has(RELEASE)])
    add("D", "nothing is loaded by an acquire at the end", calling(obj, "irq_poll_disable"),
        lambda f: [a for a in behind(obj, f, "irq_poll_disable")
                   if a.kind == "load" and a.has(ACQUIRE)])
    return points


# Drivers --------------------------------------------------------------------

COMPLETION = "ib_cq_completion"
DISPATCH = Site("H", "", "", COMPLETION, load(ACQUIRE), guards=True)
# A call, also as (*cq->comp_handler)(...).
DIRECT = re.compile(
    r"(?:->|\.)comp_handler\s*\(|\(\*[^();{]*(?:->|\.)comp_handler\s*\)\s*\(")


def calls_in(source, pattern):
    """[(first line, last line)] of the statements with a call."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group(0)), source,
                  flags=re.S)
    return [(text.count("\n", 0, m.start()) + 1, text.count("\n", 0, text.index(";", m.end())) + 1)
            for m in re.finditer(pattern, text)]


def pointer_calls(obj, function, merged=False):
    """Calls through a pointer; or those that the compiler has made of several.

    Where ways end in the same code, they share it, and it is of no line then.
    """
    return [
        a for a in obj.accesses(function)
        if a.kind == "call" and a.name == "(indirect)"
        and (not merged or [f for f in obj.chain(function, a)[:1] if not f.line])
    ]


def unguarded_merged(obj, instance, loads):
    """What is wrong with the call of an instance of ib_cq_completion() that has none itself.

    loads: all loads of ib_cq_completion() in this machine function: {where: [Access]}.
    Handlers of other kinds may be called by the same instruction.
    """
    mine = {a.at for _, a in instance.accesses if a.kind == "load"}
    calls = [a for a in pointer_calls(obj, instance.function, merged=True)
             if mine & asm_order.pointer_loads(instance.code, a.at)]
    if not calls:
        return [f"{instance.name}(): there is no call of what is loaded"]
    return [f"{instance.name}(): {a.text} has a handler of {loads[at].text}"
            for a in calls for at in asm_order.pointer_loads(instance.code, a.at)
            if at in loads and not loads[at].has(ACQUIRE)]


def enclosing(source, line):
    """The C function that a line of source is in."""
    for text in reversed(source.split("\n")[:line]):
        name = re.match(r"[a-z][^;=]*?\b(\w+)\(", text)
        if name:
            return name.group(1)
    return None


def callers(tree):
    """The drivers' files that call a handler."""
    found = []
    for path in convert.callers(tree):
        with open(os.path.join(tree, path), encoding="utf-8") as f:
            if calls_in(f.read(), DIRECT):
                found.append(path)
    return found


def completion_of(path):
    return [COMPLETION] if path == COMPLETION else []


def judge_converted(obj, source, name):
    """(rows, number of calls, faults) of a file that calls ib_cq_completion()."""
    mine = obj.instances(completion_of)
    rows, faults, lines = [], [], set()
    for instance in mine.get(COMPLETION, []):
        good, bad = instance.judge(DISPATCH)
        if not any(a.name == "(indirect)" for _, a in instance.accesses):
            loads = {a.at: a for other in mine[COMPLETION] for _, a in other.accesses
                     if other.function == instance.function and a.kind == "load"}
            faults += unguarded_merged(obj, instance, loads)
        faults += [f"{instance.name}(): {text}" for text in bad]
        rows += [(instance.name, a.text) for a in good if a.kind == "load"]
        lines |= {f.line for f in instance.outer[:1] if f.file == name}
    # Where it is a function of its own.
    for function in obj.code:
        for access in obj.accesses(function):
            if access.kind == "call" and access.name == COMPLETION:
                lines |= {f.line for f in obj.chain(function, access) if f.file == name}
    calls = calls_in(source, r"\b%s\s*\(" % COMPLETION)
    faults += [f"{name}:{first}: this call is not in the object" for first, last in calls
               if not lines & set(range(first, last + 1))]
    return rows, len(calls), faults


def merged_direct(obj, name):
    """Whether there is a shared call without an acquire where a C function has gone."""
    for function, code in obj.code.items():
        if any(f.function == name for a in obj.accesses(function) for f in obj.chain(function, a)):
            loads = {a.at: a for a in obj.accesses(function) if a.kind == "load"}
            if any(not loads[at].has(ACQUIRE)
                   for a in pointer_calls(obj, function, merged=True)
                   for at in asm_order.pointer_loads(code, a.at)):
                return True
    return False


def judge_direct(obj, source, name):
    """The same of one that calls the handler itself: there the answer is no."""
    rows, faults = [], []
    calls = calls_in(source, DIRECT)
    if obj.instances(completion_of):
        faults.append(f"there is {COMPLETION}()")
    for first, last in calls:
        seen = []
        for function in obj.code:
            here = [a for a in obj.accesses(function)
                    if any(f.file == name and first <= f.line <= last
                           for f in obj.chain(function, a))]
            if [a for a in pointer_calls(obj, function) if a in here]:
                seen += [(function, a) for a in here if a.kind == "load"]
        faults += [f"{name}:{first}: {a.text}" for _, a in seen if a.has(ACQUIRE)]
        if not seen and not merged_direct(obj, enclosing(source, first)):
            faults.append(f"{name}:{first}: the call is not seen")
        rows += [(f, a.text) for f, a in seen[:1]]
    return rows, len(calls), faults


def judge_drivers(arch, directory, trees):
    """[(name, faults, notes)] for the drivers in both forms."""
    with open(os.path.join(directory, "drivers"), encoding="utf-8") as f:
        files = f.read().split()
    with open(os.path.join(directory, "drivers.here"), encoding="utf-8") as f:
        here = f.read().split()
    points = []
    for form, judge_file, title in (
        ("after", judge_converted, "calls handlers that were loaded by an acquire"),
        ("before", judge_direct, "has no such acquire in Linux 7.3"),
    ):
        for driver in sorted({path.split("/")[3] for path in files}):
            rows, faults, calls, missing = [], [], 0, []
            for path in files:
                if path.split("/")[3] != driver:
                    continue
                name = form + "," + path[:-2].replace("/", ",")
                if not os.path.exists(os.path.join(directory, name + ".dis")):
                    missing.append(path)
                    continue
                with open(os.path.join(trees, form, path), encoding="utf-8") as f:
                    source = f.read()
                obj = Object.read(arch, directory, name)
                found = judge_file(obj, source, os.path.basename(path))
                rows += found[0]
                calls += found[1]
                faults += found[2]
            missing = [path for path in missing if path[:-2] in here]
            if not calls and not missing:
                # It needs what this CPU has not, says its Kconfig file.
                points.append((f"{driver} # SKIP it is not for {arch.name}", [], []))
                continue
            faults += [f"{path} was not compiled" for path in missing]
            points.append((f"H: {driver} {title}: {calls} calls", faults,
                           [row(arch, "H", f, t) for f, t in dict.fromkeys(rows)]))
    return points


def there(directory, name):
    return os.path.exists(os.path.join(directory, name + ".dis"))


def rust_objects(arch, directory):
    """The objects with sites, and first that of the helpers if they are not inlined."""
    helpers = {}
    if there(directory, "helpers"):
        obj = Object.read(arch, directory, "helpers")
        helpers = small(obj.functions, r"^rust_helper_(atomic_|smp_|xchg|cmpxchg|try_cmpxchg|"
                                       r"ib_cq_completion)")
        yield obj
    for name in (CORE, RRXE, XARRAY):
        if there(directory, name):
            obj = Object.read(arch, directory, name)
            obj.inline(helpers | small(obj.functions, r"\bWord::|sync::atomic::"))
            yield obj


def without_rust(arch, directory):
    """What is said where an object of Rust code is missing."""
    for name in (CORE, RRXE):
        if there(directory, name):
            continue
        try:
            with open(os.path.join(directory, name + ".failed"), encoding="utf-8") as f:
                yield f"{name}.rs compiles", f.read().splitlines(), []
        except FileNotFoundError:
            yield (f"{name}.rs # SKIP this kernel has no Rust for {arch.name} with these tools",
                   [], [])


def judge(arch, directory, trees):
    """[(name, faults, notes)] for one architecture."""
    points = []
    for obj in rust_objects(arch, directory):
        if obj.name == "helpers":
            rows, _, faults = judge_converted(obj, "", "")
            points.append(("H: the helper of raise_event()",
                           faults if rows else ["it is not there"],
                           [row(arch, "H", f, t) for f, t in rows]))
        else:
            points += judge_sites(arch, obj)
    points += judge_cq(arch, Object.read(arch, directory, "cq"))
    if os.path.exists(os.path.join(directory, "drivers")):
        points += judge_drivers(arch, directory, trees)
    return points + list(without_rust(arch, directory))


def main(trees, directories, about=judge):
    """Each directory is named by its architecture and has disassemblies."""
    lines, number, failed = [], 0, 0
    for directory in directories:
        arch = asm_order.ARCHES[os.path.basename(directory)]
        for name, faults, notes in about(arch, directory, trees):
            number += 1
            failed += bool(faults)
            lines += [f"# {text}" for text in notes + faults]
            lines.append(f"{'not ' if faults else ''}ok {number} {arch.name} {name}")
    print("KTAP version 1")
    print(f"1..{number}")
    print("\n".join(lines), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1] == "--callers":
        print("\n".join(callers(sys.argv[2])))
        sys.exit(0)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
