# SPDX-License-Identifier: GPL-2.0
"""Find the ordered memory accesses in disassembled functions.

This reads what llvm-objdump -dr -C prints, for arm64, riscv64 and powerpc64.  An
access has an order by itself, like stlr, or by a fence.  A fence counts if it is
on every way that leads to the access, or away from it, with no other access in
between.
"""

import re
import sys

# What a fence between two accesses orders.
RELEASE, ACQUIRE, FULL = "release", "acquire", "full"


class Insn:
    def __init__(self, addr, name, operands, symbol=None):
        self.addr = addr
        self.name = name
        self.operands = operands
        self.symbol = symbol  # that is at the address in the operands
        self.target = None  # the symbol that a relocation names

    @property
    def text(self):
        return f"{self.name} {self.operands}".strip()


class Access:
    """A memory access, a fence or a call.

    kind: load, store, rmw, fence or call; order: the subset of release, acquire
    and full that it has; insns: what makes it, with its fences; base, offset:
    of a load or store, where that is known; name: of the function that is
    called, or of the helper that does this; at: where in the function; itself:
    the instruction without its fences; carriers: all that may give it an order.
    """

    def __init__(self, kind, insns, order=(), at=None, name=None, base=None, offset=None,
                 itself=None, carriers=None):
        self.kind = kind
        self.insns = list(insns)
        self.itself = itself or self.insns[0]
        self.carriers = self.insns if carriers is None else carriers
        self.order = set(order)
        self.at = at
        self.name = name
        self.base, self.offset = base, offset

    @property
    def text(self):
        if self.kind == "call" and self.name != "(indirect)":
            return f"{self.insns[0].name} {self.name}"
        via = f"{self.name}(): " if self.name and self.kind != "call" else ""
        return via + "; ".join(re.sub(r",? ?0x[0-9a-f]+$", "", i.text) for i in self.insns)

    def has(self, order):
        return not order or order in self.order or FULL in self.order


LABEL = re.compile(r"^([0-9a-f]+) <(.*)>:$")
CODE = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$")
RELOC = re.compile(r"^\s+[0-9a-f]+:\s+(R_\w+)\s+(.*)$")
ADDRESS = re.compile(r"(?:^|[\s,])(0x[0-9a-f]+)$")


def parse(text):
    """{function: [Insn]} of what llvm-objdump prints."""
    functions, current, labels = {}, None, {}
    for line in text.split("\n"):
        label = LABEL.match(line)
        if label:
            # Local labels do not begin a function.
            if label.group(2).startswith((".L", "$")):
                labels[label.group(2)] = int(label.group(1), 16)
                continue
            # Functions of different types may look alike here.
            name, n = label.group(2), 1
            while name in functions:
                n += 1
                name = f"{label.group(2)} ({n})"
            current = functions[name] = []
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
            operands = code.group(3).replace("\t", " ").strip()
            symbol = re.search(r"<(.*)>$", operands)
            operands = re.sub(r"\s*(?:<.*>|//.*)$", "", operands)
            symbol = symbol.group(1) if symbol and "+0x" not in symbol.group(1) else None
            current.append(Insn(int(code.group(1), 16), code.group(2), operands, symbol))
    # What the linker would fill in within a function is known already.
    for insns in functions.values():
        for insn in insns:
            if insn.target in labels:
                insn.operands = ADDRESS.sub("", insn.operands).rstrip(", ")
                insn.operands += (", " if insn.operands else "") + hex(labels[insn.target])
                insn.target = None
    return functions


# The instructions -----------------------------------------------------------


class Arm64:
    name = "arm64"
    argument = "x0"
    stack = ("sp",)
    CALL = re.compile(r"blr?$")
    RETURN = re.compile(r"ret$")
    # Without a way to what follows; to a register means out of the function.
    JUMP = re.compile(r"br?$")
    BRANCH = re.compile(r"b\.|cbn?z$|tbn?z$")

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
            order = {"al": {FULL}, "a": {ACQUIRE}, "l": {RELEASE}, None: set()}
            return "rmw", order[atomic.group(1)]
        if re.match(r"st(?:r|p|ur)[bh]?$", name):
            return "store", set()
        if re.match(r"ld(?:r|p|ur)", name):
            return "load", set()
        return None

    @staticmethod
    def plain(insn):
        """The name of the instruction that does the same without an order."""
        name = re.sub(r"^stl(x?r|ur)", r"st\1", insn.name)
        name = re.sub(r"^(?:ldap?(u?)r|lda(x)r)", r"ld\1\2r", name)
        return re.sub(r"^(ldadd|ldclr|ldset|ldeor|swp|cas)(?:al|a|l)([bh]?)$", r"\1\2", name)

    @staticmethod
    def place(insn):
        """(base register, offset) of an access."""
        match = re.search(r"\[(\w+)(?:, #(-?0x[0-9a-f]+|-?\d+))?\]", insn.operands)
        return (match.group(1), int(match.group(2) or "0", 0)) if match else (None, None)

    @staticmethod
    def address(insn):
        """(register, base, offset) if the instruction computes base + offset."""
        match = re.match(r"(\w+), (\w+), #(0x[0-9a-f]+|\d+)$", insn.operands)
        if not match or insn.name != "add":
            return None
        return match.group(1), match.group(2), int(match.group(3), 0)


class Riscv64:
    name = "riscv64"
    argument = "a0"
    stack = ("sp",)
    CALL = re.compile(r"(?:jalr?|call)$")
    RETURN = re.compile(r"ret$")
    JUMP = re.compile(r"j[r]?$|tail$")
    BRANCH = re.compile(r"b(?:eq|ne|lt|ge|gt|le)u?z?$")

    @staticmethod
    def fence(insn):
        if insn.name == "fence":
            return {
                "rw, w": RELEASE,
                "r, rw": ACQUIRE,
                "rw, rw": FULL,
                "": FULL,
                "iorw, iorw": FULL,
            }.get(insn.operands)
        return None

    @staticmethod
    def access(insn):
        name = insn.name
        suffix = {"aqrl": {FULL}, "aq": {ACQUIRE}, "rl": {RELEASE}}.get(
            name.rpartition(".")[2], set()
        )
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
    def plain(insn):
        return re.sub(r"^((?:amo|lr|sc).*)\.(?:aqrl|aq|rl)$", r"\1", insn.name)

    @staticmethod
    def place(insn):
        match = re.search(r"(-?0x[0-9a-f]+|-?\d+)?\((\w+)\)", insn.operands)
        return (match.group(2), int(match.group(1) or "0", 0)) if match else (None, None)

    @staticmethod
    def address(insn):
        match = re.match(r"(\w+), (\w+), (0x[0-9a-f]+|\d+)$", insn.operands)
        if not match or insn.name != "addi":
            return None
        return match.group(1), match.group(2), int(match.group(3), 0)


class Powerpc64:
    name = "powerpc64"
    argument = "3"
    stack = ("1",)
    CALL = re.compile(r"b(?:ct|l)?rl$|bl$")
    RETURN = re.compile(r"blr$")
    JUMP = re.compile(r"b$|bctr$")
    BRANCH = re.compile(r"b(?:eq|ne|lt|ge|gt|le|so|ns|un|nu|c|f|t|dnz|dz)[-+]?$")

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
    def plain(insn):
        # All order is by fences.
        return insn.name

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
        if not match or insn.name != "addi":
            return None
        return match.group(1), match.group(2), int(match.group(3), 0)


ARCHES = {a.name: a for a in (Arm64, Riscv64, Powerpc64)}


# The ways through a function ------------------------------------------------


class Code:
    """The instructions of a function, with the ways that lead from one to another."""

    def __init__(self, arch, insns):
        self.arch, self.insns = arch, insns
        index = {insn.addr: i for i, insn in enumerate(insns)}
        self.next = [self._next(i, insn, index) for i, insn in enumerate(insns)]
        self.prev = [[] for _ in insns]
        for i, following in enumerate(self.next):
            for j in following:
                self.prev[j].append(i)

    def _next(self, i, insn, index):
        behind = [i + 1] if i + 1 < len(self.insns) else []
        if self.arch.RETURN.match(insn.name):
            return []
        jump = self.arch.JUMP.match(insn.name)
        if not jump and not self.arch.BRANCH.match(insn.name):
            return behind
        address = ADDRESS.search(insn.operands)
        to = index.get(int(address.group(1), 16)) if address and not insn.target else None
        return ([] if jump else behind) + ([to] if to is not None else [])

    def call(self, i):
        """The name of the function that an instruction calls or jumps to, if it does."""
        insn = self.insns[i]
        jump = self.arch.JUMP.match(insn.name)
        if not (jump or self.arch.CALL.match(insn.name)) or jump and self.next[i]:
            return None
        # A call by a pair of instructions has its relocation at the first.
        first = self.insns[i - 1] if i and self.insns[i - 1].name == "auipc" else insn
        return insn.target or first.target or insn.symbol or "(indirect)"

    def walk(self, starts, ways, judge):
        """True if judge() is, at the end of each way from starts.

        judge() says True or False where a way ends, and None where it goes on. A
        way on which nothing is found ends as False.
        """
        seen, todo = set(), list(starts)
        if not todo:
            return False
        while todo:
            i = todo.pop()
            if i in seen:
                continue
            seen.add(i)
            verdict = judge(i)
            if verdict is False:
                return False
            if verdict is None:
                if not ways[i]:
                    return False
                todo += ways[i]
        return True

    def reach(self, starts):
        """What can be reached from some instructions, without them at first."""
        seen, todo = set(), [j for i in starts for j in self.next[i]]
        while todo:
            i = todo.pop()
            if i not in seen:
                seen.add(i)
                todo += self.next[i]
        return seen

    def always_behind(self, first, last):
        """Whether each way to `last` leads over one of the instructions in `first`."""
        return self.walk(self.prev[last], self.prev, lambda i: True if i in first else None)


MOVE = re.compile(r"mv$|mr$|mov$|mtctr$")
NO_RESULT = re.compile(r"cmp|cmn|tst|ccm|mtctr$")


def pointer_loads(code, i):
    """Where the pointer that an instruction calls may have been loaded."""
    arch, found, seen = code.arch, set(), set()
    register = code.insns[i].operands.split(",")[0].strip() or "ctr"
    todo = [(j, register) for j in code.prev[i]]
    while todo:
        state = todo.pop()
        if state in seen:
            continue
        seen.add(state)
        j, register = state
        insn = code.insns[j]
        operands = [o.strip() for o in insn.operands.split(",")]
        kind = (arch.access(insn) or [None])[0]
        to = "ctr" if insn.name == "mtctr" else operands[0]
        if to == register and MOVE.match(insn.name):
            register = operands[-1]
        elif to == register and kind == "load":
            found.add(j)
            continue
        elif to == register and not kind and not (
            NO_RESULT.match(insn.name) or arch.BRANCH.match(insn.name) or code.call(j)
        ):
            continue
        todo += [(k, register) for k in code.prev[j]]
    return found


# Accesses -------------------------------------------------------------------


def fenced(code, i, ways, wanted, pair):
    """The fences that are met on each way from an access; none if one has no such.

    pair: the other half of an exclusive pair. The way that leads there is that of
    the next attempt.
    """
    met = []

    def judge(j):
        insn = code.insns[j]
        if code.arch.fence(insn) in wanted:
            met.append(insn)
            return True
        if j in pair:
            return True
        access = code.arch.access(insn)
        # The compiler may save a register anywhere.
        if access and code.arch.place(insn)[0] not in code.arch.stack or code.call(j):
            return False
        return None

    return met if code.walk(ways[i], ways, judge) else []


def exclusive(code, i):
    """The loads that belong to an exclusive store: the last ones before it."""
    found, seen, todo = [], set(), list(code.prev[i])
    while todo:
        j = todo.pop()
        if j in seen:
            continue
        seen.add(j)
        access = code.arch.access(code.insns[j])
        if access and access[0] == "exclusive":
            found.append(j)
        elif not (access and access[0] == "rmw"):
            todo += code.prev[j]
    return found


def address_of(arch, insns, at, register):
    """(base, offset) that a register holds, if it was computed nearby."""
    for insn in reversed(insns[max(0, at - 12) : at]):
        found = arch.address(insn)
        if found and found[0] == register:
            return found[1], found[2]
        if arch.CALL.match(insn.name):
            break
        if insn.operands.split(",")[0] == register and not arch.access(insn):
            break
    return register, 0


BEFORE, AFTER = (RELEASE, FULL, "lwsync"), (ACQUIRE, FULL, "lwsync")


def access_at(code, i):
    """The access that an instruction makes, with the order that it has."""
    arch, insn = code.arch, code.insns[i]
    kind, order = arch.access(insn)
    order = set(order)
    loads = exclusive(code, i) if kind == "rmw" and re.match(r"st|sc", insn.name) else []
    first = loads[0] if loads else i
    base, offset = arch.place(code.insns[first])
    if base and not offset:
        base, offset = address_of(arch, code.insns, first, base)
    for j in loads:
        order |= arch.access(code.insns[j])[1]
    before = after = []
    if kind != "load" and RELEASE not in order and FULL not in order:
        before = fenced(code, first, code.prev, BEFORE, {i} if loads else ())
        order |= {RELEASE} if before else set()
    if kind != "store" and ACQUIRE not in order and FULL not in order:
        after = fenced(code, i, code.next, AFTER, set(loads))
        order |= {ACQUIRE} if after else set()
    # An atomic operation between two barriers is one, too; and the kernel's
    # model is satisfied by a release in front of the second.
    strong = not before or all(arch.fence(f) == FULL for f in before)
    if kind == "rmw" and RELEASE in order and strong and after:
        if all(arch.fence(f) == FULL for f in after):
            order.add(FULL)
    insns = before[:1] + [code.insns[j] for j in loads[:1]] + [insn] + after[:1]
    carriers = before + [code.insns[j] for j in loads] + [insn] + after
    return Access(kind, insns, order, i, base=base, offset=offset, itself=insn, carriers=carriers)


def accesses(arch, insns, helpers=None):
    """The accesses, fences and calls of a function, in the order of addresses.

    helpers: {name: [Access]} of small functions that are looked into.
    """
    code = insns if isinstance(insns, Code) else Code(arch, insns)
    found = []
    for i, insn in enumerate(code.insns):
        fence = arch.fence(insn)
        access = arch.access(insn)
        name = code.call(i)
        if fence:
            order = {RELEASE, ACQUIRE} if fence == "lwsync" else {fence}
            found.append(Access("fence", [insn], order, i))
        elif name in (helpers or {}):
            found += called(code, i, name, helpers[name])
        elif name:
            found.append(Access("call", [insn], at=i, name=name))
        elif access and access[0] != "exclusive":
            found.append(access_at(code, i))
    return found


def called(code, i, name, inner):
    """What a helper does, as if it were done where it is called."""
    first = i - 1 if i and code.insns[i - 1].name == "auipc" else i
    base, offset = address_of(code.arch, code.insns, first, code.arch.argument)
    for a in inner:
        mine = a.base == code.arch.argument and a.offset is not None
        yield Access(
            a.kind,
            a.insns,
            a.order,
            i,
            name=a.name if a.kind == "call" else name,
            base=base if mine else None,
            offset=a.offset + offset if mine else None,
            itself=a.itself,
            carriers=a.carriers,
        )


def wanted(arch, functions):
    """The addresses that frames are wanted for."""
    for insns in functions.values():
        code = Code(arch, insns)
        for i, insn in enumerate(insns):
            if arch.fence(insn) or arch.access(insn) or code.call(i):
                if arch.place(insn)[0] not in arch.stack or code.call(i):
                    yield insn.addr


if __name__ == "__main__":
    with open(sys.argv[2], encoding="utf-8") as dis:
        for where in wanted(ARCHES[sys.argv[1]], parse(dis.read())):
            print(hex(where))
