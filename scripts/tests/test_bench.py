# SPDX-License-Identifier: GPL-2.0
"""Tests of what scripts/bench makes of the figures of a VM, and of its page."""

import argparse
import contextlib
import html.parser
import importlib.machinery
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock

SCRIPTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
loader = importlib.machinery.SourceFileLoader("bench", os.path.join(SCRIPTS, "bench"))
bench = importlib.util.module_from_spec(importlib.util.spec_from_loader("bench", loader))
loader.exec_module(bench)
report = bench.bench_report

GUEST = """\
TAP version 13\r
1..3\r
# rrxe, 7.3.4-rust-rdma, cq core rust, 1 CPUs, MTU 9000\r
# rrxe_bench: dev=rrxe topology=veth case=lat_64 bytes=64 count=300 us=28.50 p99=29.90\r
ok 1 rrxe_bench: lat_64\r
# rrxe_bench: dev=rrxe topology=veth case=send_64 bytes=64 count=2400 mib=6.80 mps=0.1118\r
ok 2 rrxe_bench: send_64\r
# rrxe_bench: dev=rrxe topology=veth case=send_1m bytes=1048576 count=12 mib=518.60 mps=0.000519\r
ok 3 rrxe_bench: send_1m\r
"""
ARGS = argparse.Namespace(core="rust", timeout=5, cpus=2, scale=30, case=[], full=False, topology=["veth"])


def vm(out, status=0):
    """Instead of a VM."""
    return unittest.mock.patch.object(bench.subprocess, "run", return_value=types.SimpleNamespace(
        stdout=out, stderr="what went wrong", returncode=status))


def boot(out, status=0, driver="rrxe", topology="veth", args=ARGS):
    with vm(out, status), contextlib.redirect_stderr(io.StringIO()) as err:
        return (*bench.boot(driver, topology, True, args), err.getvalue())


def row(case, rrxe, rxe=None, siw=None, clock="virtual", topology="veth"):
    _, unit, more = bench.figure_of(case)
    median = {d: v for d, v in (("rrxe", rrxe), ("rxe", rxe), ("siw", siw)) if v is not None}
    return {"clock": clock, "topology": topology, "case": case, "unit": unit, "more_is_better": more,
            "values": {d: [v] for d, v in median.items()}, "median": median}


def document(*rows):
    return {"commit": "abc123", "date": "2026-01-01 00:00", "kernel": "7.3.4", "mtu": 9000, "core": "rust", "scale": 30,
            "cpus": 2, "rows": bench.judge(list(rows))}


class Figures(unittest.TestCase):
    def test_parsing(self):
        found, guest, _ = boot(GUEST)
        self.assertEqual(found, {"lat_64": 28.5, "lat_64_p99": 29.9, "send_64": 111.8, "send_1m": 518.6})
        self.assertEqual(guest, {"kernel": "7.3.4-rust-rdma", "mtu": 9000})

    def test_what_is_not_perftest(self):
        line = "# rrxe_bench: dev=rrxe topology=veth case={} bytes=4096 count=5 {}\r\n"
        found, _, _ = boot(GUEST + line.format("nvme_rand_4k", "mib=79.45 mps=0.020338 median=741 p99=1204")
                           + line.format("nvme_seq_128k", "mib=576.88 mps=0.004615 median=1515 p99=2867")
                           + line.format("mpi_reduce_lat_1m", "us=8977.11 p99=9910.11")
                           + line.format("qps256_64", "mib=5.70 mps=0.093401"))
        self.assertEqual({c: round(found[c], 3) for c in ("nvme_rand_4k", "nvme_rand_4k_p99", "nvme_seq_128k", "mpi_reduce_lat_1m")},
                         {"nvme_rand_4k": 20.338, "nvme_rand_4k_p99": 1204, "nvme_seq_128k": 576.88,
                          "mpi_reduce_lat_1m": 8977.11})
        self.assertAlmostEqual(found["qps256_64"], 93.401)
        self.assertEqual([bench.figure_of(c)[1] for c in ("nvme_rand_4k", "nvme_seq_128k", "nvme_rand_4k_p99", "qps256_64",
                                                          "ud_lat_4k", "event_write_64", "event_write_4k")],
                         ["k/s", "MiB/s", "us", "k/s", "us", "k/s", "MiB/s"])

    def test_all_skipped_is_no_fault(self):
        found, _, _ = boot("# siw, 7.3.4, cq core rust, 1 CPUs, MTU 9000\r\nok 1 rrxe_bench: ud_64 # SKIP no datagrams\r\n",
                           0, "siw")
        self.assertEqual(found, {})

    def test_a_case_that_failed_is_told(self):
        _, _, err = boot(GUEST + "not ok 4 rrxe_bench: read_4k\r\n", 1)
        self.assertIn("bench: rrxe, veth: not ok 4 rrxe_bench: read_4k\n", err)

    def test_another_driver_or_place_than_wanted(self):
        for driver, topology in (("siw", "veth"), ("rrxe", "device")):
            with self.assertRaisesRegex(bench.Fault, "was to run"):
                boot(GUEST, 0, driver, topology)

    def test_another_core_than_wanted(self):
        with self.assertRaisesRegex(bench.Fault, "the c core and runs rust"):
            boot(GUEST, args=argparse.Namespace(**{**vars(ARGS), "core": "c"}))

    def test_no_figures_or_a_bad_end(self):
        for out, status in (("", 0), (GUEST, 99), ("", 125)):
            with self.assertRaisesRegex(bench.Fault, f"status {status}$"):
                boot(out, status)


class Targets(unittest.TestCase):
    def target(self, than, *rows):
        found = [t for t in bench.judge(list(rows))[0]["targets"] if t["than"] == than]
        self.assertLess(len(found), 2)
        return found[0] if found else None

    def test_more_is_better(self):
        self.assertIs(self.target("rxe", row("send_1m", 200.0, 100.0))["met"], True)
        self.assertIs(self.target("rxe", row("send_1m", 199.0, 100.0))["met"], False)

    def test_less_is_better(self):
        self.assertIs(self.target("rxe", row("lat_64", 10.0, 20.0))["met"], True)
        self.assertIs(self.target("rxe", row("lat_64", 10.1, 20.0))["met"], False)

    def test_by_clock_and_place(self):
        self.assertEqual(self.target("rxe", row("lat_64", 1, 1))["target"], 0.5)
        self.assertEqual(self.target("rxe", row("lat_64", 1, 1, clock="wall"))["target"], 0.6)
        self.assertIsNone(self.target("rxe", row("lat_64", 1, 1, topology="device")))
        self.assertEqual(self.target("rxe", row("write_1m", 1, 1, topology="device"))["target"], 5.0)

    def test_siw(self):
        for case, target in (("lat_64", 1.0), ("lat_64k", 1.0), ("send_64", 1.0), ("send_64k", 1.2), ("read_1m", 1.2)):
            self.assertEqual(self.target("siw", row(case, 1, None, 1))["target"], target)
        self.assertIsNone(self.target("siw", row("lat_64_p99", 1, None, 1)))

    def test_own_cases(self):
        some = self.target("send_64", row("qps256_64", 90.0), row("send_64", 100.0))
        self.assertEqual((some["ratio"], some["met"]), (0.9, True))
        # Only of the same place.
        self.assertIsNone(self.target("send_64", row("qps256_64", 90.0), row("send_64", 100.0, topology="device")))

    def test_nvme(self):
        for value, met in ((150.0, True), (149.0, False)):
            some = self.target("rxe", row("nvme_rand_4k", value, 100.0, topology="device"))
            self.assertEqual((some["target"], some["met"]), (1.5, met))
        self.assertEqual(self.target("siw", row("nvme_seq_128k", 1, None, 1, topology="device"))["target"], 1.2)

    def test_nobody_to_compare_with(self):
        self.assertEqual(bench.judge([row("send_1m", 200.0)])[0]["targets"], [])
        self.assertEqual(bench.judge([row("send_1m", None, 200.0)])[0]["targets"], [])


class Balance(html.parser.HTMLParser):
    """What is opened is closed."""

    def __init__(self):
        super().__init__()
        self.open, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        self.text += data


class Page(unittest.TestCase):
    def page(self, doc, summary=None, svgs=None):
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "summary.json")
            if summary is not None:
                with open(path, "w", encoding="utf-8") as f:
                    f.write(summary)
            text = report.page(doc, svgs or {}, path)
        parser = Balance()
        parser.feed(text)
        self.assertEqual(parser.open, [])
        return text, parser.text

    def test_contents(self):
        svg = '<?xml version="1.0"?>\n<svg><text>a picture</text></svg>'
        text, shown = self.page(document(row("send_64", 112.3, 57.1, 31.8)), svgs={"virtual-veth-ratios": svg})
        for word in ("7.3.4", "abc123", "9000", "112.3", "57.1", "1.97", "a picture", "make check",
                     "≥ 2.50 of rdma_rxe: missed", "≥ 1.00 of siw: met", "1 of 2 targets are met"):
            self.assertIn(word, shown)
        self.assertNotIn("<?xml", text)
        # It needs nothing but itself.
        self.assertIsNone(re.search(r"(?:src|href)=", text))

    def test_what_was_not_measured(self):
        _, shown = self.page(document(row("ud_64", 119.3, 79.8)))
        self.assertIn("–", shown)

    def test_tests(self):
        summary = {"passed": 5, "failed": 1, "skipped": 2, "suites": [
            {"name": "style", "seconds": 61.0, "passed": 5, "failed": 1, "skipped": 2,
             "tests": [{"name": "a <b> & c", "status": "fail"}, {"name": "well done", "status": "pass"}]}]}
        text, shown = self.page(document(row("send_64", 1)), json.dumps(summary))
        self.assertIn("5 passed, 1 failed, 2 skipped", shown)
        self.assertIn("style: a <b> & c", shown)
        self.assertIn("&lt;b&gt;", text)
        self.assertIn("1:01", shown)
        self.assertNotIn("well done", shown)

    def test_bad_files(self):
        with self.assertRaisesRegex(report.Fault, "make check again"):
            self.page(document(row("send_64", 1)), "{}")
        with self.assertRaisesRegex(report.Fault, "run scripts/bench first"):
            report.load("/nonexistent")
        for text in ("", "{}", '{"rows": [{}]}'):
            with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
                f.write(text)
                f.flush()
                with self.assertRaisesRegex(report.Fault, "run scripts/bench again"):
                    report.load(f.name)


class Pictures(unittest.TestCase):
    def test_units_of_curves(self):
        figures = {f["name"]: f for f in report.pictures(document(
            row("send_64", 1024.0, 512.0), row("send_1m", 500.0, 250.0, 100.0))["rows"])}
        panel, = figures["virtual-veth-bandwidth"]["panels"]
        self.assertEqual(panel["series"]["rrxe"]["points"], [[64, 62.5], [1 << 20, 500.0]])
        self.assertEqual(panel["series"]["siw"]["points"], [[1 << 20, 100.0]])
        # Where rrxe has to be.
        self.assertEqual(panel["targets"], [[64, 78.125, False], [1 << 20, 500.0, True]])

    def test_slowest(self):
        figures = {f["name"]: f for f in report.pictures(document(
            row("lat_64", 10.0), row("lat_64_p99", 12.0), row("lat_4k", 20.0))["rows"])}
        panel, = figures["virtual-veth-latency"]["panels"]
        self.assertEqual(panel["series"]["rrxe"], {"points": [[64, 10.0], [4096, 20.0]], "p99": [[64, 12.0]]})

    def test_one_size_is_no_curve(self):
        self.assertEqual(report.pictures(document(row("send_64", 1.0))["rows"]), [])

    def test_bars_say_how_many_times_as_fast(self):
        figure, = report.pictures(document(row("lat_64", 10.0, 20.0, 5.0))["rows"])
        self.assertEqual(figure["bars"], [{"case": "lat_64", "ratios": {"rxe": 2.0, "siw": 0.5},
                                           "targets": {"rxe": [2.0, True], "siw": [1.0, False]}}])

    def test_no_matplotlib(self):
        absent = types.SimpleNamespace(returncode=1)
        with unittest.mock.patch.object(report.subprocess, "run", return_value=absent), \
                unittest.mock.patch.object(report, "CACHE", "/nonexistent"):
            with self.assertRaisesRegex(report.Fault, "run scripts/setup-plot"):
                report.plot_command()

    def test_drawing(self):
        doc = document(row("send_64", 112.3, 57.1, 31.8), row("send_1m", 516.3, 254.6, 155.5),
                       row("lat_64", 28.5, 39.3, 17.8), row("lat_64_p99", 30.0, 44.0, 19.0), row("lat_4k", 35.1, 43.0))
        try:
            report.plot_command()
        except report.Fault:
            self.skipTest("no matplotlib")
        if os.geteuid():
            self.skipTest("the build root needs root")
        svgs = report.draw(report.pictures(doc["rows"]))
        self.assertEqual(sorted(svgs), ["virtual-veth-bandwidth", "virtual-veth-latency", "virtual-veth-ratios"])
        for svg in svgs.values():
            for word in ("rdma_rxe", "siw", "1.97" if "send_64" in svg else "virtual time"):
                self.assertIn(word, svg)


class Gate(unittest.TestCase):
    def baseline(self, doc, tolerance=5.0):
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "baseline.json")
            bench.record(doc, path, tolerance)
            return bench.load_baseline(path)

    def compare(self, before, after, tolerance=5.0, wanted=lambda topology, case: True):
        lines, good = bench.compare(self.baseline(document(*before)), document(*after), tolerance, wanted)
        return lines[:-1], lines[-1], good

    def test_record_and_load(self):
        baseline = self.baseline(document(row("lat_64", 28.512, 39.0), row("lat_64_p99", 30.0), row("send_64", None, 5.0),
                                          row("send_64", 111.8, topology="device"), row("send_4k", 1.0, clock="wall")), 3.0)
        self.assertEqual(baseline["flat"], {("veth", "lat_64"): (28.51, "us", 0.0), ("device", "send_64"): (111.8, "k/s", 0.0)})
        self.assertEqual([baseline[k] for k in ("tolerance", "scale", "core", "kernel")], [3.0, 30, "rust", "7.3.4"])

    def test_nothing_to_record(self):
        with self.assertRaisesRegex(bench.Fault, "--clock virtual"):
            self.baseline(document(row("send_64", 1.0, clock="wall")))

    def test_what_is_within_the_tolerance(self):
        lines, last, good = self.compare([row("send_64", 100.0), row("lat_64", 100.0)],
                                         [row("send_64", 96.0), row("lat_64", 104.0)])
        self.assertEqual((lines, good), ([], True))
        self.assertIn("2 cases: 0 slower, 0 faster, 0 not measured; tolerance 5 %", last)

    def test_slower(self):
        for case, value, unit in (("send_64", 80.0, "k/s"), ("lat_64", 125.0, "us"), ("send_1m", 80.0, "MiB/s")):
            lines, last, good = self.compare([row(case, 100.0)], [row(case, value)])
            self.assertEqual(lines, [f"veth {case}: 100.0 -> {value} {unit}, takes 25.0 % more time: SLOWER"])
            self.assertIn("1 slower", last)
            self.assertIs(good, False)

    def test_faster(self):
        lines, _, good = self.compare([row("send_64", 100.0), row("lat_64", 100.0)],
                                      [row("send_64", 125.0), row("lat_64", 80.0)])
        self.assertEqual([line.split(", ")[1] for line in lines], ["takes 20.0 % less time: faster"] * 2)
        self.assertIs(good, True)

    def test_spread_when_recorded_is_allowed_too(self):
        before = row("send_64", 100.0)
        before["values"]["rrxe"] = [98.0, 100.0, 108.0]
        for value, good in ((87.5, True), (86.5, False)):
            self.assertIs(self.compare([before], [row("send_64", value)])[2], good)

    def test_what_is_slower_is_measured_again(self):
        baseline, doc = self.baseline(document(row("send_64", 100.0), row("lat_64", 10.0))), document(
            row("send_64", 80.0), row("lat_64", 5.0))
        with unittest.mock.patch.object(bench, "boot", side_effect=[({"send_64": 98.0}, {}), ({"send_64": 99.0}, {})]) as boots, \
                contextlib.redirect_stderr(io.StringIO()):
            bench.look_again(baseline, doc, 5.0, ARGS)
        self.assertEqual([c.args[3].case for c in boots.call_args_list], [["send_64"]] * 2)
        self.assertEqual(bench.gate_figures(doc)["veth", "send_64"][0], 98.0)

    def test_other_cases(self):
        lines, _, good = self.compare([row("send_64", 1.0)], [row("send_4k", 1.0)])
        self.assertEqual(lines, ["veth send_64: was not measured", "not in the baseline: veth send_4k"])
        self.assertIs(good, False)

    def test_only_what_is_wanted(self):
        before = [row("send_64", 1.0), row("lat_64", 1.0), row("lat_64", 1.0, topology="device")]
        lines, last, good = self.compare(before, [row("lat_64", 1.0)], 5.0, lambda *place: place == ("veth", "lat_64"))
        self.assertEqual((lines, good), ([], True))
        self.assertIn("1 cases", last)
        with self.assertRaisesRegex(bench.Fault, "none of these cases"):
            self.compare(before, before, 5.0, lambda topology, case: case == "read_1m")

    def test_bad_baselines(self):
        with self.assertRaisesRegex(bench.Fault, "scripts/bench --record writes it"):
            bench.load_baseline("/nonexistent")
        for text in ("", "[]", "{}", '{"figures": {"veth": {"a": [1, "us"]}}, "tolerance": 5, "scale": 30, "core": "rust"}'):
            with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
                f.write(text)
                f.flush()
                with self.assertRaisesRegex(bench.Fault, "record it again"):
                    bench.load_baseline(f.name)

    def test_the_one_of_the_project(self):
        baseline = bench.load_baseline(bench.BASELINE)
        self.assertEqual(set(baseline["figures"]), {"veth", "device"})
        for cases in baseline["figures"].values():
            self.assertIn("send_64", cases)

    def test_options(self):
        for words in (["--gate", "--record"], ["--gate", "--scale", "5"], ["--gate", "--driver", "siw"],
                      ["--record", "--clock", "wall"], ["--tolerance", "5"], ["--gate", "--tolerance", "-1"],
                      ["--record", "send_64"]):
            with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit) as e:
                bench.arguments(words)
            self.assertEqual(e.exception.code, 2)
        args = bench.arguments(["--record"])
        self.assertEqual((args.scale, args.core, args.driver, args.clock), (30, "rust", ["rrxe"], ["virtual"]))


class Command(unittest.TestCase):
    def run_bench(self, *args):
        done = subprocess.run([sys.executable, "-B", os.path.join(SCRIPTS, "bench"), *args], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def test_report_of_nothing(self):
        self.assertEqual(self.run_bench("--report", "/nonexistent"), (
            2, "", "bench: error: /nonexistent: No such file or directory; run scripts/bench first\n"))

    def test_gate_on_a_file(self):
        with tempfile.TemporaryDirectory() as d:
            base, now = os.path.join(d, "base.json"), os.path.join(d, "now.json")
            for path, value in ((base, 100.0), (now, 50.0)):
                with open(path, "w", encoding="utf-8") as f:
                    json.dump(document(row("send_1m", value)), f)
            baseline = ["--baseline", os.path.join(d, "baseline.json")]
            self.assertEqual(self.run_bench("--gate", "--report", now, *baseline)[0], 2)
            self.assertEqual(self.run_bench("--record", "--report", base, *baseline)[0], 0)
            self.assertEqual(self.run_bench("--gate", "--report", base, *baseline)[0], 0)
            status, out, _ = self.run_bench("--gate", "--report", now, *baseline)
            self.assertEqual(status, 1)
            self.assertIn("gate: veth send_1m: 100.0 -> 50.0 MiB/s, takes 100.0 % more time: SLOWER\n", out)
            self.assertEqual(self.run_bench("--gate", "--tolerance", "99", "--report", now, *baseline)[0], 1)
            with open(now, "w", encoding="utf-8") as f:
                json.dump({**document(row("send_1m", 100.0)), "scale": 99}, f)
            status, _, err = self.run_bench("--gate", "--report", now, *baseline)
            self.assertEqual(status, 2)
            self.assertIn("run scripts/bench --gate alone", err)

    def test_status_says_whether_targets_are_met(self):
        for value, status in ((300.0, 0), (100.0, 1)):
            with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
                json.dump(document(row("send_1m", value, 100.0)), f)
                f.flush()
                self.assertEqual(self.run_bench("--no-report", "--report", f.name)[0], status)


if __name__ == "__main__":
    unittest.main()
