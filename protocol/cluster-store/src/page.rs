//! Reading many keys: page by page, all pages at one revision, so that no reply is too large and the pages are
//! consistent.

use crate::{ControlError, ControlStore, Entry, Listing};

/// Maximum keys of one page. A page whose reply is too large is requested again with half as many.
pub const PAGE_KEYS_MAX: usize = 1_000;
/// Maximum tries of a listing that has to restart because its revision was compacted meanwhile.
const LIST_TRIES_MAX: usize = 3;

/// A request for one page of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// The prefix of the keys.
    pub prefix: String,
    /// The first wanted key, or its position; [`Page::next`] of the previous page.
    pub from: Vec<u8>,
    /// Maximum number of keys, at least 1.
    pub limit: usize,
    /// Read at this revision; `None` reads at the current one.
    pub revision: Option<i64>,
    /// Whether to omit values.
    pub keys_only: bool,
}

impl PageRequest {
    /// A request for the first page of keys that begin with `prefix`.
    pub fn new(prefix: &str) -> Self {
        let from = prefix.as_bytes().to_vec();
        Self { prefix: prefix.to_owned(), from, limit: PAGE_KEYS_MAX, revision: None, keys_only: false }
    }

    /// The same request without values.
    pub fn keys_only(self) -> Self {
        Self { keys_only: true, ..self }
    }
}

/// One page of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Sorted by key.
    pub entries: Vec<Entry>,
    /// Revision at which they were read.
    pub revision: i64,
    /// Start of the next page; `None` after the last.
    pub next: Option<Vec<u8>>,
}

/// The first key after `key`, in the order of bytes.
pub fn after(key: &[u8]) -> Vec<u8> {
    let mut after = key.to_vec();
    after.push(0);
    after
}

/// Iterates over all pages, at the revision of the first page.
#[derive(Debug)]
pub struct Pages<'s, S: ?Sized> {
    store: &'s S,
    /// The next request; `None` after the last page.
    next: Option<PageRequest>,
}

impl<'s, S: ControlStore + ?Sized> Pages<'s, S> {
    /// Starts with the page `first`.
    pub fn new(store: &'s S, first: PageRequest) -> Self {
        Self { store, next: Some(first) }
    }

    /// The next page; `None` after the last.
    ///
    /// # Errors
    /// Those of [`ControlStore::page`]; [`ControlError::TooLarge`] only if a single key is too large.
    pub async fn next(&mut self) -> Result<Option<Page>, ControlError> {
        let Some(mut asked) = self.next.take() else { return Ok(None) };
        loop {
            match self.store.page(&asked).await {
                Ok(page) => {
                    let from = page.next.clone();
                    self.next = from.map(|from| PageRequest { from, revision: Some(page.revision), ..asked });
                    return Ok(Some(page));
                }
                Err(ControlError::TooLarge(_)) if asked.limit > 1 => asked.limit /= 2,
                Err(error) => {
                    // The caller may retry.
                    self.next = Some(asked);
                    return Err(error);
                }
            }
        }
    }
}

/// Reads all pages at one revision.
pub(super) async fn listed<S: ControlStore + ?Sized>(store: &S, first: PageRequest) -> Result<Listing, ControlError> {
    let mut tried = 1;
    'anew: loop {
        let mut pages = Pages::new(store, first.clone());
        let mut listing = Listing { entries: Vec::new(), revision: 0 };
        loop {
            match pages.next().await {
                Ok(Some(page)) => {
                    listing.revision = page.revision;
                    listing.entries.extend(page.entries);
                }
                Ok(None) => return Ok(listing),
                Err(ControlError::Compacted) if tried < LIST_TRIES_MAX => {
                    tried += 1;
                    continue 'anew;
                }
                Err(error) => return Err(error),
            }
        }
    }
}
