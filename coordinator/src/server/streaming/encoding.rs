//! A message of events as bytes, without a copy of the results in it.
//!
//! A result of 8 MiB that many clients read is in memory once: in the log. Of each message only the part is encoded that is about
//! to be sent; the large field of an event comes last in it and is read where it lies (large texts are copied for a moment while
//! its head is made). Protocol Buffers allow fields in any order.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{BufMut as _, BytesMut};
use prost::Message as _;
use trawl_wire::pb::scan_event::Event;

/// Bytes in front of a message of gRPC: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;
/// Field numbers in trawl.proto; a test decodes what is encoded here.
mod field {
    pub const MORE: u8 = 6;
    pub const RESULT: u8 = 2;
    pub const PAYLOAD: u8 = 5;
    pub const POINTS_JSON: u8 = 11;
    pub const REPORT_JSON: u8 = 2;
    pub const DIAGNOSTICS_JSON: u8 = 2;
}

/// A message on its way: an event and those that follow it in the same message.
#[derive(Debug)]
pub(super) struct OutgoingMessage {
    /// The bytes of the message of gRPC, without its prefix.
    length: usize,
    events: VecDeque<Arc<Event>>,
    /// What is being sent.
    sending: Sending,
    /// Whether the first event has been begun.
    begun: bool,
}

#[derive(Debug, Default)]
struct Sending {
    /// Bytes before the large field.
    head: Vec<u8>,
    /// The event, whose large field follows `head`.
    event: Option<Arc<Event>>,
    /// Bytes that were sent, of both.
    sent: usize,
}

impl Sending {
    fn large(&self) -> &[u8] {
        self.event.as_deref().map_or(&[], large_field)
    }

    /// Copies what fits into `room` bytes; whether everything has been copied.
    fn fill(&mut self, slice: &mut BytesMut, room: usize) -> bool {
        let (head, large) = (&self.head, self.large());
        let (before, all) = (self.sent, head.len() + large.len());
        let until = all.min(before + room);
        if before < head.len() {
            slice.put_slice(&head[before..until.min(head.len())]);
        }
        if until > head.len() {
            slice.put_slice(&large[before.saturating_sub(head.len())..until - head.len()]);
        }
        self.sent = until;
        until == all
    }
}

impl OutgoingMessage {
    /// `first` and the events that follow it.
    pub fn new(first: Arc<Event>, more: Vec<Arc<Event>>) -> Self {
        let nested = |event: &Arc<Event>| {
            let bytes = event.encoded_len();
            1 + prost::length_delimiter_len(bytes) + bytes
        };
        let length = first.encoded_len() + more.iter().map(nested).sum::<usize>();
        let mut events = VecDeque::from(more);
        events.push_front(first);
        Self { length, events, sending: Sending::default(), begun: false }
    }

    /// Bytes of all of it.
    pub fn bytes(&self) -> usize {
        PREFIX_BYTES + self.length
    }

    /// Whether some of it has been sent.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Appends what fits into `room` bytes; whether that was the rest of the message. Of a message that has begun, its events
    /// before the one that is being sent are given back already.
    pub fn fill(&mut self, slice: &mut BytesMut, room: usize) -> bool {
        let limit = slice.len() + room;
        loop {
            if !self.sending.fill(slice, limit - slice.len()) {
                return false;
            }
            let Some(event) = self.events.pop_front() else { return true };
            let mut head = Vec::new();
            if self.begun {
                head.push(key(field::MORE));
                put_length(&mut head, event.encoded_len());
            } else {
                head.push(0);
                // Results are bounded long before 4 GiB.
                head.extend(u32::try_from(self.length).unwrap_or(u32::MAX).to_be_bytes());
                debug_assert_eq!(head.len(), PREFIX_BYTES);
                self.begun = true;
            }
            put_event(&mut head, &event);
            self.sending = Sending { head, event: Some(event), sent: 0 };
        }
    }
}

/// The key of a field that has a length; its number is at most 15.
fn key(number: u8) -> u8 {
    debug_assert!(number < 16);
    number << 3 | 2
}

fn put_length(bytes: &mut Vec<u8>, length: usize) {
    // A vector has room for a length.
    let _ = prost::encode_length_delimiter(length, bytes);
}

/// The field of an event that may be large.
fn large_field(event: &Event) -> &[u8] {
    match event {
        Event::Accepted(accepted) => accepted.points_json.as_bytes(),
        Event::SegmentDone(done) => done.result.as_ref().map_or(&[], |result| &result.payload),
        Event::SegmentFailed(_) => &[],
        Event::Summary(summary) => summary.report_json.as_bytes(),
        Event::Refused(refused) => refused.diagnostics_json.as_bytes(),
    }
}

/// Appends the encoded event except its large field, which has to follow.
fn put_event(bytes: &mut Vec<u8>, event: &Event) {
    let large = large_field(event).len();
    let mut rest = event.clone();
    let number = match &mut rest {
        Event::Accepted(accepted) => {
            accepted.points_json = String::new();
            field::POINTS_JSON
        }
        Event::SegmentDone(done) => {
            // The envelope is the last field, and the payload the last one in it.
            let envelope = done.result.take();
            put_rest(bytes, event, &rest);
            if let Some(mut envelope) = envelope {
                let length = envelope.encoded_len();
                envelope.payload = bytes::Bytes::new();
                bytes.push(key(field::RESULT));
                put_length(bytes, length);
                bytes.extend(envelope.encode_to_vec());
                put_large(bytes, field::PAYLOAD, large);
            }
            return;
        }
        Event::SegmentFailed(_) => return event.encode(bytes),
        Event::Summary(summary) => {
            summary.report_json = String::new();
            field::REPORT_JSON
        }
        Event::Refused(refused) => {
            refused.diagnostics_json = String::new();
            field::DIAGNOSTICS_JSON
        }
    };
    put_rest(bytes, event, &rest);
    put_large(bytes, number, large);
}

/// Appends the key and the length of `event`, and the content of `rest`, the same event without some of its fields.
fn put_rest(bytes: &mut Vec<u8>, event: &Event, rest: &Event) {
    let (number, whole, content) = match (event, rest) {
        (Event::Accepted(whole), Event::Accepted(rest)) => (1, whole.encoded_len(), rest.encode_to_vec()),
        (Event::SegmentDone(whole), Event::SegmentDone(rest)) => (2, whole.encoded_len(), rest.encode_to_vec()),
        (Event::Summary(whole), Event::Summary(rest)) => (4, whole.encoded_len(), rest.encode_to_vec()),
        (Event::Refused(whole), Event::Refused(rest)) => (5, whole.encoded_len(), rest.encode_to_vec()),
        _ => unreachable!("an event and a copy of it"),
    };
    bytes.push(key(number));
    put_length(bytes, whole);
    bytes.extend(content);
}

/// Appends the key and the length of the large field; an empty one is left out.
fn put_large(bytes: &mut Vec<u8>, number: u8, length: usize) {
    if length > 0 {
        bytes.push(key(number));
        put_length(bytes, length);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use trawl_wire::pb;

    use super::*;

    /// A result of so many bytes.
    pub fn result(segment: u32, bytes: usize) -> Arc<Event> {
        let payload: Bytes = (0..bytes).map(|at| (at % 251) as u8).collect();
        let envelope = pb::Envelope { version: 2, schema: 7, length: bytes as u64, checksum: 9, payload };
        let digest = Bytes::from_static(&[3; 32]);
        Arc::new(Event::SegmentDone(pb::SegmentDone {
            segment,
            result: Some(envelope),
            digest: digest.into(),
            replaces: segment.is_multiple_of(2),
            generation: 1,
        }))
    }

    fn text(bytes: usize) -> String {
        "x".repeat(bytes)
    }

    fn of(kind: u8, bytes: usize) -> Arc<Event> {
        Arc::new(match kind {
            0 => Event::Accepted(pb::Accepted {
                scan_id: "a-1".to_owned(),
                points_json: text(bytes),
                generation: 3,
                ..Default::default()
            }),
            1 => Event::SegmentFailed(pb::SegmentFailed { symbols: vec![text(bytes)], ..Default::default() }),
            2 => Event::Summary(pb::Summary {
                answer_digest: text(64),
                report_json: text(bytes),
                partial: true,
                tree: true,
            }),
            3 => Event::Refused(pb::Refused { failure: None, diagnostics_json: text(bytes) }),
            4 => Event::SegmentDone(pb::SegmentDone { segment: 4, ..Default::default() }),
            _ => return result(u32::from(kind), bytes),
        })
    }

    proptest! {
        #[test]
        fn what_is_sent_in_slices_is_the_message(
            events in prop::collection::vec((0u8..8, prop_oneof![Just(0usize), 1usize..300, 20_000usize..70_000]), 1..5),
            room in 1usize..40_000,
        ) {
            let events: Vec<Arc<Event>> = events.into_iter().map(|(kind, bytes)| of(kind, bytes)).collect();
            let mut message = OutgoingMessage::new(Arc::clone(&events[0]), events[1..].to_vec());
            let (mut sent, mut ended) = (Vec::new(), false);
            while !ended {
                let mut slice = BytesMut::new();
                ended = message.fill(&mut slice, room);
                prop_assert!(slice.len() <= room && (ended || slice.len() == room));
                sent.extend_from_slice(&slice);
            }
            prop_assert_eq!(sent[0], 0);
            prop_assert_eq!(u32::from_be_bytes(sent[1..5].try_into().unwrap()) as usize, sent.len() - 5);
            let one = |event: &Arc<Event>| pb::ScanEvent { event: Some((**event).clone()), more: Vec::new() };
            let wanted = pb::ScanEvent { more: events[1..].iter().map(one).collect(), ..one(&events[0]) };
            prop_assert_eq!(pb::ScanEvent::decode(&sent[5..]).unwrap(), wanted);
        }
    }
}
