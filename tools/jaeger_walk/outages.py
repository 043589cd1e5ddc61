"""The collector or Jaeger is away: no scan waits for it, and what was lost is counted."""

import pathlib
import signal
import time

import traces
from checks import PAGE, POLICIES
from parts import Collector
from processes import wait_for
from stage import SEEN_SECONDS, dropped, median

# The longest that the command itself may wait at its end (docs/telemetry.md).
LAST_SPANS_SECONDS = 0.5
# A scan that waited for a receiver would wait for its time-outs, ten seconds and more: a hundred times a scan of this data. What is less than
# this is the noise of a shared machine.
RATIO_MAX = 3.0
# Of the spans that were sent before, a part comes from the commands, whose losses nobody counts; some scans have more hedges than others.
LOST_SHARE_MIN, LOST_SHARE_MAX = 0.8, 1.1
# The longest between two tries of the collector, with its variation.
BACK_OFF_SECONDS = 45


def for_a_while(stage, cluster, seconds, at_least=10):
    """Scans, one after the other, for so long."""
    end, rows = time.monotonic() + seconds, []
    while time.monotonic() < end or len(rows) < at_least:
        rows.append(stage.scan(cluster))
    return rows


def compared(rows, usual):
    """Scans while something is away beside those right before and after: a shared machine has slow minutes."""
    return {
        "scans": len(rows),
        "seconds": median(rows),
        "ratio": median(rows) / median(usual),
        "command_more_seconds": median(rows, "command") - median(usual, "command"),
    }


def said(compared):
    return (
        f"{compared['ratio']:.2f} times the usual time over {compared['scans']} scans, "
        f"the command {compared['command_more_seconds']:+.2f} s"
    )


def collector_away(stage, seconds):
    claim = stage.claims.add
    cluster = stage.cluster("collector-away", stage.collector.otlp)
    stage.scan(cluster)
    accepted = lambda: stage.collector.counter("otelcol_receiver_accepted_spans")
    settle = lambda: wait_for(
        "the last spans arrive", lambda: (before := accepted()) and not time.sleep(3) and accepted() == before, 60
    )
    settle()
    begin = accepted()
    usual = for_a_while(stage, cluster, 10)
    settle()
    each = (accepted() - begin) / len(usual)
    before = dropped(cluster)
    claim(
        PAGE,
        "while the collector takes spans, none is dropped",
        f"{before:.0f} dropped, {each:.0f} spans of each scan accepted",
        before == 0,
    )

    stage.collector.kill()
    rows = for_a_while(stage, cluster, seconds)
    time.sleep(3)
    lost = dropped(cluster)
    stage.start(stage.collector)
    again = for_a_while(stage, cluster, 10)
    killed = compared(rows, usual + again)
    claim(
        PAGE,
        f"no scan waits while the collector is away for {seconds} s; a command waits half a second for its last spans",
        said(killed),
        killed["ratio"] < RATIO_MAX and killed["command_more_seconds"] < LAST_SPANS_SECONDS + 0.5,
    )
    # A scan's own command ends with its count of lost spans; the servers' are in their metrics.
    claim(
        f"{PAGE}; docs/metrics.md",
        "lost spans are counted in `trawl_spans_dropped_total`",
        f"{lost:.0f} counted by the servers; all processes sent {each:.0f} a scan before, in {killed['scans']} scans",
        LOST_SHARE_MIN < lost / (each * killed["scans"]) < LOST_SHARE_MAX,
    )
    counts = lambda text: [pathlib.Path(p.log).read_text().count(text) for p in cluster.processes()]
    wait_for("every process delivers again", lambda: all(counts('"traces are delivered again"')), 60)
    begins, ends = counts('"traces cannot be delivered'), counts('"traces are delivered again"')
    claim(
        PAGE,
        "a receiver that is away is logged once when it begins and once when it ends",
        f"{begins} and {ends} lines of the processes",
        set(begins) == set(ends) == {1},
    )

    before = dropped(cluster)
    stage.collector.signal(signal.SIGSTOP)
    rows = for_a_while(stage, cluster, seconds / 2)
    stage.collector.signal(signal.SIGCONT)
    after = for_a_while(stage, cluster, 10)
    frozen = compared(rows, again + after)
    claim(
        PAGE,
        f"the same while the collector hangs for {seconds / 2:.0f} s",
        said(frozen),
        frozen["ratio"] < RATIO_MAX and frozen["command_more_seconds"] < LAST_SPANS_SECONDS + 0.5,
    )
    time.sleep(3)
    stage.figures["collector_away"] = {
        "usual_seconds": median(usual),
        "usual_command_seconds": median(usual, "command"),
        "spans_a_scan": each,
        "killed": killed | {"dropped": lost},
        "frozen": frozen | {"dropped": dropped(cluster) - before},
    }
    stage.end_cluster(cluster)


def kept_or_counted(stage, collector, rows):
    """(scans whose trace is in Jaeger, spans that the collector could not send)."""
    failed = lambda: collector.counter("otelcol_exporter_send_failed_spans") + collector.counter(
        "otelcol_exporter_enqueue_failed_spans"
    )
    deadline = time.monotonic() + SEEN_SECONDS + BACK_OFF_SECONDS
    found = []
    while time.monotonic() < deadline and len(found) < len(rows):
        found = [row for row in rows if traces.get(stage.jaeger, row["trace"])]
        time.sleep(1)
    return len(found), failed()


def jaeger_away(stage, seconds):
    """With a slowed worker, so that the collector keeps every trace."""
    claim = stage.claims.add
    cluster = stage.cluster("jaeger-away", stage.collector.otlp)
    stage.slow_down(cluster, cluster.workers[2], 600)
    usual = for_a_while(stage, cluster, 15, 4)
    stage.jaeger.kill()
    away = for_a_while(stage, cluster, seconds, 4)
    count = dropped(cluster)
    stage.start(stage.jaeger)
    compare = compared(away, usual + for_a_while(stage, cluster, 15, 4))
    claim(
        PAGE,
        f"no scan waits while Jaeger is away for {seconds} s, and no process of Trawl drops a span",
        f"{said(compare)}, {count:.0f} dropped",
        compare["ratio"] < RATIO_MAX and count == 0,
    )
    found, failed = kept_or_counted(stage, stage.collector, away)
    claim(
        POLICIES,
        f"what the collector cannot send waits: Jaeger is away for {seconds} s",
        f"{found} of {len(away)} traces of that time are in Jaeger, {failed:.0f} spans failed",
        found == len(away) and failed == 0,
    )
    stage.figures["jaeger_away"] = {"scans": compare, "traces_there": found, "spans_failed": failed}
    stage.end_cluster(cluster)

    # The same with a collector that gives up sooner: what is lost is counted.
    impatient = Collector(
        stage.programs["otelcol"],
        stage.folder,
        stage.jaeger,
        "impatient",
        "exporters: {otlp_grpc/jaeger: {retry_on_failure: {initial_interval: 1s, max_interval: 2s, max_elapsed_time: 5s}}}\n",
    )
    stage.start(impatient)
    cluster = stage.cluster("given-up", impatient.otlp)
    stage.slow_down(cluster, cluster.workers[2], 600)
    stage.jaeger.kill()
    away = for_a_while(stage, cluster, 10, 4)
    failed = wait_for("the collector gives up", lambda: impatient.counter("otelcol_exporter_send_failed_spans"), 60)
    time.sleep(15)
    stage.start(stage.jaeger)
    time.sleep(15)
    failed = impatient.counter("otelcol_exporter_send_failed_spans")
    found = sum(traces.get(stage.jaeger, row["trace"]) is not None for row in away)
    claim(
        POLICIES,
        "what the collector gives up is counted in `otelcol_exporter_send_failed_spans`",
        f"{failed:.0f} spans, {len(away) - found} of {len(away)} traces are missing",
        failed > 0 and found < len(away),
    )
    stage.figures["given_up"] = {"scans": len(away), "traces_there": found, "spans_failed": failed}
    stage.end_cluster(cluster)
    stage.end(impatient)
