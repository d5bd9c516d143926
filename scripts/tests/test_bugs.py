# SPDX-License-Identifier: GPL-2.0
"""The table of faults and the tests say the same."""

import os
import re
import unittest

PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TABLE = os.path.join(PROJECT, "Documentation/infiniband/rrxe-bugs.rst")
SELFTESTS = os.path.join(PROJECT, "tools/testing/selftests/rdma")


def text(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


class Bugs(unittest.TestCase):
    def rows(self):
        """{name: what tests it}"""
        return dict(re.findall(r"(?m)^([BR]\d\d)   (.{11})", text(TABLE)))

    def test_steps_are_in_the_table(self):
        script = text(os.path.join(SELFTESTS, "rrxe_bugs.sh"))
        steps = {n for names in re.findall(r'"([BR]\d\d(?:, [BR]\d\d)*): ', script) for n in names.split(", ")}
        table = {name for name, where in self.rows().items() if "bugs" in where}
        self.assertEqual(steps, table)

    def test_kunit_cases_exist(self):
        core = os.path.join(PROJECT, "drivers/infiniband/core")
        sources = "".join(text(os.path.join(core, f)) for f in os.listdir(core) if f.startswith("cq_kunit"))
        for case in re.findall(r"cqk_\w+", text(TABLE)):
            with self.subTest(case=case):
                self.assertIn(case, sources)

    def test_forks_name_theirs(self):
        script = text(os.path.join(SELFTESTS, "fork_child.sh"))
        for name, where in self.rows().items():
            if where.strip() == "fork":
                with self.subTest(name=name):
                    self.assertIn(name, script)


if __name__ == "__main__":
    unittest.main()
