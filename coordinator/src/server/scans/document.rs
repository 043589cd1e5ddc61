//! The document of a scan, in memory only as long as it has to be.

use std::sync::{Arc, Mutex, PoisonError};

use super::memory::{HeldShare, ScanMemory};

/// A scan's document.
#[derive(Debug, Clone)]
pub(crate) enum Document {
    /// Canonical JSON.
    Here(Arc<str>),
    /// An object of the result store, read when the document is needed.
    Stored {
        /// SHA-256 of the canonical JSON, 64 hex digits.
        sha256: String,
    },
    /// It is not needed any more.
    Dropped,
}

/// A document with its share of the memory.
#[derive(Debug)]
pub(super) struct KeptDocument(Mutex<(Document, HeldShare)>);

impl KeptDocument {
    pub fn new(document: Document, memory: &ScanMemory) -> Self {
        let mut share = memory.documents.share();
        if let Document::Here(json) = &document {
            share.add(json.len());
        }
        Self(Mutex::new((document, share)))
    }

    /// Whether the documents of all scans take too many bytes.
    pub fn is_full(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1.is_full()
    }

    pub fn get(&self) -> Document {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Frees its memory: it is in the result store by now, or not needed any more.
    pub fn replace(&self, document: Document) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.0 = document;
        kept.1.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::tests::memory;
    use super::*;

    #[test]
    fn a_document_is_counted_until_it_is_elsewhere() {
        let memory = memory(1);
        let kept = KeptDocument::new(Document::Here("abc".into()), &memory);
        assert_eq!(memory.documents.bytes(), 3);
        kept.replace(Document::Dropped);
        assert_eq!(memory.documents.bytes(), 0);
        assert!(matches!(kept.get(), Document::Dropped));
    }
}
