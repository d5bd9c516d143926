#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Draw what scripts/bench has measured, with matplotlib.

Reads what to draw from standard input, as JSON, and writes {name: SVG} there. A
program of its own, as matplotlib may be in the build root only, where
scripts/setup-plot puts it: --in-root goes there first.
"""

import io
import json
import os
import sys

SCRIPTS = os.path.dirname(os.path.abspath(__file__))
PLOT = "/opt/plot"
LIBRARIES = f"{PLOT}/usr/lib/x86_64-linux-gnu"
# Colours that those who see few can tell apart, and markers for those who see none.
DRIVERS = {"rrxe": ("#0072b2", "o", "rrxe (Rust)"), "rxe": ("#d55e00", "s", "rdma_rxe (C)"),
           "siw": ("#7f7f7f", "^", "siw (iWARP, C)")}
MET, MISSED = "#1a7f37", "#cf222e"
SIZES = {64: "64 B", 4096: "4 KiB", 65536: "64 KiB", 1 << 20: "1 MiB"}
HALO = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6}
STYLE = {
    "svg.fonttype": "none", "svg.hashsalt": "rust-rdma", "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": 9,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
    "grid.color": "#d8dee4", "grid.linewidth": 0.6, "axes.edgecolor": "#57606a", "axes.titlesize": 10,
    "axes.titleweight": "bold", "figure.titlesize": 10, "legend.frameon": False,
}


def enter_root():
    """Start anew in the build root."""
    os.execv(os.path.join(SCRIPTS, "inroot"), [
        "inroot", "-w", "/k/tree", "env", f"MATPLOTLIBRC={PLOT}/etc/matplotlibrc", "MPLCONFIGDIR=/tmp/matplotlib",
        f"PYTHONPATH={PLOT}/usr/lib/python3/dist-packages", f"LD_LIBRARY_PATH={LIBRARIES}:{LIBRARIES}/blas:{LIBRARIES}/lapack",
        "python3", "-B", "scripts/bench_plot.py"])


def plain(value, _=None):
    """Numbers of an axis as people write them."""
    return f"{value:,.0f}" if value >= 10 else f"{value:g}"


def spread(figure):
    """The largest value that is drawn, the smallest being 1."""
    values = [point[1] for panel in figure["panels"] for series in panel["series"].values()
              for point in series["points"] + series["p99"]]
    return max(values) / min(values)


def legend(picture, seen):
    """Below all panels, the drivers first."""
    names = sorted(seen, key=lambda name: [word in name for word in ("target", "missed", "met")])
    picture.legend([seen[name] for name in names], names, loc="outside lower center", ncols=3, fontsize=8)


def draw_lines(plt, figure):
    """A panel for each kind of message, value against size."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator
    panels = figure["panels"]
    picture, axes = plt.subplots(1, len(panels), figsize=(max(3.1 * len(panels), 6.2), 4.1), squeeze=False,
                                 sharey=True, layout="constrained")
    seen = {}
    # Ticks that are far enough from each other.
    ticks = (1, 2, 5) if spread(figure) > 8 else (1, 1.5, 2, 3, 4, 5, 6, 8)
    for ax, panel in zip(axes[0], panels):
        for driver, series in panel["series"].items():
            color, marker, label = DRIVERS[driver]
            line, = ax.plot(*zip(*series["points"]), color=color, marker=marker, markersize=5, linewidth=1.8,
                            label=label, zorder=3 + (driver == "rrxe"))
            seen.setdefault(label, line)
            if series["p99"]:
                more, = ax.plot(*zip(*series["p99"]), color=color, marker=marker, markersize=3, linewidth=0.9,
                                linestyle=":", markerfacecolor="white", zorder=2)
                if driver == "rrxe":
                    seen.setdefault("99th percentile (median: solid)", more)
        for size, value, met in panel["targets"]:
            mark, = ax.plot([size], [value], marker="_", markersize=17, markeredgewidth=2.2,
                            color=MET if met else MISSED, linestyle="none", zorder=5)
            seen.setdefault("target for rrxe, " + ("met" if met else "missed"), mark)
        # Below the sizes, where they hide nothing.
        for size, text in panel["notes"]:
            ax.annotate(text, (size, 0), xycoords=("data", "axes fraction"), textcoords="offset points", xytext=(0, -19),
                        ha="center", va="top", fontsize=8, color=DRIVERS["rrxe"][0])
        ax.set_title(panel["title"])
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.set_xlim(22, 3 * (1 << 20))
        ax.set_xticks(list(SIZES), list(SIZES.values()))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_locator(LogLocator(subs=ticks))
        ax.yaxis.set_major_formatter(FuncFormatter(plain))
        ax.yaxis.set_minor_formatter(NullFormatter())
        ax.set_xlabel("message size", labelpad=14)
        ax.margins(y=0.12)
    axes[0][0].set_ylabel(figure["ylabel"])
    picture.suptitle(figure["title"])
    legend(picture, seen)
    return picture


def draw_bars(plt, figure):
    """How many times as fast as others rrxe is, case by case."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
    rows = figure["bars"][::-1]
    picture, ax = plt.subplots(figsize=(7.4, 1.3 + 0.27 * len(rows)), layout="constrained")
    seen = {}
    for place, row in enumerate(rows):
        others = list(row["ratios"])
        for number, other in enumerate(others):
            color, _, label = DRIVERS[other]
            ratio = row["ratios"][other]
            at, height = place + (0.19 if number == 0 else -0.19), 0.36
            bar = ax.barh(at, ratio - 1, height, left=1, color=color, alpha=0.85)
            seen.setdefault("than " + label, bar)
            # Behind a target that is just missed.
            end = row["targets"].get(other, [1])[0]
            end = end if ratio < end < 1.3 * ratio and ratio >= 1 else ratio
            ax.annotate(f"{ratio:.2f}", (end, at), textcoords="offset points", xytext=(4 if ratio >= 1 else -4, 0),
                        ha="left" if ratio >= 1 else "right", va="center", fontsize=7, bbox=HALO,
                        zorder=4)
            if other in row["targets"]:
                target, met = row["targets"][other]
                mark, = ax.plot([target] * 2, [at - 0.2, at + 0.2], color=MET if met else MISSED, linewidth=2.2, zorder=5)
                seen.setdefault("target, " + ("met" if met else "missed"), mark)
    ax.axvline(1, color="#24292f", linewidth=1)
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_yticks(range(len(rows)), [row["case"] for row in rows])
    ax.set_ylim(-0.6, len(rows) - 0.4)
    ax.margins(x=0.12)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("rrxe is so many times as fast (right of 1: rrxe is faster)")
    picture.suptitle(figure["title"])
    legend(picture, seen)
    return picture


def draw(request, form="svg"):
    """{name: picture}"""
    import matplotlib
    matplotlib.use("svg" if form == "svg" else "agg")
    import matplotlib.pyplot as plt
    plt.rcParams.update(STYLE)
    found = {}
    for figure in request["figures"]:
        picture = (draw_bars if "bars" in figure else draw_lines)(plt, figure)
        out = io.BytesIO()
        # Without a date, so that the same figures give the same file.
        picture.savefig(out, format=form, metadata={"Date": None, "Creator": None} if form == "svg" else None)
        plt.close(picture)
        found[figure["name"]] = out.getvalue()
    return found


def main():
    if sys.argv[1:] == ["--in-root"]:
        enter_root()
    json.dump({name: picture.decode() for name, picture in draw(json.load(sys.stdin)).items()}, sys.stdout)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
