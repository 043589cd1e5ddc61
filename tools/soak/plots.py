"""One picture of a soak: what might grow, over time."""

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
    picture = io.BytesIO()
    figure.savefig(picture, dpi=DPI)
    Image.open(picture).quantize(COLOURS).save(path, optimize=True)
