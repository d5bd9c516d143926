#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Make pictures and a page of what scripts/bench has measured.

The page needs nothing but itself: pictures, tables, and the summary of the last
run of the tests are in it.
"""

import html
import json
import os
import re
import subprocess
import sys
import time

SCRIPTS = os.path.dirname(os.path.abspath(__file__))
PROJECT = os.path.dirname(SCRIPTS)
CACHE = os.environ.get("RUST_RDMA_CACHE") or os.path.join(
    os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "rust-rdma")
# DEV_TYPE and the module's name.
DRIVERS = {"rrxe": "rrxe", "rxe": "rdma_rxe", "siw": "siw"}
CLOCKS = {"virtual": "Virtual time", "wall": "Wall time"}
TOPOLOGIES = {"veth": "two devices joined by veth", "device": "one device that talks to itself"}
# Of the pictures: what a panel shows, and how its cases are called before the size.
PANELS = {
    "latency": (("SEND", "lat"), ("WRITE, both poll", "lat_write"), ("READ", "lat_read"), ("UD SEND", "ud_lat"),
                ("SEND, both poll", "poll_lat")),
    "bandwidth": (("SEND", "send"), ("WRITE", "event_write"), ("READ", "read"), ("UD SEND", "ud"), ("WRITE, polled", "write"),
                  ("SEND, both poll", "poll_send"), ("READ, polled", "poll_read")),
}
# One size alone is no curve.
FEWEST = 2
SIZES = ("64", "4k", "64k", "1m")


class Fault(Exception):
    """There can be no report; the text is one line with what helps."""


def bytes_of(size):
    """Of the end of a case's name."""
    number, unit = re.fullmatch(r"(\d+)([km]?)", size).groups()
    return int(number) << {"": 0, "k": 10, "m": 20}[unit]


def place(rows, clock, topology):
    """{case: row} of one clock and topology."""
    return {row["case"]: row for row in rows if (row["clock"], row["topology"]) == (clock, topology)}


def places(rows):
    return [(clock, topology) for clock in CLOCKS for topology in TOPOLOGIES if place(rows, clock, topology)]


def drawn(row, size, driver):
    """The value of a driver in the unit of the picture: us or MiB/s."""
    value = row["median"][driver]
    return value * 1000 * bytes_of(size) / (1 << 20) if row["unit"] == "k/s" else value


def panel_of(cases, title, prefix):
    """What bench_plot draws of cases that differ by the size only; None if there are too few."""
    panel = {"title": title, "series": {}, "targets": [], "notes": []}
    for driver in DRIVERS:
        points, slowest = [], []
        for size in SIZES:
            row = cases.get(f"{prefix}_{size}")
            if row and driver in row["median"]:
                points.append([bytes_of(size), drawn(row, size, driver)])
                late = cases.get(f"{prefix}_{size}_p99")
                if late and driver in late["median"]:
                    slowest.append([bytes_of(size), late["median"][driver]])
        if points:
            panel["series"][driver] = {"points": points, "p99": slowest}
    if not panel["series"] or max(len(s["points"]) for s in panel["series"].values()) < FEWEST:
        return None
    for size in SIZES:
        row = cases.get(f"{prefix}_{size}")
        if not row or "rrxe" not in row["median"]:
            continue
        for target in row["targets"]:
            if target["than"] == "rxe":
                panel["targets"].append([bytes_of(size), drawn(row, size, "rxe") * target["target"], target["met"]])
        if "to_rxe" in row:
            panel["notes"].append([bytes_of(size), f"{row['to_rxe']:.2f}×"])
    return panel


def bar_of(row):
    """How many times as fast as others rrxe is, for bench_plot; None if nothing is known."""
    def faster(ratio):
        return ratio if row["more_is_better"] else 1 / ratio
    ratios = {other: faster(row["to_" + other]) for other in ("rxe", "siw") if row.get("to_" + other)}
    targets = {t["than"]: [faster(t["target"]), t["met"]] for t in row["targets"] if t["than"] in ratios}
    return {"case": row["case"], "ratios": ratios, "targets": targets} if ratios else None


def pictures(rows):
    """What bench_plot is to draw."""
    figures = []
    for clock, topology in places(rows):
        cases = place(rows, clock, topology)
        where = f"{CLOCKS[clock].lower()}, {TOPOLOGIES[topology]}"
        for kind, ylabel, hint in (("latency", "one way, µs", "lower is better"),
                                   ("bandwidth", "MiB/s", "higher is better")):
            panels = [p for p in (panel_of(cases, *what) for what in PANELS[kind]) if p]
            if panels:
                figures.append({"name": f"{clock}-{topology}-{kind}", "ylabel": ylabel, "panels": panels,
                                "title": f"{kind.capitalize()}, {where}\n{hint}; in blue: rrxe's ratio to rdma_rxe"})
        bars = [b for b in map(bar_of, cases.values()) if b and not b["case"].endswith("_p99")]
        if bars:
            figures.append({"name": f"{clock}-{topology}-ratios", "bars": bars, "title": f"rrxe against others: {where}"})
    return figures


def plot_command():
    """The program that draws, here or in the build root."""
    script = os.path.join(SCRIPTS, "bench_plot.py")
    if subprocess.run([sys.executable, "-c", "import matplotlib"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
        return [sys.executable, "-B", script]
    if not os.path.exists(os.path.join(CACHE, "root/k/plot.key")):
        raise Fault("there is no matplotlib; run scripts/setup-plot, or install python3-matplotlib")
    return [sys.executable, "-B", script, "--in-root"]


def draw(figures):
    """{name: SVG}"""
    done = subprocess.run(plot_command(), input=json.dumps({"figures": figures}), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stderr[-2000:])
        raise Fault(f"bench_plot.py: status {done.returncode}; see above, or run scripts/setup-plot again")
    return json.loads(done.stdout)


# The page --------------------------------------------------------------------

PAGE = """\
<!DOCTYPE html>
<!-- SPDX-License-Identifier: GPL-2.0 -->
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Speed of rrxe</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #24292f; background: #fff; max-width: 82rem; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ margin-bottom: .2rem; }} h2 {{ margin-top: 2.5rem; border-bottom: 1px solid #d0d7de; }}
table {{ border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .15rem .7rem; text-align: right; border-bottom: 1px solid #eaeef2; }}
th {{ border-bottom: 2px solid #d0d7de; }}
td:first-child, th:first-child, .text {{ text-align: left; }}
.met {{ color: {met}; }} .missed {{ color: {missed}; font-weight: 600; }} .best {{ font-weight: 600; }}
.facts td {{ text-align: left; }} .facts td:first-child {{ color: #57606a; }}
figure {{ margin: 1rem 0; overflow-x: auto; }} svg {{ max-width: 100%; height: auto; }}
.scroll {{ overflow-x: auto; }}
</style>
</head>
<body>
{body}
</body>
</html>
"""


def esc(text):
    return html.escape(str(text))


def tag(name, content, kind=""):
    return f'<{name} class="{kind}">{content}</{name}>' if kind else f"<{name}>{content}</{name}>"


def table(heads, rows, kind=""):
    """Cells are HTML, or (class, HTML)."""
    def line(name, cells):
        return tag("tr", "".join(tag(name, *c[::-1]) if isinstance(c, tuple) else tag(name, c) for c in cells)) + "\n"
    inner = (line("th", heads) if heads else "") + "".join(line("td", row) for row in rows)
    return tag("div", tag("table", "\n" + inner, kind), "scroll") + "\n"


def number(value):
    return f"{value:,.1f}" if value < 10000 else f"{value:,.0f}"


def target_text(target, more):
    name = DRIVERS.get(target["than"], target["than"])
    what = f"{'≥' if more else '≤'} {target['target']:.2f} of {name}"
    met = "met" if target["met"] else "missed"
    return tag("span", f"{what}: {met}", met)


def rows_table(rows, drivers):
    heads = ["case", "unit"] + [DRIVERS[d] for d in drivers]
    heads += ["rrxe to rdma_rxe", "rrxe to siw", ("text", "targets")]
    out = []
    for row in rows:
        best = (max if row["more_is_better"] else min)(row["median"].values())
        cells = [esc(row["case"]), esc(row["unit"])]
        for driver in drivers:
            value = row["median"].get(driver)
            cells.append("–" if value is None else ("best" if value == best else "", number(value)))
        for key in ("to_rxe", "to_siw"):
            cells.append(f"{row[key]:.2f}" if key in row else "–")
        cells.append(("text", ", ".join(target_text(t, row["more_is_better"]) for t in row["targets"])))
        out.append(cells)
    return table(heads, out)


def facts(doc):
    rows = doc["rows"]
    have = [("kernel", doc.get("kernel")), ("completion queues of ib_core", doc.get("core")),
            ("commit of the project", doc.get("commit")), ("measured", doc.get("date")), ("MTU", doc.get("mtu")),
            ("length of a measurement", f"{doc['scale']} %" if "scale" in doc else None)]
    for clock in CLOCKS:
        some = [row for row in rows if row["clock"] == clock]
        if some:
            rounds = max(len(v) for row in some for v in row["values"].values())
            have.append((CLOCKS[clock].lower(), f"{rounds} round{'s' * (rounds > 1)}; "
                         + ("1 CPU, whose instructions are the clock: 10⁹ a second" if clock == "virtual" else
                            f"{doc.get('cpus', '?')} CPUs")))
    return table([], [[esc(k), esc(v)] for k, v in have if v is not None], "facts")


def judged(rows):
    """What is met, in words."""
    out = []
    for clock, topology in places(rows):
        targets = [t["met"] for row in place(rows, clock, topology).values() for t in row["targets"]]
        if targets:
            out.append(f"<li>{CLOCKS[clock]}, {TOPOLOGIES[topology]}: {sum(targets)} of {len(targets)} targets are met</li>")
    return "<ul>\n" + "\n".join(out) + "\n</ul>\n" if out else ""


def tests(path):
    """The summary of the last run of scripts/check."""
    try:
        with open(path, encoding="utf-8") as f:
            summary = json.load(f)
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(os.path.getmtime(path)))
        total = [f"{summary[key]} {key}" for key in ("passed", "failed", "skipped")]
        suites = [[esc(s["name"])] + [("missed" if key == "failed" and s[key] else "", str(s[key]))
                                      for key in ("passed", "failed", "skipped")]
                  + ["%d:%02d" % divmod(int(s["seconds"]), 60)] for s in summary["suites"]]
        failed = [f"{s['name']}: {t['name']}" for s in summary["suites"] for t in s.get("tests", [])
                  if t.get("status") == "fail"]
    except FileNotFoundError:
        return "<p>The tests have not been run here; <code>make check</code> does.</p>\n"
    except (ValueError, KeyError, TypeError):
        raise Fault(f"{path} is not what scripts/check writes; remove it, or run make check again")
    text = f"<p>Of {when}: <b>{esc(', '.join(total))}</b>.</p>\n"
    if failed:
        text += "<ul>\n" + "".join(f'<li class="missed">{esc(name)}</li>\n' for name in failed) + "</ul>\n"
    return text + table(["suite", "passed", "failed", "skipped", "time"], suites)


HOW = """\
<p>Each virtual machine runs one driver on one topology, and the drivers take turns: the same kernel, the same MTU, the
same completion queue core. What moves the data is unmodified perftest; <code>rrxe_write</code> of the project for
<code>event_write</code>, which perftest does not have; fio for NVMe over Fabrics; and Open MPI over libfabric's verbs
provider, from Python. Both ends sleep until there is an event, but for perftest's WRITE, which has none, what is named
<code>poll_</code>, and MPI, whose ranks yield the CPU. Latencies are those of one way, of NVMe those of a request, and of
reductions those of all of it. For latencies a ratio below 1 is good, for all others one above 1.</p>
"""


def page(doc, svgs, summary):
    body = ["<h1>Speed of rrxe</h1>\n<p>The Soft-RoCE driver in Rust against rdma_rxe and siw, as "
            "<code>make bench</code> measured it.</p>\n", facts(doc), judged(doc["rows"]), HOW]
    for clock, topology in places(doc["rows"]):
        body.append(f"<h2>{CLOCKS[clock]}, {TOPOLOGIES[topology]}</h2>\n")
        for kind in ("latency", "bandwidth", "ratios"):
            svg = svgs.get(f"{clock}-{topology}-{kind}")
            if svg:
                # In a page there is no XML declaration.
                body.append(f"<figure>\n{svg[svg.index('<svg'):]}</figure>\n")
        cases = place(doc["rows"], clock, topology).values()
        body.append(rows_table(cases, [d for d in DRIVERS if any(d in row["median"] for row in cases)]))
    body += ["<h2>Tests</h2>\n", tests(summary)]
    return PAGE.format(body="".join(body), met="#1a7f37", missed="#cf222e")


def load(path):
    """What scripts/bench has written."""
    try:
        with open(path, encoding="utf-8") as f:
            doc = json.load(f)
        # Whatever is used without a look.
        for row in doc["rows"]:
            for key in ("clock", "topology", "case", "unit", "more_is_better", "values", "median", "targets"):
                row[key]  # pylint: disable=pointless-statement
        if not doc["rows"]:
            raise Fault(f"{path} has no figures; run scripts/bench")
        return doc
    except OSError as e:
        raise Fault(f"{path}: {e.strerror}; run scripts/bench first")
    except (ValueError, KeyError, TypeError):
        raise Fault(f"{path} is not what scripts/bench writes; run scripts/bench again")


def report(doc, directory, summary=os.path.join(PROJECT, "results/summary.json")):
    """Pictures and page in a directory; returns the page's name."""
    svgs = draw(pictures(doc["rows"]))
    text = page(doc, svgs, summary)
    os.makedirs(directory, exist_ok=True)
    for name, svg in svgs.items():
        with open(os.path.join(directory, name + ".svg"), "w", encoding="utf-8") as f:
            f.write(svg)
    path = os.path.join(directory, "index.html")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path
