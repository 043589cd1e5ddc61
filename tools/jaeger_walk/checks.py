"""The walk of deploy/README.md, and what a trace in Jaeger contains."""

import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request

import traces
from parts import ROOT
from processes import damage
from stage import UP_SECONDS, ended
from traces import tag

README, PAGE, POLICIES = "deploy/README.md", "docs/telemetry.md", "deploy/otelcol/config.yaml"
# How often a worker is killed until the scheduler retries rather than lets a hedge win.
KILLS = 6
KILL_POLL_SECONDS = 0.02
NOT_KEPT_SECONDS = 15
STAGES = {"receive", "queue", "load", "kernel", "encode", "send"}
SUMS = {"trawl.receive_ms", "trawl.threads_ms", "trawl.load_ms", "trawl.kernel_ms", "trawl.encode_ms"}


def readme_walk(stage):
    """`find-slow-shard` as a user runs it, over the collector's tail sampling."""
    claim, programs = stage.claims.add, stage.programs
    command = [
        sys.executable,
        ROOT / "deploy/jaeger/find-slow-shard",
        "--jaeger",
        stage.jaeger.url,
        "--otlp",
        stage.collector.otlp,
    ]
    path = f"{os.path.dirname(programs['etcd'])}:{os.environ['PATH']}"
    ran = subprocess.run(
        list(map(str, [*command, "--trawl", programs["trawl"]])),
        capture_output=True,
        text=True,
        env=os.environ | {"PATH": path},
    )
    said = [line for line in (ran.stdout + ran.stderr).splitlines() if line]
    claim(
        f"{README} 6",
        "`find-slow-shard` names the slowed worker over Jaeger's API",
        said[-1].split(": http")[0] if said else "nothing",
        ran.returncode == 0,
    )
    if ran.returncode != 0:
        return None
    look = subprocess.run([*map(str, command), "--look"], capture_output=True, text=True)
    claim(
        f"{README} 6",
        "`find-slow-shard --look` shows the slowest shards",
        f"{len(look.stdout.splitlines())} lines",
        "slow-worker" in look.stdout,
    )
    trace = traces.get(stage.jaeger, re.search(r"/trace/([0-9a-f]+)", ran.stdout)[1])
    slowest = max(traces.shards(trace), key=lambda s: s["duration"])
    found = traces.walk.ask(
        stage.jaeger.url,
        "/api/traces",
        service="trawl-coordinator",
        operation="shard",
        tags='{"trawl.slow":"true"}',
        lookback="1h",
        limit=20,
    )
    claim(
        f"{README} 5.1",
        "service `trawl-coordinator`, operation `shard`, tags `trawl.slow=true` find the trace",
        f"{len(found)} found",
        trace["traceID"] in [t["traceID"] for t in found],
    )
    marks = {key: tag(slowest, key) for key in ("trawl.worker", "trawl.segments", "trawl.queue_ms", "trawl.ending")}
    claim(
        f"{README} 5.2",
        "the longest `shard` has `trawl.worker`, `trawl.segments`, `trawl.queue_ms`, and `trawl.ending=stopped`",
        ", ".join(f"{value:.3g}" if isinstance(value, float) else f"{value}" for value in marks.values()),
        None not in marks.values() and marks["trawl.worker"] == "slow-worker" and marks["trawl.ending"] == "stopped",
    )
    caches = {tag(s, "trawl.cache") for s in traces.shards(trace) if tag(s, "trawl.ending") == "done"}
    claim(
        f"{README} 5.2",
        "`trawl.cache` of the shards that were computed",
        sorted(map(str, caches)),
        caches and None not in caches,
    )
    execute = [s for s in trace["spans"] if traces.parent(s) == slowest["spanID"]]
    stages = [s for s in traces.walk.below(trace, slowest) if s["operationName"] != "execute"]
    claim(
        f"{README} 5.3",
        "below it is `execute`, the same shard at its worker",
        ", ".join(f"{s['operationName']} of {traces.service(trace, s)}" for s in execute),
        len(execute) == 1 and traces.service(trace, execute[0]) == "trawl-worker",
    )
    done = [s for s in traces.shards(trace) if tag(s, "trawl.ending") == "done"]
    summed = [all(tag(shard, key) is not None for key in SUMS) for shard in done]
    claim(
        f"{README} 5.2",
        "the time of each stage is in `trawl.receive_ms`, `trawl.threads_ms`, `trawl.load_ms`, `trawl.kernel_ms`, `trawl.encode_ms`",
        f"of {sum(summed)} of {len(done)} shards that were computed",
        summed and all(summed),
    )
    beside = [s for s in done if tag(s, "trawl.hedge") is True]
    below = [{s["operationName"] for s in traces.walk.below(trace, shard)} for shard in beside]
    claim(
        f"{README} 5.3",
        "below that are `receive`, `queue`, `load`, `kernel`, `encode`, `send`",
        f"in {sum(names >= STAGES for names in below)} of {len(beside)} hedges that were computed",
        below and all(names >= STAGES for names in below),
    )
    if execute:
        busy = sum(s["duration"] for s in stages) / 1e3
        claim(
            f"{README} 5.3",
            "a worker that sleeps has a gap there, before it loads or computes anything",
            f"stages are {busy:.0f} of {execute[0]['duration'] / 1e3:.0f} ms",
            not {"load", "kernel", "encode"} & {s["operationName"] for s in stages},
        )
    hedges = [(s, first) for s, first in traces.follows(trace) if tag(s, "trawl.hedge") is True]
    other = [
        s
        for s, first in hedges
        if tag(s, "trawl.worker") != tag(first, "trawl.worker") and tag(s, "trawl.shard") == tag(first, "trawl.shard")
    ]
    claim(
        f"{README} 5.4",
        "the hedge is a second attempt at the same segments on another worker, linked to the first",
        f"{len(hedges)} hedges with their links, {len(other)} on another worker",
        hedges and len(hedges) == len(other),
    )
    said = traces.links(stage.jaeger, trace["traceID"])
    claim(
        f"{PAGE}, attributes",
        "`trawl.link` of a link says `hedge`",
        f"in Jaeger's API v3: {sorted(set(said))}",
        "hedge" in said,
    )
    return trace


def exemplars(url):
    """The ids of the traces that a metrics page refers to."""
    request = urllib.request.Request(url, headers={"Accept": "application/openmetrics-text"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return set(re.findall(r'# {trace_id="([0-9a-f]{32})"', answer.read().decode()))


def contents(stage):
    """Spans, attributes, retries, stages of a device, steps."""
    claim = stage.claims.add
    own_data = stage.folder / "own-data"
    shutil.copytree(stage.data, own_data)
    cluster = stage.cluster("contents", stage.collector.otlp, own_data=own_data)
    spans, attributes = traces.documented()
    seen_spans, seen = set(), set()

    def note(trace):
        seen_spans.update(traces.names(trace))
        seen.update(t["key"] for s in trace["spans"] for t in s["tags"])
        seen.update(t["key"] for p in trace["processes"].values() for t in p["tags"])
        return trace

    kept = lambda found, *more: note(stage.trace(found, *more))
    complete = lambda t: {"merge", "stream"} <= traces.names(t)
    stage.slow_down(cluster, cluster.workers[2])
    kept(stage.scan(cluster, shards="auto"), complete)
    found = stage.scan(cluster)
    trace = kept(found, complete)
    page = exemplars(f"http://{cluster.coordinators[0].metrics}/metrics")
    claim(
        f"{README} 7",
        "points on durations are traces",
        f"{len(page)} exemplars of the coordinator, this scan's trace {'among' if found['trace'] in page else 'not among'} them",
        found["trace"] in page,
    )
    span = next((s for s in trace["spans"] if s["spanID"] == found["span"]), None)
    claim(
        f"{PAGE}, logs",
        "`trace_id` and `span_id` lead from a line to Jaeger",
        f"the line 'scan ended' to the span `{span['operationName'] if span else None}`",
        span and span["operationName"] == "submit",
    )
    stage.restart(cluster, cluster.workers[2])

    # A worker is killed while it has shards.
    said = retried = None
    for _ in range(KILLS):
        stage.slow_down(cluster, cluster.workers[1], 3000)
        log = cluster.coordinators[0].log
        accepted = lambda: log.read_text().count('"scan accepted"')
        before = accepted()
        child = cluster.scan(dataset="market", wait=False)
        # A quarter of a second later hedges are under way, and win.
        deadline = time.monotonic() + UP_SECONDS
        while accepted() == before and time.monotonic() < deadline:
            time.sleep(KILL_POLL_SECONDS)
        cluster.workers[1].kill()
        child.communicate()
        found = {"trace": ended(cluster)[-1]["trace_id"]}
        cluster.workers[1].start()
        trace = kept(found, complete)
        said = traces.links(stage.jaeger, found["trace"])
        retried = [(s, first) for s, first in traces.follows(trace) if tag(first, "trawl.ending") == "broken"]
        if "retry" in said and child.returncode == 0:
            break
    endings = sorted({str(tag(first, "trawl.ending")) for _, first in retried})
    claim(
        f"{PAGE}, spans",
        "a retry links to the attempt before, whose worker was killed",
        f"links {sorted(set(said))}, to attempts that ended {endings}",
        "retry" in said and retried,
    )
    claim(
        POLICIES,
        "the policy `errors` meets a scan that lost a worker and succeeded",
        sorted(traces.why_kept(trace)),
        "errors" in traces.why_kept(trace),
    )

    seen.update(["trawl.link"] if said else [])

    # One worker reads damaged files. Where hedges are faster it is stopped before it knows.
    stage.restart(cluster, cluster.workers[1])
    damage(own_data, "market")
    failed = []
    for _ in range(KILLS):
        stage.restart(cluster, cluster.workers[2])
        found = stage.scan(cluster)
        try:
            trace = kept(found, complete, NOT_KEPT_SECONDS)
        except TimeoutError:
            # Nothing was slow, nothing failed: the collector need not have kept it.
            continue
        failed = [s for s in traces.shards(trace) if tag(s, "trawl.ending") == "failed"]
        if failed:
            break
    said = traces.links(stage.jaeger, found["trace"]) if failed else []
    claim(
        f"{PAGE}, spans",
        "a worker with a damaged copy of the bars: its attempts are errors, and retries link to them",
        f"{len(failed)} attempts of {sorted({tag(s, 'trawl.worker') for s in failed})} failed, links {sorted(set(said))}",
        failed and all(tag(s, "otel.status_code") == "ERROR" for s in failed) and "retry" in said,
    )
    stage.end_cluster(cluster)

    # A device of the test driver, and a scan in two steps.
    driver = subprocess.run([ROOT / "tools/get-test-driver"], check=True, capture_output=True, text=True).stdout.strip()
    device = {"TRAWL_CUDA_LIBRARIES": driver, "TRAWL_TEST_DRIVER": "kernel_us=2000"}
    cluster = stage.cluster(
        "device", stage.collector.otlp, OTEL_TRACES_SAMPLER="parentbased_always_on", **device
    )
    stage.slow_down(cluster, cluster.workers[2])
    device = kept(stage.scan(cluster), lambda t: {"h2d", "kernel", "d2h", "merge", "stream"} <= traces.names(t))
    names = sorted({str(tag(s, "trawl.device")) for s in device["spans"] if tag(s, "trawl.device")})
    claim(
        f"{PAGE}, spans",
        "stages of a device are `h2d`, `kernel`, `d2h`",
        f"{sorted(traces.names(device))} on {names}",
        {"h2d", "kernel", "d2h"} <= traces.names(device),
    )
    steps = kept(
        stage.scan(cluster, where="xs_rank(close) < 50"), lambda t: {"cross_section", "stream"} <= traces.names(t)
    )
    claim(
        f"{PAGE}, spans",
        "`cross_section` is between two steps",
        sorted({tag(s, "trawl.step") for s in steps["spans"]} - {None}),
        "cross_section" in traces.names(steps),
    )
    stage.end_cluster(cluster)

    own = {name for name in seen if name.startswith("trawl.")}
    claim(
        f"{PAGE}, spans",
        "every span in Jaeger is in the table, and every span of the table was seen",
        f"{len(seen_spans & spans)} of {len(spans)}, not seen: {sorted(spans - seen_spans)}",
        seen_spans <= spans and spans - seen_spans <= {"update"},
    )
    claim(
        f"{PAGE}, attributes",
        "every attribute of Trawl in Jaeger is in the table",
        f"{len(own & attributes)} of {len([a for a in attributes if a.startswith('trawl.')])}, not seen: "
        f"{sorted(attributes - seen)}",
        own <= attributes,
    )
