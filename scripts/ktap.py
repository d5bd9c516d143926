# SPDX-License-Identifier: GPL-2.0
"""Read KTAP, also out of a kernel log and with subtests."""

import re

PASS, FAIL, SKIP, XFAIL = "pass", "fail", "skip", "xfail"

STAMP = re.compile(r"^(?:<\d+>)?\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? ?")
RESULT = re.compile(r"^( *)(not )?ok (\d+)(?: (?:- )?(.*))?$")
PLAN = re.compile(r"^( *)1\.\.(\d+)(?:\s+# (.*))?$")
VERSION = re.compile(r"^( *)(?:KTAP version|TAP version) \d+\s*$")
DIRECTIVE = re.compile(r"^(.*?)\s*(?<!\\)# (SKIP|TODO|XFAIL|TIMEOUT|ERROR)\b[: ]*(.*)$", re.I)


class Result:
    """One test without subtests."""

    def __init__(self, name, status, detail=""):
        self.name = name
        self.status = status
        self.detail = detail    # why skipped, or what the diagnostics say

    def __repr__(self):
        return f"Result({self.name!r}, {self.status!r}, {self.detail!r})"


class Level:
    """What was seen at one depth since the last result above it."""

    def __init__(self):
        self.plan = None
        self.skip_all = None
        self.count = 0
        self.children = []
        self.failed = False


def parse(text):
    """The leaves as a list of Result; what is missing counts as failed."""
    levels = [Level()]
    notes = []

    def close(level, prefix):
        """The results of a level that is over, checked against its plan."""
        found = level.children
        if level.plan is not None and level.count != level.plan:
            found.append(Result(prefix + "(plan)", FAIL,
                                f"{level.plan} tests planned, {level.count} results seen"))
        if level.skip_all is not None and not found:
            found.append(Result(prefix + "(all)", SKIP, level.skip_all))
        return found

    for line in text.split("\n"):
        line = STAMP.sub("", line).rstrip()
        match = RESULT.match(line)
        if match:
            depth = len(match.group(1)) // 4
            name, status, detail = match.group(4) or "", PASS, ""
            if match.group(2):
                status = FAIL
            directive = DIRECTIVE.match(name)
            if directive:
                name, word, detail = directive.groups()
                if word.upper() == "SKIP":
                    status = SKIP
                elif word.upper() in ("XFAIL", "TODO"):
                    status = XFAIL
                else:
                    status, detail = FAIL, f"{word} {detail}"
            name = name.strip() or f"test {match.group(3)}"
            while len(levels) <= depth:
                levels.append(Level())
            # Deeper levels than the next one had no result of their parent.
            children = []
            while len(levels) > depth + 1:
                level = levels.pop()
                children = close(level, "") + children
            if status == FAIL:
                detail = "\n".join(notes[-30:]) or detail
            if children:
                for child in children:
                    child.name = f"{name}.{child.name}"
                if status == FAIL and not any(c.status == FAIL for c in children):
                    children.append(Result(name, FAIL, detail))
                if status == SKIP and all(c.status == PASS for c in children):
                    children.append(Result(name, SKIP, detail))
                levels[depth].children += children
            else:
                levels[depth].children.append(Result(name, status, detail))
            levels[depth].count += 1
            notes = []
            continue
        match = PLAN.match(line)
        if match:
            depth = len(match.group(1)) // 4
            while len(levels) <= depth:
                levels.append(Level())
            level = levels[depth]
            if depth == 0 and level.plan is not None:
                # A second document in the same log.
                done = close(level, "")
                levels = [Level()]
                levels[0].children = done
                # What is done was counted; the new plan counts from here.
                levels[0].count = 0
                level = levels[0]
            level.plan = int(match.group(2))
            why = re.match(r"SKIP\b[: ]*(.*)", match.group(3) or "", re.I)
            if why:
                level.skip_all = why.group(1)
            continue
        if VERSION.match(line):
            continue
        if line.strip():
            notes.append(line.strip())
    while len(levels) > 1:
        level = levels.pop()
        levels[-1].children += close(level, "(unfinished).")
        if level.count:
            levels[-1].children.append(Result("(unfinished)", FAIL, "\n".join(notes[-30:])))
    return close(levels[0], "")


def write(results):
    """KTAP for results that come from no KTAP."""
    lines = ["KTAP version 1", f"1..{len(results)}"]
    for number, result in enumerate(results, 1):
        if result.status == FAIL:
            lines += ["# " + line for line in result.detail.split("\n") if line]
        line = f"{'not ok' if result.status == FAIL else 'ok'} {number} {result.name}"
        if result.status == SKIP:
            line += f" # SKIP {result.detail}"
        elif result.status == XFAIL:
            line += f" # XFAIL {result.detail}".replace("\n", " ")
        lines.append(line)
    return "\n".join(lines) + "\n"
