//! Every bound of the cluster's words, named. What passes one is refused with its name and value.

/// Version of the services. 2: scans are recorded unless they are ephemeral, requests carry the leader's epoch. 3: a
/// request has its as-of as users write it.
pub const PROTOCOL_VERSION: u32 = 3;
/// The oldest version that is still spoken with: the one before.
pub const PROTOCOL_VERSION_OLDEST: u32 = 2;
/// The same for the whole executable: two builds of one version give the same bits.
pub const ENGINE: &str = concat!("trawl/", env!("CARGO_PKG_VERSION"));

/// Bytes of one gRPC message, either way.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of a scan document as JSON.
pub const DOCUMENT_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of an envelope's payload; below [`MESSAGE_BYTES_MAX`] so that its message always fits.
pub const PAYLOAD_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 64 * 1024;
/// Segments in one scan, and so in one shard.
pub const SEGMENTS_MAX: usize = 1024 * 1024;
/// Bytes of a reason or failure message; longer ones are cut.
pub const REASON_BYTES_MAX: usize = 1024;
/// Bytes of a worker's record in the control store.
pub const WORKER_RECORD_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a leader's record in the control store.
pub const LEADER_RECORD_BYTES_MAX: usize = 16 * 1024;
/// Characters of a cluster's name or a worker's id.
pub const NAME_BYTES_MAX: usize = 64;

/// Whether a process of this version can be worked with.
pub fn speaks(version: u32) -> bool {
    (PROTOCOL_VERSION_OLDEST..=PROTOCOL_VERSION).contains(&version)
}

/// Which versions those are, for messages.
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
