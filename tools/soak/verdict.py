"""What a soak has to show: no scan lost, equal answers of equal scans, and no growth."""

import collections

from samples import HELD, MIB, peaks, slope

JUDGED_S = 50 * 60  # of load: after 25 minutes etcd has reached its plateau, and the second half is judged
FROM = 0.5  # of the load: the second half is judged
# How much each may grow in an hour of the second half: by a line through its samples, or, for saw-teeth, through the peaks of
# windows as long as the history of etcd. A leak of half a KiB a scan at 10 scans a second is 17.6 MiB an hour.
RSS_MIB, THREADS, FILES = 16.0, 4.0, 8.0
ETCD_RSS_MIB, ETCD_DB_MIB, PINS = 32.0, 8.0, 20.0
# What is kept of ended scans grows by a few percent while the leader's deletions take longer on a loaded machine: half of
# its mean, at 10 scans a second, is one scan in fifteen of an hour. That nothing is left of deleted ones is checked exactly.
KEPT_SHARE = 0.5
# What a coordinator may use above its idle memory: so many times the bytes of results that it holds, and so many MiB.
HELD_TIMES, HELD_MIB = 1.3, 64.0
HOUR_S = 3600.0
# A scan whose document was stored and whose record was not, when the leader was killed; an hour later it is deleted.
STRAYS_MAX = 5
UNREAD_S = 1.0  # until the client has read what the leader sent before it was killed
EPHEMERAL_GRACE_S = 20.0  # a stream of a dead leader has ended by then


def lost(load, killed, facts):
    """Everything that contradicts 'every accepted scan ended, and equal scans gave equal answers'."""
    problems = list(load.problems)
    ids = collections.Counter(scan.id for scan in load.scans if scan.id)
    problems += [f"scan {name}: {count} submissions without a common key got it" for name, count in ids.items() if count > 1]
    for scan in load.scans:
        if scan.outcome in ("done", "cancelled"):
            continue
        if scan.outcome == "cut off" and scan.accepted <= killed + UNREAD_S and killed <= scan.ended <= killed + EPHEMERAL_GRACE_S:
            continue  # by definition: an ephemeral scan ends with its leader
        if scan.outcome not in ("failed", "refused", "lost", "error"):  # those are among the problems already
            problems.append(f"{scan.kind} scan {scan.id}: no end ({scan.outcome}, {scan.why})")
    problems += [f"scan {name}: open although nobody waits for it" for name in facts["active_at_end"]]
    for kind in ("folders", "requests"):
        left = facts["strays"][kind]
        if len(left) > STRAYS_MAX:
            problems.append(f"{len(left)} {kind} of scans without a record, such as {left[0]}")
    return problems


def series_of(rows, *path):
    """Points (t, value) of one value of the samples."""
    points = []
    for row in rows:
        value = row
        for part in path:
            value = (value or {}).get(part)
        if value is not None:
            points.append((row["t"], value))
    return points


def growth(rows, until, window):
    """One row for each thing that may not grow, and whether the soak was long enough to judge."""
    judged = until >= JUDGED_S
    half = [row for row in rows if until * FROM <= row["t"] <= until]
    grown = []

    def judge(what, unit, points, limit=None):
        found, mean = slope(points), sum(value for _, value in points) / max(1, len(points))
        limit = round(KEPT_SHARE * mean, 1) if limit is None else limit
        if found is None:
            found, verdict = 0.0, "too few samples"
        else:
            found *= HOUR_S
            verdict = "not judged" if not judged else "ok" if found <= limit else "FAIL"
        most = max((value for _, value in points), default=0.0)
        grown.append({"what": what, "unit": unit, "mean": round(mean, 2), "most": round(most, 2), "per_hour": round(found, 2),
                      "limit": limit, "verdict": verdict})

    for name in rows[0]["processes"]:
        of = lambda value: series_of(half, "processes", name, value)
        judge(f"resident memory of {name}", "MiB", of("rss_mib"), ETCD_RSS_MIB if name == "etcd" else RSS_MIB)
        judge(f"threads of {name}", "", of("threads"), THREADS)
        judge(f"open files of {name}", "", of("files"), FILES)
    for value in ("db_mib", "in_use_mib"):
        points = peaks(series_of(half, "etcd", value), window)
        judge(f"etcd's database, {'whole' if value == 'db_mib' else 'in use'}, peaks", "MiB", points, ETCD_DB_MIB)
    # The leader deletes once a minute: saw-teeth too.
    judge("keys of the cluster in etcd, peaks", "", peaks(series_of(half, "etcd", "keys_all"), window))
    judge("objects in the result store, peaks", "", peaks(series_of(half, "store", "files"), window))
    judge("result store, peaks", "MiB", peaks(series_of(half, "store", "mib"), window))
    judge("pins", "", series_of(half, "pins"), PINS)
    grown += [beyond_held(name, rows[0], half, judged) for name in rows[0]["coordinators"]]
    return grown, judged


def beyond_held(name, idle, half, judged):
    """How far the memory of a coordinator is beyond what the results that it holds explain."""
    beyond = []
    for row in half:
        used, held = row["processes"].get(name), row["coordinators"].get(name)
        if used and held:
            bound = HELD_TIMES * sum(held[name] for name in HELD) / MIB + HELD_MIB
            beyond.append(used["rss_mib"] - idle["processes"][name]["rss_mib"] - bound)
    mean = sum(beyond) / max(1, len(beyond))
    return {"what": f"memory of {name} beyond its bound", "unit": "MiB", "mean": round(mean, 2),
            "most": round(max(beyond, default=0.0), 2), "per_hour": 0.0, "limit": 0.0,
            "verdict": "not judged" if not judged else "ok" if mean <= 0 else "FAIL"}


def quantiles(values):
    values = sorted(values)
    if not values:
        return None
    at = lambda share: round(values[min(len(values) - 1, int(share * len(values)))], 4)
    return {"p50": at(0.5), "p99": at(0.99), "max": round(values[-1], 4)}


def summary(load, sampler, killed):
    """Figures of the run."""
    before = [scan for scan in load.scans if scan.ended and scan.ended < killed]
    kinds = sorted({scan.kind for scan in load.scans})
    outcomes = collections.Counter(f"{scan.kind} {scan.outcome}" for scan in load.scans)
    rows = [row for row in sampler.rows if row["t"] <= killed - sampler.begin]
    first, last = rows[0], rows[-1]
    scans = max(1, last["client"]["submitted"] - first["client"]["submitted"])
    cpu = {name: round(1000 * (p["cpu_s"] - first["processes"][name]["cpu_s"]) / scans, 2)
           for name, p in last["processes"].items() if p and first["processes"].get(name)}
    columns = {"minute": [], "load1": [], "open": [], "store_files": [], "store_mib": [], "pins": []}
    minutes = {int(row["t"] // 60): row for row in sampler.rows}
    for number, row in sorted(minutes.items()):
        columns["minute"].append(number)
        columns["load1"].append(round(row["load1"], 2))
        columns["open"].append(row["client"]["open"])
        columns["store_files"].append(row["store"]["files"])
        columns["store_mib"].append(round(row["store"]["mib"], 1))
        columns["pins"].append(row["pins"])
        for name in first["processes"]:
            measured = row["processes"].get(name) or {}
            for value in ("rss_mib", "threads", "files"):
                columns.setdefault(f"{name}_{value}", []).append(round(measured[value], 1) if measured else None)
        for name, value in (row["etcd"] or dict.fromkeys(first["etcd"])).items():
            columns.setdefault(f"etcd_{name}", []).append(value if value is None else round(value, 1))
    return {
        "scans": {"submitted": len(load.scans), "accepted": sum(1 for scan in load.scans if scan.id),
                  "outcomes": dict(sorted(outcomes.items())), "documents": len(load.digests),
                  "streams": sum(scan.streams for scan in load.scans), "reconnects": load.reconnects,
                  "not_accepted_at_once": dict(load.refused), "payload_mib": round(load.checked_bytes / 2**20, 1)},
        "latency_s": {kind: quantiles([scan.ended - scan.due for scan in before if scan.kind == kind and scan.outcome == "done"])
                      for kind in kinds if kind != "cut"},
        "late_s": quantiles(load.late),
        "cpu_ms_per_scan": cpu,
        "etcd_revisions_per_scan": round((last["etcd"]["revision"] - first["etcd"]["revision"]) / scans, 2),
        "load1_mean": round(sum(row["load1"] for row in rows) / len(rows), 2),
        "by_minute": columns,
    }
