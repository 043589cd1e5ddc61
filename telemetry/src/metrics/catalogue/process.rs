//! Metrics of every server: about itself, etcd, and clients that were refused. Names that begin with `process_` are
//! Prometheus' conventions.

use std::sync::Mutex;

use crate::metrics::kinds::{Declared, Facts, Metric, Sampled};
use crate::metrics::labels::label;
use crate::metrics::process;
use crate::metrics::{Counter, Gauge, Histogram, Kind, Place, Unit};

label! {
    /// Kind of a call to etcd.
    pub enum EtcdCall("call") {
        Put = "put",
        Delete = "delete",
        Get = "get",
        Commit = "commit",
        List = "list",
        Watch = "watch",
        Grant = "grant",
        KeepAlive = "keep_alive",
        Revoke = "revoke",
    }
}

label! {
    /// How a call to etcd failed, after its own retries.
    pub enum EtcdFailure("reason") {
        Unreachable = "unreachable",
        LeaseOver = "lease_over",
        Refused = "refused",
        /// etcd's quota is used up.
        NoSpace = "no_space",
        /// A reply or a request above the limit of a message; a listing continues with smaller pages.
        TooLarge = "too_large",
        /// The revision being read was compacted; a listing starts again.
        Compacted = "compacted",
    }
}

label! {
    /// Why a client was refused.
    pub enum AuthFailure("reason") {
        /// TLS: no certificate, another CA, expired, too slow.
        Handshake = "handshake",
        /// No token, or an unknown one.
        Unauthenticated = "unauthenticated",
        /// Certificate or token without the right.
        Denied = "denied",
        /// The method does not exist.
        UnknownCall = "unknown_call",
    }
}

super::metrics! { Every;
    /// How long calls on etcd took with their retries, failed ones too; the beginning alone of a watch.
    ETCD_CALL_DURATION: Histogram<EtcdCall, { EtcdCall::COUNT }> = "trawl_etcd_call_duration_seconds", Seconds;
    /// Calls on etcd that failed.
    ETCD_CALL_FAILURES: Counter<EtcdFailure, { EtcdFailure::COUNT }> = "trawl_etcd_call_failures", None;
    /// Connections and calls of strangers.
    AUTH_FAILURES: Counter<AuthFailure, { AuthFailure::COUNT }> = "trawl_auth_failures", None;
    /// When this process's certificate ends, in seconds since 1970; 0 without one.
    CERTIFICATE_EXPIRY: Gauge = "trawl_certificate_expiry_timestamp_seconds", Seconds;
}

const fn declared(name: &'static str, unit: Unit, meaning: &'static str) -> Declared {
    Declared { name, meaning, unit, place: Place::Every }
}

const fn gauge(name: &'static str, unit: Unit, ask: fn() -> Option<f64>, meaning: &'static str) -> Sampled {
    Sampled { declared: declared(name, unit, meaning), kind: Kind::Gauge, ask }
}

const fn counter(name: &'static str, unit: Unit, ask: fn() -> Option<f64>, meaning: &'static str) -> Sampled {
    Sampled { declared: declared(name, unit, meaning), kind: Kind::Counter, ask }
}

/// What this process was built from.
pub static BUILD: Facts = Facts {
    declared: declared("trawl_build", Unit::None, "What this process was built from."),
    labels: &[("version", &[]), ("architecture", &[]), ("system", &[])],
    rows: Mutex::new(Vec::new()),
};

static SAMPLED: [Sampled; 7] = [
    counter("trawl_spans_dropped", Unit::None, spans_dropped, "Spans that were made and could not be kept or sent."),
    gauge(
        "trawl_memory_limit_bytes",
        Unit::Bytes,
        process::memory_limit_bytes,
        "Memory that this process may have: its control group's limit, else the machine's.",
    ),
    gauge("process_resident_memory_bytes", Unit::Bytes, process::resident_bytes, "Memory that is resident."),
    counter("process_cpu_seconds", Unit::Seconds, process::cpu_s, "CPU time, user and system."),
    gauge("process_open_fds", Unit::None, process::open_files, "Open file descriptors."),
    gauge("process_max_fds", Unit::None, process::open_files_max, "File descriptors that may be open."),
    gauge("process_start_time_seconds", Unit::Seconds, process::start_time_s, "When it began, in seconds since 1970."),
];

fn spans_dropped() -> Option<f64> {
    Some(crate::dropped_spans() as f64)
}

/// Metrics that the macro cannot declare.
pub(super) static MORE: &[&dyn Metric] =
    &[&BUILD, &SAMPLED[0], &SAMPLED[1], &SAMPLED[2], &SAMPLED[3], &SAMPLED[4], &SAMPLED[5], &SAMPLED[6]];
