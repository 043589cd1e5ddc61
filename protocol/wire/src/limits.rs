//! The limits of the protocol, as named constants. Exceeding one is an error with its name and value.

/// Version of the services. 2: scans are recorded unless they are ephemeral, requests carry the leader's epoch. 3:
/// requests contain the as-of as written by users.
pub const PROTOCOL_VERSION: u32 = 3;
/// The oldest version still supported: the previous one.
pub const PROTOCOL_VERSION_OLDEST: u32 = 2;
/// What plans and results mean: part of the identity of an answer and of the class of workers. It changes with their
/// encoding or meaning only, not with a release, so that workers and coordinators of two releases work together; other
/// bits of values have other numerics.
pub const ENGINE: &str = "trawl/0.1.0";

/// Maximum bytes of one gRPC message, in either direction.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Maximum bytes of a client's request to a coordinator: a document, or the segments that a client has.
pub const REQUEST_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Maximum bytes of a scan document as JSON.
pub const DOCUMENT_BYTES_MAX: usize = 1024 * 1024;
/// Maximum bytes of an envelope's payload; below [`MESSAGE_BYTES_MAX`] so that its message always fits.
pub const PAYLOAD_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 64 * 1024;
/// Maximum bytes of a message that gathers several replies or events; a larger one is a message of its own.
pub const GATHERED_BYTES_MAX: usize = 256 * 1024;
/// Maximum segments in one scan, and so in one shard.
pub const SEGMENTS_MAX: usize = 1024 * 1024;
/// Maximum bytes of a reason or failure message; longer ones are truncated.
pub const REASON_BYTES_MAX: usize = 1024;
/// Maximum bytes of a worker's record in the control store.
pub const WORKER_RECORD_BYTES_MAX: usize = 16 * 1024;
/// Maximum bytes of what a worker reports about the bars that it holds; snapshots beyond it are left out.
pub const CACHE_REPORT_BYTES_MAX: usize = 16 * 1024;
/// Maximum snapshots in it.
pub const CACHE_REPORT_SNAPSHOTS_MAX: usize = 4;
/// Maximum bytes of a leader's record in the control store.
pub const LEADER_RECORD_BYTES_MAX: usize = 16 * 1024;
/// Maximum characters of a cluster's name or a worker's id.
pub const NAME_BYTES_MAX: usize = 64;

/// Whether a process of this version is compatible.
pub fn speaks(version: u32) -> bool {
    (PROTOCOL_VERSION_OLDEST..=PROTOCOL_VERSION).contains(&version)
}

/// The compatible versions, for messages.
pub fn spoken() -> String {
    format!("{PROTOCOL_VERSION_OLDEST} to {PROTOCOL_VERSION}")
}

/// Cuts a text to [`REASON_BYTES_MAX`] at a character boundary.
pub fn bounded_reason(mut text: String) -> String {
    if text.len() > REASON_BYTES_MAX {
        let cut = text.floor_char_boundary(REASON_BYTES_MAX);
        text.truncate(cut);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_between_characters() {
        let text = "é".repeat(REASON_BYTES_MAX);
        let cut = bounded_reason(format!("x{text}"));
        assert_eq!(cut.len(), REASON_BYTES_MAX - 1);
        assert_eq!(bounded_reason("short".to_owned()), "short");
    }
}
