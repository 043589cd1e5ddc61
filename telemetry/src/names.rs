//! Names of spans and of their attributes, each declared once. `docs/telemetry.md` lists them; a test compares.
//!
//! Where OpenTelemetry has a convention its name is used; Trawl's own names begin with `trawl.`. Times are
//! milliseconds.

/// Declares names, and a table of them with their meanings.
macro_rules! names {
    ($(#[$of:meta])* $table:ident: $($constant:ident = $name:literal, $meaning:literal;)*) => {
        $(#[doc = $meaning] pub const $constant: &str = $name;)*
        $(#[$of])*
        pub const $table: &[(&str, &str)] = &[$(($name, $meaning)),*];
    };
}

/// Spans.
pub mod span {
    names! {
        /// Every span and what it covers.
        ALL:
        SCAN = "scan", "A scan as who asked for it sees it, from the command to the whole answer; the root.";
        UPDATE = "update", "The same of `trawl update`.";
        SUBMIT = "submit", "A scan at its coordinator, from the request to its end.";
        PLAN = "plan", "Opening the snapshot and compiling the document.";
        SHARD = "shard", "One attempt at a shard, from its dispatch to its last reply. Hedges and retries link to the attempts before.";
        EXECUTE = "execute", "A shard at its worker.";
        RECEIVE = "receive", "Checking the request, opening the snapshot, compiling the document.";
        QUEUE = "queue", "Waiting: of a scan for its turn, of a shard for the worker's compute threads.";
        LOAD = "load", "Bars from disk, or from the worker's memory.";
        H2D = "h2d", "Bars to the memory of a device.";
        KERNEL = "kernel", "Computing: one span for each fusion group, a program of one frame.";
        D2H = "d2h", "Results from the memory of a device.";
        ENCODE = "encode", "Results into the form that is sent.";
        SEND = "send", "Waiting until the coordinator takes the results.";
        CROSS_SECTION = "cross_section", "Reductions over all symbols between two steps.";
        MERGE = "merge", "Putting the answer together.";
        STREAM = "stream", "Sending events to one client.";
    }
}

/// Attributes.
pub mod attribute {
    names! {
        /// Every attribute and what it holds.
        ALL:
        SCAN_ID = "trawl.scan.id", "The scan's id, as `trawl scans list` shows it.";
        MODE = "trawl.scan.mode", "`cluster` or `embedded`.";
        DATASET = "trawl.dataset", "The dataset's name, with its snapshot where one was asked for.";
        STEP = "trawl.step", "Which of the scan's steps, from 1; several where there are cross-sections.";
        SHARD = "trawl.shard", "The shard: the first of its segments.";
        SEGMENTS = "trawl.segments", "Segments (groups of symbols).";
        SYMBOLS = "trawl.symbols", "Symbols computed.";
        BARS = "trawl.bars", "Bars of these symbols.";
        BYTES = "trawl.bytes", "Bytes of these bars; of a stage, bytes read, copied or written.";
        ATTEMPT = "trawl.attempt", "Number of the dispatch, unique in its coordinator.";
        PURPOSE = "trawl.purpose", "Why the shard was dispatched: `work`, `isolation`, `hedge` or `vote`.";
        HEDGE = "trawl.hedge", "Whether the attempt is a second one beside one that is late.";
        WORKER = "trawl.worker", "The worker's id.";
        DEVICE = "trawl.device", "What computed: `cpu`, or a device's name.";
        CACHE = "trawl.cache", "Where the bars were: `device`, `memory`, `disk` or `mixed`.";
        QUEUE_MS = "trawl.queue_ms", "How long the shard waited for a worker.";
        SLOW_AFTER_MS = "trawl.slow_after_ms", "How long the attempt may take before it counts as slow.";
        SLOW = "trawl.slow", "Whether it took longer.";
        ENDING = "trawl.ending", "How the attempt ended: `done`, `stopped`, `failed`, `refused` or `broken`.";
        RECEIVE_MS = "trawl.receive_ms", "Of a `shard`: time of its stage `receive` at the worker.";
        THREADS_MS = "trawl.threads_ms", "The same of `queue`: how long it waited for the worker's threads.";
        LOAD_MS = "trawl.load_ms", "The same of `load`, added up over threads.";
        H2D_MS = "trawl.h2d_ms", "The same of `h2d`.";
        KERNEL_MS = "trawl.kernel_ms", "The same of `kernel`, added up over threads and fusion groups.";
        D2H_MS = "trawl.d2h_ms", "The same of `d2h`.";
        ENCODE_MS = "trawl.encode_ms", "The same of `encode`, added up over threads.";
        BUSY_MS = "trawl.busy_ms", "Time spent in the stage, added up over threads; the span reaches from the first begin to the last end.";
        COUNT = "trawl.count", "How many times the stage was gone through.";
        FUSION_GROUP = "trawl.fusion_group", "Which program of the step, from 0.";
        SEGMENT = "trawl.segment", "The one segment that the stage is about.";
        EVENTS = "trawl.events", "Events sent to the client.";
        LINK = "trawl.link", "Of a link: `hedge` or `retry`, what the linked attempt was followed by.";
        GPU_UUID = "trawl.gpu.uuid", "Of a worker's resource: its GPUs, as `nvidia-smi -L` and DCGM name them.";
        RPC_SYSTEM = "rpc.system.name", "`grpc`.";
        RPC_METHOD = "rpc.method", "Service and method, such as `trawl.v1.Worker/Execute`.";
        SERVER_ADDRESS = "server.address", "Host of the worker.";
        SERVER_PORT = "server.port", "Port of the worker.";
        ERROR_TYPE = "error.type", "The kind of failure.";
        HOST_NAME = "host.name", "Of the resource: `TRAWL_NODE`, else the host's name.";
        SERVICE_NAME = "service.name", "Of the resource: `trawl`, `trawl-coordinator` or `trawl-worker`.";
        SERVICE_VERSION = "service.version", "Of the resource: the program's version.";
        SERVICE_INSTANCE_ID = "service.instance.id", "Of the resource: this process, new at each start.";
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_name_is_documented_with_its_meaning() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/telemetry.md");
        let page = std::fs::read_to_string(page).unwrap();
        for (name, meaning) in super::span::ALL.iter().chain(super::attribute::ALL) {
            let line = format!("| `{name}` | {meaning} |");
            assert!(page.lines().any(|l| l == line), "docs/telemetry.md lacks the line\n{line}");
        }
        let rows = page.lines().skip_while(|l| !l.starts_with("## Spans")).filter(|l| l.starts_with("| `"));
        let known = super::span::ALL.len() + super::attribute::ALL.len();
        assert_eq!(rows.count(), known, "a row without a declared name");
    }
}
