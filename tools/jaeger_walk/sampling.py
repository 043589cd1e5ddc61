"""Which traces are sent and which are kept: nothing, one in a hundred, the collector's policies; and what a scan's trace weighs."""

import time

import traces
from checks import PAGE, POLICIES
from parts import Gate
from processes import wait_for
from stage import CONDITION, SEEN_SECONDS, ended

FAST, SLOW = 40, 3
# Long scans that a user waits for and that nobody waits for; the workers sleep so long before each of their 32 segments.
LONG, DETACHED, LONG_MS = 3, 2, 1200
# Of the collector's policy some-of-all; ratios of the head sampler: the documentation's example, and none but slow ones.
CHANCE_PERCENT = 10
RATIOS = {"1 %": 0.01, "slow only": 0}
# The collector's wait after a root, its own batches and Jaeger's: after that, what is not there was not kept.
DECIDED_SECONDS = 25
# Scans of the weight; each pays for the spans of its own command, and the servers' batches mix.
WEIGHED = 5
# 10,000 symbols are so many groups; what the documentation may call a dozen spans, and two and a half of a group.
GROUPS, ABOUT_A_DOZEN, ABOUT_TWO_AND_A_HALF = 157, 20, 3.5


def scans(stage, name, **variables):
    """The same scans under a sampler: quick ones, and some with a slowed worker."""
    cluster = stage.cluster(name, stage.collector.otlp, **variables)
    stage.scan(cluster)
    time.sleep(5)
    accepted = stage.collector.counter("otelcol_receiver_accepted_spans")
    fast = [stage.scan(cluster) for _ in range(FAST)]
    stage.slow_down(cluster, cluster.workers[2])
    slow = [stage.scan(cluster) for _ in range(SLOW)]
    stage.restart(cluster, cluster.workers[2])
    stage.end_cluster(cluster)
    time.sleep(5)
    return fast, slow, stage.collector.counter("otelcol_receiver_accepted_spans") - accepted


def there(stage, rows):
    found = {row["trace"]: traces.get(stage.jaeger, row["trace"]) for row in rows}
    return {trace: spans for trace, spans in found.items() if spans}


def slow_ones(stage, slow):
    """How many of the slow scans' traces are whole in Jaeger and name the slowed worker."""
    named = 0
    for row in slow:
        has = lambda t: any(
            traces.tag(s, "trawl.worker") == "w3" and traces.tag(s, "trawl.slow") is True for s in traces.shards(t)
        )
        try:
            stage.trace(row, has)
            named += 1
        except TimeoutError as missing:
            print(f"      {missing}")
    return named


def head_sampler(stage, ratio):
    """Processes that send this share of the traces, and every trace with a slow shard."""
    sampler = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": str(ratio)}
    fast, slow, spans = scans(stage, f"ratio-{ratio}", **sampler)
    whole = slow_ones(stage, slow)
    stage.claims.add(
        f"{PAGE}, sampling",
        f"with a ratio of {ratio} at the head every trace with a slow shard is sent all the same, as a whole tree",
        f"{whole} of {SLOW} slow scans in Jaeger",
        whole == SLOW,
    )
    wanted = {r["trace"] for r in fast if traces.chosen_by_head(r["trace"], ratio)}
    time.sleep(DECIDED_SECONDS)
    kept = there(stage, fast)
    unasked = [t for t, spans in kept.items() if t not in wanted and not traces.why_kept(spans)]
    chosen = "those that the ratio chooses, or that" if ratio else "only those that"
    stage.claims.add(
        f"{PAGE}, sampling",
        f"with a ratio of {ratio}, of the quick scans {chosen} had a slow shard after all",
        f"{len(kept)} of {FAST} in Jaeger, {len(unasked)} without a reason",
        not unasked,
    )
    return {"spans": spans, "kept": len(kept), "slow_kept": whole}


def samplers(stage):
    claim, figures = stage.claims.add, {}
    _, _, spans = scans(stage, "off", OTEL_TRACES_SAMPLER="always_off")
    claim(
        f"{PAGE}, variables",
        "`OTEL_TRACES_SAMPLER=always_off`: nothing is sent, slow shards neither",
        f"{spans:.0f} spans at the collector",
        spans == 0,
    )
    figures["off"] = {"spans": spans, "kept": 0, "slow_kept": 0}

    for name, ratio in RATIOS.items():
        figures[name] = head_sampler(stage, ratio)

    fast, slow, spans = scans(stage, "tail")
    whole = slow_ones(stage, slow)
    time.sleep(DECIDED_SECONDS)
    kept = there(stage, fast)
    by_chance = {r["trace"] for r in fast if traces.chosen_by_chance(r["trace"], CHANCE_PERCENT)}
    wrong = by_chance - set(kept) | {
        t for t, spans in kept.items() if t not in by_chance and not traces.why_kept(spans)
    }
    claim(POLICIES, "every trace with a slow shard is kept", f"{whole} of {SLOW}", whole == SLOW)
    claim(
        POLICIES,
        "of the quick ones a tenth: exactly those whose hash the policy chooses, and those that meet another policy",
        f"{len(kept)} of {FAST} in Jaeger, {len(by_chance)} by hash, {len(wrong)} differ",
        not wrong,
    )
    figures["policies"] = {
        "spans": spans,
        "kept": len(kept),
        "slow_kept": whole,
    }
    stage.figures["sampling"] = figures


def long_scans(stage):
    """Scans that take longer than a collector waits that only counts from the first span, with nothing slow until their end."""
    cluster = stage.cluster("long", stage.collector.otlp, workers=2)
    for worker in cluster.workers:
        stage.slow_down(cluster, worker, LONG_MS)
    command = ["scan", "--dataset", "market", "--where", CONDITION, "--shards", "2", "--quiet"]
    children = [cluster.command(*command, wait=False) for _ in range(LONG)]
    children += [cluster.command(*command, "--detach", wait=False) for _ in range(DETACHED)]
    for child in children:
        child.communicate()
    rows = wait_for("the scans end", lambda: len(found := ended(cluster)) == LONG + DETACHED and found, 120)
    took = min(row["fields"]["seconds"] for row in rows)

    def whole(row):
        trace = traces.get(stage.jaeger, row["trace_id"])
        has = {"scan", "submit", "merge", "execute"}
        return trace and not traces.tree(trace)[1] and has <= traces.names(trace)

    deadline, there = time.monotonic() + SEEN_SECONDS, []
    while time.monotonic() < deadline and len(there) < len(rows):
        time.sleep(1)
        there = [row for row in rows if whole(row)]
    stage.claims.add(
        POLICIES,
        "a scan that takes longer than 30 s is decided about as a whole, also one that was detached from",
        f"{len(there)} of {len(rows)} scans of {took:.0f} s and more are whole in Jaeger",
        len(there) == len(rows) and took > 31,
    )
    for row in rows:
        trace, seconds = traces.get(stage.jaeger, row["trace_id"]), row["fields"]["seconds"]
        print(
            f"      {row['fields']['scan']}: {seconds:.0f} s, {len(trace['spans']) if trace else 0} spans, {'whole' if row in there else 'NOT WHOLE'}"
            f" {sorted(traces.why_kept(trace)) if trace else ''}"
        )
    stage.end_cluster(cluster)


def weight(stage):
    """Spans and bytes of scans of 10,000 symbols."""
    stage.synth("big", 10_000, 250)
    figures = {}
    for name, more in (("plain", {}), ("gzip", {"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"})):
        gate = Gate(stage.collector.otlp)
        cluster = stage.cluster(f"weight-{name}", gate.url, **more)
        for shards in ("auto", "per-group"):
            stage.scan(cluster, dataset="big", shards=shards)
            time.sleep(5)
            counter = lambda: stage.collector.counter("otelcol_receiver_accepted_spans")
            spans, sent = counter(), gate.bytes
            for _ in range(WEIGHED):
                stage.scan(cluster, dataset="big", shards=shards)
            still = lambda: (before := counter()) and not time.sleep(3) and counter() == before
            wait_for("the last spans arrive", still, 60)
            spans, sent = (counter() - spans) / WEIGHED, (gate.bytes - sent) / WEIGHED
            figures[f"{shards}, {name}"] = {
                "spans": spans,
                "bytes": round(sent),
                "bytes_per_span": round(sent / spans),
            }
        stage.end_cluster(cluster)
        gate.close()
    stage.figures["scan_of_10000_symbols"] = figures
    plain = figures["per-group, plain"]
    auto = figures["auto, plain"]
    stage.claims.add(
        f"{PAGE}, sampling",
        "a scan of 10,000 symbols over three workers of one thread each produces about a dozen spans; with `--shards per-group` two and a half "
        "for each group",
        f"{auto['spans']:.0f} spans and {auto['bytes'] / 1e3:.0f} kB; with 157 shards {plain['spans']:.0f} and {plain['bytes'] / 1e3:.0f} kB",
        auto["spans"] < ABOUT_A_DOZEN and plain["spans"] < ABOUT_TWO_AND_A_HALF * GROUPS,
    )
    less = figures["auto, gzip"]["bytes"] / auto["bytes"]
    stage.claims.add(
        f"{PAGE}, variables", "`OTEL_EXPORTER_OTLP_COMPRESSION=gzip`", f"{less:.0%} of the bytes", less < 0.8
    )
