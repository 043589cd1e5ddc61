//! Which ended scan has which answer, by all that determines the answer's bytes.

use std::collections::{BTreeMap, VecDeque};

use prost::Message as _;
use sha2::{Digest as _, Sha256};
use trawl_wire::pb;

/// Answers that are known by their identity; the oldest are forgotten first.
const ANSWERS_KNOWN_MAX: usize = 4096;

/// SHA-256 of all that determines the bytes of an answer.
pub(super) type AnswerKey = [u8; 32];

/// The key of the answer that a scan with this head gets.
pub(super) fn key_of(head: &pb::Accepted) -> AnswerKey {
    let same = pb::Accepted {
        scan_id: String::new(),
        generation: 0,
        durable: false,
        // Names and spacing are not in the answer.
        document_json: String::new(),
        ..head.clone()
    };
    Sha256::digest(same.encode_to_vec()).into()
}

/// The scans whose answers may be given again, by the keys of these.
#[derive(Debug, Default)]
pub(super) struct Answers {
    scans: BTreeMap<AnswerKey, String>,
    /// By age, the oldest first; also keys that have another scan by now.
    order: VecDeque<AnswerKey>,
    /// [`crate::server::dispatcher::Dispatcher::doubts`] when they were kept.
    doubts: u64,
}

impl Answers {
    /// Keeps the answer of a scan, which ended while the dispatcher had so many doubts.
    pub fn keep(&mut self, key: AnswerKey, scan: &str, doubts: u64) {
        self.forget_before(doubts);
        if doubts < self.doubts || self.scans.insert(key, scan.to_owned()).is_some() {
            return;
        }
        self.order.push_back(key);
        while self.order.len() > ANSWERS_KNOWN_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.scans.remove(&oldest);
            }
        }
    }

    /// The scan with this answer.
    pub fn get(&mut self, key: &AnswerKey, doubts: u64) -> Option<&String> {
        self.forget_before(doubts);
        self.scans.get(key)
    }

    fn forget_before(&mut self, doubts: u64) {
        if doubts > self.doubts {
            *self = Self { doubts, ..Self::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_known_by_what_determines_it() {
        let head = pb::Accepted { identity_json: "{}".to_owned(), limit: Some(5), ..pb::Accepted::default() };
        let same = pb::Accepted { scan_id: "s-1".to_owned(), generation: 2, durable: true, ..head.clone() };
        assert_eq!(key_of(&head), key_of(&same));
        assert_ne!(key_of(&head), key_of(&pb::Accepted { limit: Some(6), ..head.clone() }));
        assert_ne!(key_of(&head), key_of(&pb::Accepted { identity_json: "{ }".to_owned(), ..head }));
    }

    #[test]
    fn a_doubt_forgets_all_answers_before_it_and_the_oldest_are_forgotten() {
        let mut answers = Answers::default();
        answers.keep([1; 32], "a", 0);
        answers.keep([1; 32], "b", 0);
        assert_eq!(answers.get(&[1; 32], 0).map(String::as_str), Some("b"), "the newest scan with it");
        assert_eq!(answers.get(&[1; 32], 1), None);
        answers.keep([2; 32], "c", 0);
        assert_eq!(answers.get(&[2; 32], 1), None, "it ended before the doubt");
        for number in 0..=ANSWERS_KNOWN_MAX as u64 {
            let mut key = [3; 32];
            key[..8].copy_from_slice(&number.to_le_bytes());
            answers.keep(key, "d", 1);
        }
        assert_eq!((answers.scans.len(), answers.order.len()), (ANSWERS_KNOWN_MAX, ANSWERS_KNOWN_MAX));
    }
}
