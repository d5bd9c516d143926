# SPDX-License-Identifier: GPL-2.0
"""Change the drivers of a kernel tree by semantic patches.

The project holds no text of the kernel, so what is to be changed in a driver
is written down as rules of Coccinelle: scripts/coccinelle/rdma, which goes
into the tree, for what all drivers have in common, and scripts/drivers for
what concerns one.  This knows the rules and runs them on copies.
"""

import difflib
import hashlib
import os
import re
import shutil
import subprocess
import tempfile

SCRIPTS = os.path.dirname(os.path.abspath(__file__))
# The rule for all drivers and where it is applied.  cq.c in core is left as it
# is: cq_rust is what replaces it, and the tests compare the two.
COMMON = "scripts/coccinelle/rdma/cq_completion.cocci"
TREES = ("drivers/infiniband/hw", "drivers/infiniband/sw")
RULES = "scripts/drivers"


class Fault(Exception):
    """Something that the user can put right; the text is one line."""


class Rule:
    """A semantic patch with what its first lines say about it."""

    def __init__(self, path):
        self.path = path
        self.name = os.path.basename(path)
        with open(path, encoding="utf-8") as f:
            self.text = f.read()
        self.subject = "".join(re.findall(r"(?m)^// Subject: (.*)$", self.text)[:1])
        self.files = [
            p for line in re.findall(r"(?m)^// Files: (.*)$", self.text) for p in line.split()
        ]
        # The message: what follows up to the first line that is no comment.
        head = re.split(r"(?m)^(?!//)", self.text, maxsplit=1)[0]
        lines = [line[2:].removeprefix(" ") for line in head.split("\n") if line.startswith("//")]
        lines = [line for line in lines if not re.match(r"SPDX-|Subject: |Files: ", line)]
        self.body = "\n".join(lines).strip()
        if not self.subject or not self.files or not self.body:
            raise Fault(f"{path}: a rule begins with '// Subject:', '// Files:' and a message")


def rules(project):
    where = os.path.join(project, RULES)
    names = (
        sorted(n for n in os.listdir(where) if n.endswith(".cocci")) if os.path.isdir(where) else []
    )
    return [Rule(os.path.join(where, name)) for name in names]


def key(project):
    """Changes when what the rules say may have changed."""
    found = hashlib.sha256()
    paths = [os.path.join(project, COMMON), os.path.join(project, RULES, "macros.h")]
    for path in paths + [r.path for r in rules(project)]:
        with open(path, "rb") as f:
            found.update(f.read())
    return found.hexdigest()


def callers(tree):
    """The drivers' files in which the handler of a CQ is named."""
    found = []
    for top in TREES:
        for where, _, names in os.walk(os.path.join(tree, top)):
            for name in names:
                path = os.path.join(where, name)
                if name.endswith((".c", ".h")) and not os.path.islink(path):
                    with open(path, "rb") as f:
                        if b"comp_handler" in f.read():
                            found.append(os.path.relpath(path, tree))
    return sorted(found)


def targets(project, tree):
    return sorted(set(callers(tree)) | {p for r in rules(project) for p in r.files})


def spatch(work, project, arguments):
    """Run spatch in a directory, with the one of this machine or of the root."""
    own = os.environ.get("SPATCH") or shutil.which("spatch")
    if own:
        command = [own] + [a.replace("@PROJECT@", project) for a in arguments]
        done = subprocess.run(
            command,
            cwd=work,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            check=False,
        )
    else:
        command = [
            os.path.join(SCRIPTS, "inroot"),
            "-b",
            f"{work}:/k/convert",
            "-b",
            f"{project}:/k/rules",
            "-w",
            "/k/convert",
            "spatch",
        ]
        command += [a.replace("@PROJECT@", "/k/rules") for a in arguments]
        try:
            done = subprocess.run(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                check=False,
            )
        except OSError as e:
            raise Fault(f"scripts/inroot: {e.strerror}; install coccinelle, or set SPATCH")
        if "there is no build root" in done.stderr or "needs root" in done.stderr:
            raise Fault(
                "there is no spatch; install coccinelle, set SPATCH, or run scripts/setup-root"
            )
    if done.returncode or re.search(
        r"(?m)parse error|^Fatal error|exn while in", done.stderr + done.stdout
    ):
        text = (done.stderr + done.stdout).strip().split("\n")
        raise Fault("spatch failed: " + " | ".join(text[-6:]))
    return done.stdout


# Function names that are made by macros have to be known to find them.
MACROS = ["--macro-file", f"@PROJECT@/{RULES}/macros.h"]
QUIET = ["--no-includes", "--include-headers", "--very-quiet"]


def apply(work, project, rule_path, files, *options):
    rule = "@PROJECT@/" + os.path.relpath(rule_path, project)
    return spatch(
        work, project, QUIET + MACROS + ["--in-place", "--cocci-file", rule] + list(options) + files
    )


def apply_report(tree, project, files):
    """What report mode says about files of a tree; they are not changed."""
    return spatch(
        tree,
        project,
        QUIET + MACROS + ["--cocci-file", f"@PROJECT@/{COMMON}", "-D", "report"] + files,
    )


def steps(project, work, common_files):
    """Change the files in a directory; yield (rule or None, changed files) after each step."""

    def contents(paths):
        found = {}
        for path in paths:
            with open(os.path.join(work, path), "rb") as f:
                found[path] = f.read()
        return found

    before = contents(common_files)
    apply(work, project, os.path.join(project, COMMON), common_files, "-D", "patch")
    yield None, sorted(p for p, data in contents(common_files).items() if data != before[p])
    for rule in rules(project):
        before = contents(rule.files)
        apply(work, project, rule.path, rule.files)
        after = contents(rule.files)
        still = [p for p in rule.files if after[p] == before[p]]
        if still:
            raise Fault(
                f"{rule.name} does not fit {still[0]} any more; nothing was changed; "
                "use a 7.3 tree without other changes there, or adapt the rule"
            )
        yield rule, rule.files


def convert(project, sources):
    """{path: content} after all rules, of {path: content} before."""
    missing = sorted({p for r in rules(project) for p in r.files} - set(sources))
    if missing:
        raise Fault(
            f"{missing[0]} is missing and {RULES} wants to change it; nothing was changed; "
            "use a complete 7.3 tree"
        )
    # Not under /tmp of the root: the directory is mounted there as another.
    with tempfile.TemporaryDirectory(prefix="rust-rdma-convert-") as work:
        for path, data in sources.items():
            os.makedirs(os.path.join(work, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(work, path), "wb") as f:
                f.write(data)
        common = sorted(
            p
            for p in sources
            if p.startswith(tuple(t + "/" for t in TREES)) and b"comp_handler" in sources[p]
        )
        for _ in steps(project, work, common):
            pass
        result = {}
        for path in sources:
            with open(os.path.join(work, path), "rb") as f:
                result[path] = f.read()
        return result


# What the manifest of a tree remembers of a converted file.


def digest(data):
    return hashlib.sha256(data).hexdigest()


def lines(data):
    return data.decode("utf-8", "surrogateescape").splitlines(keepends=True)


def record(before, after):
    """What is needed to get from one to the other and back."""
    old, new = lines(before), lines(after)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    hunks = [
        {"at": j1, "new": new[j1:j2], "old": old[i1:i2]}
        for tag, i1, i2, j1, j2 in matcher.get_opcodes()
        if tag != "equal"
    ]
    return {"from": digest(before), "to": digest(after), "hunks": hunks}


def back(entry, data):
    """The file as it was before, or None if it is not what was made then."""
    if digest(data) != entry["to"]:
        return None
    text = lines(data)
    for hunk in reversed(entry["hunks"]):
        text[hunk["at"] : hunk["at"] + len(hunk["new"])] = hunk["old"]
    data = "".join(text).encode("utf-8", "surrogateescape")
    return data if digest(data) == entry["from"] else None


def again(entry, data):
    """The file as it was made then of the same file, or None."""
    if digest(data) != entry["from"]:
        return None
    text = lines(data)
    for hunk in entry["hunks"]:
        at = hunk["at"]
        text[at : at + len(hunk["old"])] = hunk["new"]
    data = "".join(text).encode("utf-8", "surrogateescape")
    return data if digest(data) == entry["to"] else None
