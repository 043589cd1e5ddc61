"""Pictures: of a soak, what might grow over time; of a haul, memory and what explains it."""

import io

import matplotlib
from PIL import Image

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from verdict import series_of

DPI, COLOURS = 80, 64  # less than 100 KB


def draw(rows, killed, path):
    names = list(rows[0]["processes"])
    panels = [
        ("resident memory, MiB", [(name, ("processes", name, "rss_mib")) for name in names]),
        ("etcd, MiB", [("database", ("etcd", "db_mib")), ("in use", ("etcd", "in_use_mib"))]),
        ("keys in etcd", [(part, ("etcd", f"keys_{part}")) for part in ("all", "ended", "requests", "scans")]),
        ("result store: objects", [("objects", ("store", "files"))]),
        ("open files", [(name, ("processes", name, "files")) for name in names]),
        ("open scans, and load of the machine", [("open scans", ("client", "open")), ("load", ("load1",))]),
    ]
    figure, axes = plt.subplots(3, 2, figsize=(12, 10), sharex=True, layout="constrained")
    for axis, (title, lines) in zip(axes.flat, panels):
        for label, series in lines:
            points = series_of(rows, *series)
            axis.plot([t / 60 for t, _ in points], [value for _, value in points], label=label, linewidth=1)
        axis.axvline(killed / 60, color="black", linestyle=":", linewidth=1)
        axis.set_title(title, fontsize=10)
        axis.set_ylim(bottom=0)
        axis.legend(fontsize=8, loc="lower right" if "memory" in title or "keys" in title else "best")
        axis.grid(alpha=0.3)
    axes.flat[-1].set_yscale("symlog")
    for axis in axes[-1]:
        axis.set_xlabel("minutes; the dotted line is the kill of the leader")
    save(figure, path)


def draw_haul(rows, phases, idle, limit_mib, bound, path):
    """`phases`: name, begin and end of each. `bound`: of a row and a coordinator's name, what it may use above `idle`."""
    coordinators = list(rows[0]["coordinators"])
    others = [name for name in rows[0]["processes"] if name not in coordinators]
    gauge = lambda metric: [(f"{name}", ("coordinators", name, metric)) for name in coordinators]
    panels = [
        ("resident memory of coordinators, and what it may be (dashed), MiB",
         [(name, ("processes", name, "rss_mib")) for name in coordinators]),
        ("resident memory of the other processes, MiB", [(name, ("processes", name, "rss_mib")) for name in others]),
        ("results, documents and plans in memory, as the metrics say (dashed: results on disk), MiB", gauge("held_mib")),
        ("scans that are open, and streams of clients", [("scans", ("client", "open")), ("streams", ("client", "streams"))]),
        ("requests to the store at once", [("requests", ("store", "at_once"))]),
        ("load of the machine", [("load", ("load1",))]),
    ]
    figure, axes = plt.subplots(3, 2, figsize=(13, 11), sharex=True, layout="constrained")
    for number, (axis, (title, lines)) in enumerate(zip(axes.flat, panels)):
        for label, series in lines:
            points = series_of(rows, *series)
            line, = axis.plot([t for t, _ in points], [value for _, value in points], label=label, linewidth=1)
            dashed = []
            if number == 0:
                dashed = [(row["t"], idle[label] + bound(row, label)) for row in rows if row["coordinators"].get(label)]
            elif number == 2:
                dashed = series_of(rows, "coordinators", label, "spooled_mib")
            axis.plot([t for t, _ in dashed], [value for _, value in dashed], color=line.get_color(), linestyle="--", linewidth=1)
        if number == 0 and axis.get_ylim()[1] > limit_mib / 2:
            axis.axhline(limit_mib, color="black", linewidth=1, label=f"the chart's limit, {limit_mib:g} MiB")
        elif number == 0:
            title += f"; the chart's limit is {limit_mib:g} MiB"
        for at, (name, begin, end) in enumerate(phases):
            axis.axvspan(begin, end, color="black", alpha=0.08 if at % 2 else 0.0, linewidth=0)
            if number >= 4:
                axis.text(begin, 0.98, name, transform=axis.get_xaxis_transform(), fontsize=8, va="top", rotation=90)
        axis.set_title(title, fontsize=9)
        axis.set_ylim(bottom=0)
        if len(lines) > 1:
            axis.legend(fontsize=8, loc="upper right" if number != 1 else "best")
        axis.grid(alpha=0.3)
    for axis in axes[-1]:
        axis.set_xlabel("seconds; grey and white are the phases")
    save(figure, path)


def save(figure, path):
    picture = io.BytesIO()
    figure.savefig(picture, dpi=DPI)
    Image.open(picture).quantize(COLOURS).save(path, optimize=True)
