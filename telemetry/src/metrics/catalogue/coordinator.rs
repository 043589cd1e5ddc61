//! Metrics of a coordinator. Scans, shards and workers are those of the terms in which it led.

use crate::metrics::labels::label;
use crate::metrics::{Counter, Gauge, Histogram};

label! {
    /// Where a scan came from.
    pub enum Origin("origin") {
        Client = "client",
        /// Taken over from a previous leader.
        Predecessor = "predecessor",
    }
}

label! {
    /// How a scan ended at this coordinator.
    pub enum ScanEnd("state") {
        Done = "done",
        Failed = "failed",
        Cancelled = "cancelled",
        /// The leader's term ended: another coordinator continues the scan.
        HandedOver = "handed_over",
    }
}

label! {
    /// Why a submission was refused.
    pub enum Refusal("reason") {
        /// More bytes, or a longer key, than are accepted.
        TooLarge = "too_large",
        /// The caller has too many scans running.
        CallerScans = "caller_scans",
        /// The caller submits too often.
        CallerRate = "caller_rate",
        /// Too many concurrent callers.
        Callers = "callers",
        /// Too many scans are waiting.
        QueueFull = "queue_full",
        /// Too many streams of events are open.
        Streams = "streams",
        /// No room for another record in the control store.
        Records = "records",
        Version = "version",
        /// The key belongs to another request.
        KeyReused = "key_reused",
        /// Accepted for checking, then refused: it does not compile, its dataset is missing, or it could not be
        /// recorded.
        NotAccepted = "not_accepted",
    }
}

label! {
    /// Why a shard was sent.
    pub enum DispatchPurpose("purpose") {
        Work = "work",
        /// Part of it was sent before.
        Retry = "retry",
        /// Suspected of killing workers.
        Isolation = "isolation",
        /// Another worker has it too, and is late.
        Hedge = "hedge",
        /// To find out which of several different results is right.
        Vote = "vote",
    }
}

label! {
    /// How an attempt at a shard ended.
    pub enum ShardEnd("outcome") {
        Done = "done",
        /// The worker refused it, or gave it back.
        Refused = "refused",
        /// The connection broke: the worker counts as lost.
        Broken = "broken",
        /// Its result was no longer needed.
        Stopped = "stopped",
    }
}

label! {
    /// How a segment ended, or a part of one that was bisected.
    pub enum SegmentEnd("outcome") {
        Result = "result",
        Failed = "failed",
        /// A symbol that kills workers.
        Poisoned = "poisoned",
    }
}

label! {
    /// State of a worker.
    pub enum WorkerState("state") {
        Serving = "serving",
        Draining = "draining",
        /// Registered, but not answering.
        Lost = "lost",
        /// Its results proved wrong.
        Quarantined = "quarantined",
    }
}

label! {
    /// Why a worker left the cluster.
    pub enum WorkerLoss("reason") {
        Died = "died",
        Left = "left",
    }
}

label! {
    /// How a client's stream ended.
    pub enum StreamEnd("reason") {
        Complete = "complete",
        ClientGone = "client_gone",
        /// It read nothing for too long.
        Stalled = "stalled",
        /// This coordinator no longer held the scan.
        Broken = "broken",
    }
}

label! {
    /// What became of a dataset whose newest bar may be at most so old.
    pub enum DataState("state") {
        Fresh = "fresh",
        /// Its newest bar is older.
        Late = "late",
        /// It is missing, damaged, or its data root does not answer.
        Unreadable = "unreadable",
    }
}

label! {
    /// Why a request of HTTP was refused, apart from strangers, who are counted in trawl_auth_failures.
    pub enum HttpRefusal("reason") {
        /// The header Host names another machine than the one that was reached: DNS rebinding.
        Host = "host",
        /// A page of another site made a browser send it.
        Origin = "origin",
        /// No path or no method of this interface.
        Path = "path",
        ContentType = "content_type",
        /// The body, or the document in it.
        TooLarge = "too_large",
        /// A body, query or header that cannot be read.
        Malformed = "malformed",
        /// The body did not arrive in time.
        SlowRequest = "slow_request",
        /// The client did not read its reply, and was disconnected.
        SlowReader = "slow_reader",
        /// Too many answers, streams of events or waiting requests.
        Busy = "busy",
    }
}

super::metrics! { Coordinator;
    /// Scans that were accepted, or taken over.
    SCANS_ACCEPTED: Counter<Origin, { Origin::COUNT }> = "trawl_scans_accepted", None;
    /// Accepted scans that ended here; the difference to those accepted is what waits or runs.
    SCANS_ENDED: Counter<ScanEnd, { ScanEnd::COUNT }> = "trawl_scans_ended", None;
    /// From a scan's request to its end.
    SCAN_DURATION: Histogram<ScanEnd, { ScanEnd::COUNT }> = "trawl_scan_duration_seconds", Seconds;
    /// How long scans waited for their turn; 0 of those that began at once.
    SCAN_WAIT: Histogram = "trawl_scan_wait_duration_seconds", Seconds;
    /// Submissions that were turned down.
    REFUSALS: Counter<Refusal, { Refusal::COUNT }> = "trawl_refusals", None;
    /// Estimated work of the steps that were handed to the scheduler, in seconds of one core.
    WORK_SUBMITTED: Counter = "trawl_work_submitted_seconds", Seconds;
    /// The part of it that ended: done, failed or cancelled.
    WORK_ENDED: Counter = "trawl_work_ended_seconds", Seconds;
    /// Estimated work that is left, of scans that run and scans that wait, in seconds of one core; what to scale workers by.
    WORK_REMAINING: Gauge = "trawl_work_remaining_seconds", Seconds;
    /// Shards that were sent to workers.
    SHARDS_DISPATCHED: Counter<DispatchPurpose, { DispatchPurpose::COUNT }> = "trawl_shards_dispatched", None;
    /// Attempts at shards that ended.
    SHARDS_ENDED: Counter<ShardEnd, { ShardEnd::COUNT }> = "trawl_shards_ended", None;
    /// From a shard's dispatch to the end of the attempt.
    SHARD_DURATION: Histogram<ShardEnd, { ShardEnd::COUNT }> = "trawl_shard_duration_seconds", Seconds;
    /// Shards at workers now.
    SHARDS_IN_FLIGHT: Gauge = "trawl_shards_in_flight", None;
    /// Segments, and parts of bisected ones, that ended; each counts once per step, however often it ran.
    SEGMENTS_ENDED: Counter<SegmentEnd, { SegmentEnd::COUNT }> = "trawl_segments_ended", None;
    /// Segments of which workers gave different results.
    DISPUTES: Counter = "trawl_disputes", None;
    /// Accepted results that proved wrong in time and were replaced.
    RESULTS_REPLACED: Counter = "trawl_results_replaced", None;
    /// Scans that were given the answer of an earlier scan with the same identity.
    ANSWERS_REUSED: Counter = "trawl_answers_reused", None;
    /// Ended scans of which a result became unconfirmed afterwards.
    SCANS_DOUBTED: Counter = "trawl_scans_doubted", None;
    /// Registered workers.
    WORKERS: Gauge<WorkerState, { WorkerState::COUNT }> = "trawl_workers", None;
    /// Threads of the workers that are given work.
    WORKER_THREADS: Gauge = "trawl_worker_threads", None;
    /// Workers that joined, again after a loss too.
    WORKERS_JOINED: Counter = "trawl_workers_joined", None;
    /// Workers that are gone.
    WORKERS_LOST: Counter<WorkerLoss, { WorkerLoss::COUNT }> = "trawl_workers_lost", None;
    /// Workers that get no more work: their results proved wrong, or they failed on data that is sound elsewhere.
    WORKERS_QUARANTINED: Counter = "trawl_workers_quarantined", None;
    /// 1 where this coordinator leads.
    LEADER: Gauge = "trawl_leader", None;
    /// The epoch of its present or last term; it grows from leader to leader.
    LEADER_EPOCH: Gauge = "trawl_leader_epoch", None;
    /// Elections that it won.
    ELECTIONS_WON: Counter = "trawl_elections_won", None;
    /// Terms of its own that ended.
    TERMS_ENDED: Counter = "trawl_leader_terms_ended", None;
    /// How long writes of one object to the result store took, failed ones too.
    RESULT_PUT_DURATION: Histogram = "trawl_result_store_put_duration_seconds", Seconds;
    /// Writes to the result store that failed.
    RESULT_PUT_FAILURES: Counter = "trawl_result_store_put_failures", None;
    /// Bytes written to the result store.
    RESULT_PUT_BYTES: Counter = "trawl_result_store_put_bytes", Bytes;
    /// Bytes of results in memory: on their way from workers or from the store, for clients to read, decoded to be merged.
    RESULTS_HELD: Gauge = "trawl_results_held_bytes", Bytes;
    /// Bytes of documents, compiled plans and running scans in memory.
    PLANS_HELD: Gauge = "trawl_plans_held_bytes", Bytes;
    /// Bytes of results on disk because they do not fit into memory.
    RESULTS_SPOOLED: Gauge = "trawl_results_spooled_bytes", Bytes;
    /// Maximum bytes of results on disk; while they are used up, no further scan begins.
    RESULTS_SPOOL_LIMIT: Gauge = "trawl_results_spool_limit_bytes", Bytes;
    /// Datasets of --watched-datasets, by whether their newest bar is as new as it has to be; of leaders and others alike.
    WATCHED_DATASETS: Gauge<DataState, { DataState::COUNT }> = "trawl_watched_datasets", None;
    /// Bytes of stored files that were compared with their checksums in the background; leaders count them.
    SCRUBBED: Counter = "trawl_scrubbed_bytes", Bytes;
    /// Passes over all stored files that ended.
    SCRUB_PASSES: Counter = "trawl_scrub_passes", None;
    /// Stored files that the last pass found damaged, or more if the present one has found more; datasets that cannot be opened count too.
    SCRUB_DAMAGED: Gauge = "trawl_scrub_damaged_files", None;
    /// Datasets that were compacted in the background.
    COMPACTIONS: Counter = "trawl_compactions", None;
    /// Compactions in the background that failed.
    COMPACTION_FAILURES: Counter = "trawl_compaction_failures", None;
    /// Streams of events that clients opened.
    STREAMS_OPENED: Counter = "trawl_client_streams_opened", None;
    /// Streams of clients that ended.
    STREAMS_ENDED: Counter<StreamEnd, { StreamEnd::COUNT }> = "trawl_client_streams_ended", None;
    /// Time that events waited for clients to read, summed over streams.
    CLIENT_WAIT: Counter = "trawl_client_wait_seconds", Seconds;
    /// Requests of HTTP that had a head.
    HTTP_REQUESTS: Counter = "trawl_http_requests", None;
    /// Requests of HTTP that were refused, and connections that were closed.
    HTTP_REFUSALS: Counter<HttpRefusal, { HttpRefusal::COUNT }> = "trawl_http_refusals", None;
    /// Connections of HTTP that are open.
    HTTP_CONNECTIONS: Gauge = "trawl_http_connections", None;
}
