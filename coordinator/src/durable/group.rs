//! One object of the result store: a checksummed container, and groups of segments' results in it.
//!
//! Layout of every object: magic (8 bytes), layout version (u32), kind (u32), length of the payload (u64), the payload,
//! the SHA-256 of everything before it (32 bytes); integers are little-endian. A group's payload is protobuf. It
//! repeats its own place (scan, generation, stage, epoch, number), so that an object under another name is detected.

use bytes::Bytes;
use prost::Message as _;
use sha2::{Digest as _, Sha256};
use trawl_wire::limits::PAYLOAD_BYTES_MAX;
use trawl_wire::{Failure, pb};

/// First bytes of every object.
const MAGIC: [u8; 8] = *b"TRAWLOBJ";
/// Version of the layout around the payload, and of the payload.
const LAYOUT_VERSION: u32 = 1;
/// Bytes before the payload.
const HEAD_BYTES: usize = 8 + 4 + 4 + 8;
/// Bytes after it.
const CHECKSUM_BYTES: usize = 32;
/// Size in bytes at which a group is closed.
pub const COMMIT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Maximum bytes of an object: a group that is almost full takes one more segment, of any size.
pub const OBJECT_BYTES_MAX: u64 = (COMMIT_BYTES_MAX + PAYLOAD_BYTES_MAX + 1024 * 1024) as u64;
/// An object is read in one answer.
const _: () = assert!(OBJECT_BYTES_MAX <= trawl_objects::BODY_BYTES_MAX);
/// Bytes of a segment's digest.
const DIGEST_BYTES: usize = 32;

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Results of segments.
    Group = 1,
    /// Bytes that the store does not interpret.
    Named = 2,
}

/// Puts a payload between magic and checksum.
pub(crate) fn seal(kind: Kind, payload: &[u8]) -> Vec<u8> {
    sealed(kind, payload.len(), |bytes| bytes.extend_from_slice(payload))
}

/// As [`seal`], for a payload of `length` bytes that `append` appends.
fn sealed(kind: Kind, length: usize, append: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + length + CHECKSUM_BYTES);
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&LAYOUT_VERSION.to_le_bytes());
    bytes.extend_from_slice(&(kind as u32).to_le_bytes());
    bytes.extend_from_slice(&(length as u64).to_le_bytes());
    append(&mut bytes);
    debug_assert_eq!(bytes.len(), HEAD_BYTES + length);
    let checksum = Sha256::digest(&bytes);
    bytes.extend_from_slice(&checksum);
    bytes
}

/// The payload of an intact object, or why it is damaged.
pub(crate) fn unseal(kind: Kind, bytes: &[u8]) -> Result<&[u8], String> {
    let Some((head, checksum)) = bytes.len().checked_sub(CHECKSUM_BYTES).map(|at| bytes.split_at(at)) else {
        return Err(format!("it ends after {} bytes", bytes.len()));
    };
    if head.len() < HEAD_BYTES {
        return Err(format!("it ends after {} bytes", bytes.len()));
    }
    let (head, payload) = head.split_at(HEAD_BYTES);
    if !head.starts_with(&MAGIC) {
        return Err("it is none of Trawl's".to_owned());
    }
    let u32_at = |at: usize| head.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
    let version = u32_at(8).unwrap_or_default();
    if version != LAYOUT_VERSION {
        return Err(format!("its layout has version {version}, this program reads {LAYOUT_VERSION}"));
    }
    let length = head.get(16..24).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
    if length != payload.len() as u64 {
        return Err(format!("it has {} bytes of payload where its head says {length}", payload.len()));
    }
    let mut hasher = Sha256::new();
    hasher.update(head);
    hasher.update(payload);
    if hasher.finalize().as_slice() != checksum {
        return Err("its checksum is another".to_owned());
    }
    if u32_at(12) != Some(kind as u32) {
        return Err("it is an object of another kind".to_owned());
    }
    Ok(payload)
}

/// The name of a group within one generation of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName {
    /// Which pass over the segments, from 0.
    pub stage: u32,
    /// The leader that wrote it: create revision of its key.
    pub epoch: u64,
    /// Counts that leader's groups of the scan.
    pub number: u32,
}

impl GroupName {
    /// Below the generation's folder.
    pub(crate) fn path(self) -> String {
        format!("s{}/{:016x}-{:08}.group", self.stage, self.epoch, self.number)
    }

    /// Reads [`GroupName::path`]; `None` for anything that it does not write.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let (stage, file) = path.strip_prefix('s')?.split_once('/')?;
        let (epoch, number) = file.strip_suffix(".group")?.split_once('-')?;
        let name = Self {
            stage: stage.parse().ok()?,
            epoch: u64::from_str_radix(epoch, 16).ok()?,
            number: number.parse().ok()?,
        };
        (name.path() == path).then_some(name)
    }
}

/// The outcome of a segment in a stage.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// Its result as received from the worker: version, schema and checksum are checked again where it is read.
    Result {
        /// `SegmentColumnsV3`; a `SegmentResultV2` in earlier steps of cross-sections, and by earlier builds.
        envelope: pb::Envelope,
        /// Digest of the result in that form.
        digest: [u8; 32],
    },
    /// It has no result, permanently.
    Failed(Failure),
}

impl Outcome {
    /// Bytes of its payload.
    pub fn payload_bytes(&self) -> usize {
        match self {
            Self::Result { envelope, .. } => envelope.payload.len(),
            Self::Failed(_) => 0,
        }
    }
}

/// A stored outcome of a segment.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    /// The segment.
    pub segment: u32,
    /// Its outcome.
    pub outcome: Outcome,
}

impl Stored {
    /// Approximate size in bytes, in memory and in a group.
    pub fn bytes(&self) -> usize {
        const AROUND: usize = 128;
        AROUND
            + match &self.outcome {
                Outcome::Result { envelope, .. } => envelope.payload.len(),
                Outcome::Failed(failure) => failure.message.len(),
            }
    }
}

/// The first and the last event of an answer for clients, encoded. They are in the last group of a generation: if they are stored,
/// everything is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AnswerEnds {
    /// [`pb::Accepted`].
    pub accepted: Vec<u8>,
    /// [`pb::Summary`].
    pub summary: Vec<u8>,
}

/// What a group holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Group {
    pub segments: Vec<Stored>,
    pub ends: Option<AnswerEnds>,
}

/// Payload of a group. Field numbers are never reused.
#[derive(Clone, PartialEq, prost::Message)]
struct GroupV1 {
    #[prost(string, tag = "1")]
    scan: String,
    #[prost(uint32, tag = "2")]
    generation: u32,
    #[prost(uint32, tag = "3")]
    stage: u32,
    #[prost(uint64, tag = "4")]
    epoch: u64,
    #[prost(uint32, tag = "5")]
    number: u32,
    #[prost(message, repeated, tag = "6")]
    segments: Vec<SegmentV1>,
    /// Earlier releases ignore it, and have the ends in objects of their own.
    #[prost(message, optional, tag = "7")]
    ends: Option<EndsV1>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct EndsV1 {
    #[prost(bytes = "vec", tag = "1")]
    accepted: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    summary: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct SegmentV1 {
    #[prost(uint32, tag = "1")]
    segment: u32,
    #[prost(oneof = "OutcomeV1", tags = "2, 3")]
    outcome: Option<OutcomeV1>,
    #[prost(bytes = "vec", tag = "4")]
    digest: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum OutcomeV1 {
    #[prost(message, tag = "2")]
    Result(pb::Envelope),
    #[prost(message, tag = "3")]
    Failed(pb::Failure),
}

/// A group's bytes.
pub(crate) fn encode_group(
    scan: &str,
    generation: u32,
    name: GroupName,
    segments: &[Stored],
    ends: Option<&AnswerEnds>,
) -> Vec<u8> {
    let segment = |stored: &Stored| {
        let (outcome, digest) = match &stored.outcome {
            Outcome::Result { envelope, digest } => (OutcomeV1::Result(envelope.clone()), digest.to_vec()),
            Outcome::Failed(failure) => (OutcomeV1::Failed(failure.clone().into()), Vec::new()),
        };
        SegmentV1 { segment: stored.segment, outcome: Some(outcome), digest }
    };
    let group = GroupV1 {
        scan: scan.to_owned(),
        generation,
        stage: name.stage,
        epoch: name.epoch,
        number: name.number,
        segments: segments.iter().map(segment).collect(),
        ends: ends.cloned().map(|AnswerEnds { accepted, summary }| EndsV1 { accepted, summary }),
    };
    // A vector grows as needed, so appending to it does not fail.
    sealed(Kind::Group, group.encoded_len(), |bytes| group.encode(bytes).unwrap_or_default())
}

/// Reads what [`encode_group`] wrote, or returns why it is damaged. The results are parts of `bytes`, not copies.
pub(crate) fn decode_group(scan: &str, generation: u32, name: GroupName, bytes: &Bytes) -> Result<Group, String> {
    let payload = bytes.slice_ref(unseal(Kind::Group, bytes)?);
    let group = GroupV1::decode(payload).map_err(|e| format!("its payload cannot be read: {e}"))?;
    let place = GroupName { stage: group.stage, epoch: group.epoch, number: group.number };
    if group.scan != scan || group.generation != generation || place != name {
        return Err("it is another object under this name".to_owned());
    }
    let stored = |one: SegmentV1| {
        let outcome = match one.outcome {
            Some(OutcomeV1::Result(envelope)) => {
                let digest = <[u8; DIGEST_BYTES]>::try_from(one.digest.as_slice())
                    .map_err(|_| format!("segment {} has no digest", one.segment))?;
                Outcome::Result { envelope, digest }
            }
            Some(OutcomeV1::Failed(failure)) => Outcome::Failed(failure.into()),
            None => return Err(format!("segment {} has no outcome", one.segment)),
        };
        Ok(Stored { segment: one.segment, outcome })
    };
    let ends = group.ends.map(|EndsV1 { accepted, summary }| AnswerEnds { accepted, summary });
    Ok(Group { segments: group.segments.into_iter().map(stored).collect::<Result<_, String>>()?, ends })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use trawl_wire::ErrorKind;

    use super::*;

    fn stored(segment: u32, payload: &[u8]) -> Stored {
        let envelope = pb::Envelope { version: 2, schema: 7, length: 3, checksum: 5, payload: payload.to_vec().into() };
        Stored { segment, outcome: Outcome::Result { envelope, digest: [9; 32] } }
    }

    const NAME: GroupName = GroupName { stage: 1, epoch: 77, number: 3 };

    #[test]
    fn a_group_cut_off_at_any_byte_or_with_any_byte_changed_is_damaged() {
        let failed = Stored { segment: 2, outcome: Outcome::Failed(Failure::new(ErrorKind::Permanent, "why")) };
        let segments = vec![stored(1, b"abc"), failed];
        let ends = Some(AnswerEnds { accepted: b"head".to_vec(), summary: b"tail".to_vec() });
        let bytes = encode_group("b-1", 0, NAME, &segments, ends.as_ref());
        let decode_group = |bytes: &[u8]| decode_group("b-1", 0, NAME, &Bytes::copy_from_slice(bytes));
        assert_eq!(decode_group(&bytes).unwrap(), Group { segments, ends });
        for length in 0..bytes.len() {
            assert!(decode_group(&bytes[..length]).is_err(), "cut off at {length}");
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            assert!(decode_group(&changed).is_err(), "changed at {at}");
        }
        assert!(decode_group(&[bytes, vec![0]].concat()).is_err(), "longer");
    }

    #[test]
    fn an_object_under_anothers_name_is_damaged() {
        let bytes = Bytes::from(encode_group("b-1", 0, NAME, &[stored(1, b"abc")], None));
        for (scan, generation, name) in [
            ("b-2", 0, NAME),
            ("b-1", 1, NAME),
            ("b-1", 0, GroupName { stage: 2, ..NAME }),
            ("b-1", 0, GroupName { epoch: 78, ..NAME }),
            ("b-1", 0, GroupName { number: 4, ..NAME }),
        ] {
            assert!(decode_group(scan, generation, name, &bytes).is_err(), "{scan} {generation} {name:?}");
        }
        assert!(decode_group("b-1", 0, NAME, &seal(Kind::Named, b"abc").into()).is_err());
        assert_eq!(unseal(Kind::Named, &seal(Kind::Named, b"abc")), Ok(&b"abc"[..]));
    }

    #[test]
    fn names_sort_as_their_leaders_and_come_back_as_they_were() {
        assert_eq!(NAME.path(), "s1/000000000000004d-00000003.group");
        assert_eq!(GroupName::parse(&NAME.path()), Some(NAME));
        for other in ["", "s1", "s1/x", "s01/000000000000004d-00000003.group", "s1/4d-3.group", "s1/a/b.group"] {
            assert_eq!(GroupName::parse(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_group("b-1", 0, NAME, &bytes.clone().into());
            // The payload too, behind a valid checksum.
            let _ = decode_group("b-1", 0, NAME, &seal(Kind::Group, &bytes).into());
        }

        #[test]
        fn what_is_stored_is_what_is_read(
            segments in proptest::collection::vec((any::<u32>(), proptest::collection::vec(any::<u8>(), 0..50)), 0..20)
        ) {
            let segments: Vec<Stored> = segments.into_iter().map(|(s, p)| stored(s, &p)).collect();
            let bytes = encode_group("b-1", 4, NAME, &segments, None);
            prop_assert_eq!(decode_group("b-1", 4, NAME, &bytes.into()).unwrap(), Group { segments, ends: None });
        }
    }
}
