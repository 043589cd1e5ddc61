"""What a haul has to show: nothing lost, and memory of coordinators that results explain, in every phase."""

import collections

from verdict import HELD_MIB, HELD_TIMES, lost, quantiles

# What was freed goes back to the system within so many seconds: a sample is compared with the most that was held by then.
FREED_S = 10.0
# What is being read or compiled is counted as soon as its size is known: a sample is compared with what is held by then, too.
SIZED_S = 2.0
END_S = 10.0  # of the last phase, that say what remains
NEVER = float("inf")  # nobody is killed


def allowed(held_mib):
    """MiB that a coordinator may use above its idle memory."""
    return HELD_TIMES * held_mib + HELD_MIB


def held_lately(rows, name):
    """For each row the most that a coordinator held from some seconds before to a moment after."""
    said = [(row["t"], (row["coordinators"].get(name) or {}).get("held_mib")) for row in rows]
    said = [(t, held) for t, held in said if held is not None]

    def near(at):
        return [held for t, held in said if at - FREED_S <= t <= at + SIZED_S]

    return [max(near(row["t"]), default=0.0) for row in rows]


def memory(rows, phases, idle, limit_mib):
    """One row for each phase and coordinator."""
    judged = []
    for name, idle_mib in idle.items():
        lately = held_lately(rows, name)
        for phase, begin, end in phases:
            samples = [(row["processes"][name], row["coordinators"][name], held) for row, held in zip(rows, lately)
                       if begin <= row["t"] < end and row["processes"].get(name) and row["coordinators"].get(name)]
            if not samples:
                continue
            beyond = [used["rss_mib"] - idle_mib - allowed(held) for used, _, held in samples]
            worst, (used, now, held) = max(zip(beyond, samples), key=lambda pair: pair[0])
            peak = max(used["peak_mib"] for used, _, _ in samples)
            judged.append({
                "phase": phase, "coordinator": name, "samples": len(samples),
                "rss_mean_mib": mean(used["rss_mib"] for used, _, _ in samples), "rss_peak_mib": round(peak, 1),
                "held_mean_mib": mean(now["held_mib"] for _, now, _ in samples),
                "held_peak_mib": round(max(now["held_mib"] for _, now, _ in samples), 1),
                "spooled_peak_mib": round(max(now["spooled_mib"] for _, now, _ in samples), 1),
                "worst_rss_mib": round(used["rss_mib"], 1), "worst_bound_mib": round(idle_mib + allowed(held), 1),
                "beyond_worst_mib": round(worst, 1), "beyond_mean_mib": mean(beyond),
                "beyond_share": round(sum(value > 0 for value in beyond) / len(beyond), 2),
                "under_limit": "ok" if peak < limit_mib else "FAIL", "within_bound": "ok" if worst <= 0 else "FAIL",
            })
    return judged


def mean(values):
    values = list(values)
    return round(sum(values) / len(values), 1)


def at_end(rows, idle):
    """What remains of each coordinator's memory after all."""
    last = [row for row in rows if row["t"] >= rows[-1]["t"] - END_S]
    found = {}
    for name, idle_mib in idle.items():
        both = [(row["processes"][name], row["coordinators"][name]) for row in last
                if row["processes"].get(name) and row["coordinators"].get(name)]
        if both:
            found[name] = {"idle_mib": round(idle_mib, 1), "rss_mib": mean(used["rss_mib"] for used, _ in both),
                           "held_mib": mean(now["held_mib"] for _, now in both)}
    return found


def problems_of(load, again, clients, facts):
    """Everything that contradicts 'every accepted scan ended, equal scans gave equal answers, and stopped clients let go'."""
    problems = lost(load, NEVER, {"active_at_end": facts["active_at_end"], "strays": {"folders": [], "requests": []}})
    problems += [f"the answer of scan {scan.id} cannot be read again: {scan.outcome} ({scan.why})" for scan in again
                 if scan.outcome != "done"]
    problems += [f"{name} ended by itself" for name in facts["died"]]
    if facts["without_end"]:
        problems.append(f"{facts['without_end']} scans are still followed")
    if clients["stopped"] < clients["wanted"]:
        problems.append(f"{clients['stopped']} of {clients['wanted']} clients opened a stream")
    if clients["left_open"]:
        problems.append(f"{clients['left_open']} streams of stopped clients did not end within {clients['waited_s']:.0f} s")
    if clients["of_others"]:
        problems.append(f"{clients['of_others']} streams of clients that read were ended with those of the stopped ones")
    return problems


def of_scans(scans):
    """Figures of the scans of one phase."""
    outcomes = collections.Counter(f"{scan.kind} {scan.outcome}" for scan in scans)
    done = [scan.ended - scan.due for scan in scans if scan.ended and scan.outcome == "done" and scan.kind != "detached"]
    return {"submitted": len(scans), "outcomes": dict(sorted(outcomes.items())), "latency_s": quantiles(done)}
