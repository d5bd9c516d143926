# SPDX-License-Identifier: GPL-2.0
"""Find the ordered memory accesses in disassembled functions.

This reads what llvm-objdump -dr -C prints, for arm64, riscv64 and powerpc64, in
the order of addresses; it follows no branches.  That is enough to see whether
the compiler has kept a release or an acquire where the source has one, and what
it has made of it.
"""

import os
import re
import sys

# What a fence between two accesses orders.
RELEASE, ACQUIRE, FULL = "release", "acquire", "full"


class Insn:
    def __init__(self, addr, name, operands, target=None):
        self.addr = addr
        self.name = name
        self.operands = operands
        self.target = target    # the symbol that a relocation names

    @property
    def text(self):
        return f"{self.name} {self.operands}".strip()


class Access:
    """A memory access, or a call.

    kind: load, store, rmw or call; order: the subset of release, acquire and
    full that it has; offset: from the base register, where that is known.
    """

    def __init__(self, kind, insns, order=(), offset=None, name=None, base=None):
        self.kind = kind
        self.insns = list(insns)
        self.order = set(order)
        self.offset = offset
        self.name = name    # of the function, for a call; of the helper
        self.base = base
        self.closed = False     # a fence has been seen behind it
        self.pending = None     # of the load of a pair, what its store will need

    @property
    def text(self):
        via = f"{self.name}(): " if self.name and self.kind != "call" else ""
        return via + "; ".join(i.text for i in self.insns)

    def has(self, order):
        return order in self.order or FULL in self.order


LABEL = re.compile(r"^[0-9a-f]+ <(.*)>:$")
CODE = re.compile(r"^\s+([0-9a-f]+):\s+(\S+)\s*(.*)$")
RELOC = re.compile(r"^\s+[0-9a-f]+:\s+(R_\w+)\s+(.*)$")


def parse(text):
    """{function: [Insn]} of what llvm-objdump prints."""
    functions, current = {}, None
    for line in text.split("\n"):
        label = LABEL.match(line)
        if label:
            # Local labels do not begin a function.
            if not label.group(1).startswith((".L", "$")):
                current = functions.setdefault(label.group(1), [])
            continue
        if current is None:
            continue
        reloc = RELOC.match(line)
        if reloc:
            if current and not current[-1].target and "*ABS*" not in reloc.group(2):
                current[-1].target = re.sub(r"[+-]0x[0-9a-f]+$", "", reloc.group(2).strip())
            continue
        code = CODE.match(line)
        if code:
            name, operands = code.group(2), re.sub(r"\s*(?:<.*>|//.*)$", "", code.group(3).replace("\t", " ")).strip()
            current.append(Insn(int(code.group(1), 16), name, operands))
    return functions


# The instructions -----------------------------------------------------------


class Arm64:
    name = "arm64"
    argument = "x0"
    CALL = re.compile(r"bl$|blr$")
    RETURN = re.compile(r"ret$")

    @staticmethod
    def fence(insn):
        if insn.name == "dmb":
            return {"ish": FULL, "ishld": ACQUIRE, "sy": FULL}.get(insn.operands)
        return None

    @staticmethod
    def access(insn):
        """(kind, order) of a memory access."""
        name = insn.name
        if re.match(r"stlr[bh]?$|stlur", name):
            return "store", {RELEASE}
        if re.match(r"ldapu?r|ldar[bh]?$", name):
            return "load", {ACQUIRE}
        if re.match(r"stl?xr[bh]?$", name):
            return "rmw", {RELEASE} if name.startswith("stlx") else set()
        if re.match(r"lda?xr[bh]?$", name):
            # Judged with its store.
            return "exclusive", {ACQUIRE} if name.startswith("lda") else set()
        atomic = re.match(r"(?:ldadd|ldclr|ldset|ldeor|swp|cas)(al|a|l)?[bh]?$", name)
        if atomic:
            return "rmw", {"al": {FULL}, "a": {ACQUIRE}, "l": {RELEASE}, None: set()}[atomic.group(1)]
        if re.match(r"st(?:r|p|ur)[bh]?$", name):
            return "store", set()
        if re.match(r"ld(?:r|p|ur)", name):
            return "load", set()
        return None

    @staticmethod
    def place(insn):
        """(base register, offset) of an access."""
        match = re.search(r"\[(\w+)(?:, #(-?0x[0-9a-f]+|-?\d+))?\]", insn.operands)
        return (match.group(1), int(match.group(2) or "0", 0)) if match else (None, None)

    @staticmethod
    def address(insn):
        """(register, base, offset) if the instruction computes base + offset."""
        match = re.match(r"(\w+), (\w+), #(0x[0-9a-f]+|\d+)$", insn.operands)
        return (match.group(1), match.group(2), int(match.group(3), 0)) if match and insn.name == "add" else None


class Riscv64:
    name = "riscv64"
    argument = "a0"
    CALL = re.compile(r"(?:jalr?|call)$")
    RETURN = re.compile(r"ret$")

    @staticmethod
    def fence(insn):
        if insn.name == "fence":
            return {"rw, w": RELEASE, "r, rw": ACQUIRE, "rw, rw": FULL, "": FULL, "iorw, iorw": FULL}.get(insn.operands)
        return None

    @staticmethod
    def access(insn):
        name = insn.name
        suffix = {"aqrl": {FULL}, "aq": {ACQUIRE}, "rl": {RELEASE}}.get(name.rpartition(".")[2], set())
        if re.match(r"amo|sc\.", name):
            return "rmw", suffix
        if name.startswith("lr."):
            return "exclusive", suffix
        if re.match(r"s[bhwd]$", name):
            return "store", set()
        if re.match(r"l[bhwd]u?$", name):
            return "load", set()
        return None

    @staticmethod
    def place(insn):
        match = re.search(r"(-?0x[0-9a-f]+|-?\d+)?\((\w+)\)", insn.operands)
        return (match.group(2), int(match.group(1) or "0", 0)) if match else (None, None)

    @staticmethod
    def address(insn):
        match = re.match(r"(\w+), (\w+), (0x[0-9a-f]+|\d+)$", insn.operands)
        return (match.group(1), match.group(2), int(match.group(3), 0)) if match and insn.name == "addi" else None


class Powerpc64:
    name = "powerpc64"
    argument = "3"
    CALL = re.compile(r"b(?:ct|l)?rl$|bl$")
    RETURN = re.compile(r"blr$")

    @staticmethod
    def fence(insn):
        # lwsync orders all but a store and a later load: both of the others.
        return {"lwsync": "lwsync", "sync": FULL, "hwsync": FULL, "isync": ACQUIRE}.get(insn.name)

    @staticmethod
    def access(insn):
        name = insn.name
        if re.match(r"st[bhwd]cx\.", name):
            return "rmw", set()
        if re.match(r"l[bhwd]arx$", name):
            return "exclusive", set()
        if re.match(r"st[bhwd]u?x?$", name):
            return "store", set()
        if re.match(r"l(?:bz|hz|wz|d|ha|wa)u?x?$", name):
            return "load", set()
        return None

    @staticmethod
    def place(insn):
        match = re.search(r"(-?0x[0-9a-f]+|-?\d+)\((\d+)\)", insn.operands)
        if match:
            return match.group(2), int(match.group(1), 0)
        match = re.match(r"\d+, (\d+), (\d+)", insn.operands)
        return (match.group(2), 0) if match and match.group(1) == "0" else (None, None)

    @staticmethod
    def address(insn):
        match = re.match(r"(\d+), (\d+), (0x[0-9a-f]+|\d+)$", insn.operands)
        return (match.group(1), match.group(2), int(match.group(3), 0)) if match and insn.name == "addi" else None


ARCHES = {a.name: a for a in (Arm64, Riscv64, Powerpc64)}


# Accesses -------------------------------------------------------------------


def orders(kind, before, after):
    """What the fences around an access give it."""
    found = set()
    if before in (RELEASE, FULL, "lwsync") and kind != "load":
        found.add(RELEASE)
    if after in (ACQUIRE, FULL, "lwsync") and kind != "store":
        found.add(ACQUIRE)
    return found


def address_of(arch, insns, at, register):
    """(base, offset) that a register holds, if it was computed nearby."""
    for insn in reversed(insns[max(0, at - 12):at]):
        found = arch.address(insn)
        if found and found[0] == register:
            return found[1], found[2]
        if arch.CALL.match(insn.name) or insn.operands.split(",")[0] == register and not arch.access(insn):
            break
    return register, 0


def accesses(arch, insns, helpers=None):
    """The accesses and calls of a function, in the order of addresses.

    helpers: {name: [Access]} of small functions that are looked into.
    """
    helpers = helpers or {}
    found = []
    before, fences = None, []
    for at, insn in enumerate(insns):
        fence = arch.fence(insn)
        if fence:
            before, fences = fence, fences + [insn]
            if found and found[-1].kind != "call":
                last = found[-1]
                if not last.closed:
                    added = orders(last.kind, None, fence)
                    last.order |= added
                    if added:
                        last.insns.append(insn)
                        # An atomic operation between two barriers is one, too.
                        if last.kind == "rmw" and fence == FULL and RELEASE in last.order:
                            last.order.add(FULL)
                    last.closed = True
            continue
        # A call through a pair of instructions has its relocation at the first.
        if insn.target and re.match(r"auipc|bl$", insn.name) and arch.access(insn) is None and (
                insn.name == "bl" or at + 1 < len(insns) and insns[at + 1].name in ("jalr", "jr")):
            called(arch, insns, at, insn, helpers, found)
            before, fences = None, []
            continue
        if arch.CALL.match(insn.name) and not (at and insns[at - 1].target and insns[at - 1].name == "auipc"):
            found.append(Access("call", [insn], name="(indirect)"))
            before, fences = None, []
            continue
        kind = arch.access(insn)
        if not kind:
            continue
        kind, order = kind
        base, offset = arch.place(insn)
        if base and not offset:
            base, offset = address_of(arch, insns, at, base)
        if kind == "exclusive":
            # The fence in front of the loop counts for its store.
            found.append(Access("exclusive", [insn], order))
            found[-1].pending = (insn, order, before, fences, base, offset)
            before, fences = None, []
            continue
        mine = orders(kind, before, None)
        access = Access(kind, fences + [insn] if mine else [insn], order | mine, offset, base=base)
        if kind == "rmw":
            loop = next((a for a in reversed(found[-3:]) if a.kind == "exclusive"), None)
            if loop:
                first, first_order, first_before, first_fences, base, offset = loop.pending
                mine = orders(kind, first_before, None)
                access.insns = (first_fences if mine else []) + [first] + access.insns
                access.order |= first_order | mine
                access.offset, access.base = offset, base
                found.remove(loop)
        found.append(access)
        before, fences = None, []
    return [a for a in found if a.kind != "exclusive"]


def called(arch, insns, at, insn, helpers, found):
    inner = helpers.get(insn.target)
    if inner is None:
        base, offset = address_of(arch, insns, at, arch.argument)
        found.append(Access("call", [insn], name=insn.target, base=base, offset=offset))
        return
    base, offset = address_of(arch, insns, at, arch.argument)
    for access in inner:
        if access.kind == "call":
            continue
        mine = access.base == arch.argument and access.offset is not None
        found.append(Access(access.kind, access.insns, access.order, access.offset + offset if mine else None,
                            name=insn.target, base=base if mine else None))
        found[-1].closed = True


# What has to be there -------------------------------------------------------

# Where the handler of a completion queue is: struct ib_cq begins with two
# pointers.  The C code stores there too, which the negative control relies on.
COMP_HANDLER = 16


def after(found, name):
    """What comes behind the first call of a function."""
    for i, access in enumerate(found):
        if access.kind == "call" and access.name == name:
            return found[i + 1:]
    return []


def stores(found, base=None):
    """Stores to the handler: (with a release, plain ones)."""
    mine = [a for a in found if a.kind == "store" and a.offset == COMP_HANDLER and base in (None, a.base)]
    return [a for a in mine if a.has(RELEASE)], [a for a in mine if not a.has(RELEASE)]


def initialised(found):
    """The register that has the queue whose poller is initialised."""
    return next((a.base for a in found if a.kind == "call" and a.name == "irq_poll_init"), None)


def opened(found):
    """A release store to the handler with the atomic operation that follows it."""
    return [(s, a) for i, s in enumerate(found) if s in stores(found)[0]
            for a in [next((a for a in found[i + 1:] if a.kind == "rmw"), None)] if a]


class Site:
    """A place in the source that has an order, and how it is recognised.

    where: whether a function is concerned; what: the accesses that have the
    order; spoiled: accesses that must not be there.
    """

    def __init__(self, key, title, where, what, spoiled=None):
        self.key, self.title, self.where, self.what = key, title, where, what
        self.spoiled = spoiled or (lambda found: [])


def calls(name):
    return lambda function, found: any(a.kind == "call" and a.name == name for a in found)


SITES = [
    Site("R", "comp_handler is published by a release, after irq_poll_init()", calls("irq_poll_init"),
         lambda found: stores(after(found, "irq_poll_init"), initialised(found))[0],
         lambda found: stores(found, initialised(found))[1]),
    Site("A", "the handler is replaced by a release, and then the queue is opened by a full barrier",
         lambda function, found: bool(opened(found)) and not calls("irq_poll_init")(function, found),
         lambda found: [x for pair in opened(found) if FULL in pair[1].order for x in pair]),
    Site("N", "an early event is noted with a full barrier",
         lambda function, found: "::handler_early" in function,
         lambda found: [a for a in found if a.kind == "rmw" and FULL in a.order]),
    Site("D1", "the end of a run is counted with a release, after irq_poll_complete()", calls("irq_poll_complete"),
         lambda found: [a for a in after(found, "irq_poll_complete") if a.kind in ("rmw", "store") and a.has(RELEASE)]),
    Site("D2", "the runs that ended are loaded by an acquire, after irq_poll_disable()", calls("irq_poll_disable"),
         lambda found: [a for a in after(found, "irq_poll_disable") if a.kind == "load" and a.has(ACQUIRE)]),
    Site("M", "the profile is taken before the state is stored by a release",
         lambda function, found: "::dim::" in function and function.endswith("::run"),
         lambda found: [a for a in found if a.kind == "store" and a.has(RELEASE)]),
]


# What C has no order for.  Its handler is stored plainly, and has to be seen.
CONTROLS = [s for s in SITES if s.key in ("R", "D1", "D2")]


class Finding:
    def __init__(self, site, function, good, bad):
        self.site, self.function, self.good, self.bad = site, function, good, bad


def findings(arch, functions, helpers=None):
    """[Finding], one for each site and function that is concerned."""
    result = []
    for function, insns in functions.items():
        found = accesses(arch, insns, helpers)
        for site in SITES:
            if site.where(function, found):
                result.append(Finding(site, function, site.what(found), site.spoiled(found)))
    return result


def helpers_of(arch, functions):
    """The atomic helpers of the Rust code, where they are functions of their own."""
    return {name: accesses(arch, insns) for name, insns in functions.items() if name.startswith("rust_helper_atomic_")}


# The report -----------------------------------------------------------------


def short(function):
    """A name that fits into a table."""
    function = re.sub(r"(?:kernel::rdma::cq::|kernel::|cq_rust::(?:poll::)?|core::ptr::)", "", function)
    while "::<" in function or re.search(r"\w<", function):
        new = re.sub(r"(?:::)?(?<=[\w:])<[^<>]*>", "", function)
        if new == function:
            break
        function = new
    return function.replace("<", "").replace(">", "")


def disassembly(directory, name):
    try:
        with open(os.path.join(directory, name), encoding="utf-8") as f:
            return parse(f.read())
    except FileNotFoundError:
        return None


def judge(arch, rust, helpers, c):
    """[(name, faults, notes)] for one architecture."""
    points = []

    def table(items, key):
        return [f"{arch.name:<10} {key:<3} {short(i.function):<28} {a.text}" for i in items for a in i.good]

    if rust is not None:
        found = findings(arch, rust, helpers_of(arch, helpers))
        for site in SITES:
            mine = [f for f in found if f.site is site]
            faults = [f"{short(f.function)}: nothing of the kind" for f in mine if not f.good]
            faults += [f"{short(f.function)}: plain {a.text}" for f in mine for a in f.bad]
            points.append((f"{site.key}: {site.title}",
                           faults if mine else ["no function in cq_rust.o does this: is it called otherwise now?"],
                           table(mine, site.key)))
    found = findings(arch, c)
    for site in CONTROLS:
        mine = [f for f in found if f.site is site]
        faults = [f"{f.function}: {a.text}" for f in mine for a in f.good]
        if not mine:
            faults.append("no function in cq.o does this: is it called otherwise now?")
        if site.key == "R" and not any(f.bad for f in mine):
            faults.append("the plain store of C is not seen either")
        notes = [f"{arch.name:<10} {site.key:<3} {f.function:<28} {a.text}" for f in mine for a in f.bad]
        points.append((f"{site.key}: C cq.c does not have it", faults, notes))
    return points


def main(directories):
    """Each directory is named by its architecture and has disassemblies."""
    lines, number, failed = [], 0, 0
    for directory in directories:
        arch = ARCHES[os.path.basename(directory)]
        rust, c = disassembly(directory, "cq_rust.dis"), disassembly(directory, "cq.dis")
        if c is None:
            print(f"asm_order: error: there is no {directory}/cq.dis; run scripts/check-asm", file=sys.stderr)
            return 2
        for name, faults, notes in judge(arch, rust, disassembly(directory, "helpers.dis") or {}, c):
            number += 1
            failed += bool(faults)
            lines += [f"# {text}" for text in notes + faults]
            lines.append(f"{'not ' if faults else ''}ok {number} {arch.name} {name}")
        if rust is None:
            number += 1
            try:
                with open(os.path.join(directory, "failed"), encoding="utf-8") as f:
                    lines += [f"# {line}" for line in f.read().splitlines()]
                lines.append(f"not ok {number} {arch.name} cq_rust.rs compiles")
                failed += 1
            except FileNotFoundError:
                lines.append(f"ok {number} {arch.name} Rust # SKIP this kernel has no Rust for {arch.name} "
                             "with these tools")
    print("KTAP version 1")
    print(f"1..{number}")
    print("\n".join(lines), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
