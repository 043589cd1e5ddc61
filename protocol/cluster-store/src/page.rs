//! Reading many keys: page by page, all pages of one revision, so that no answer is too large and none contradicts another.

use crate::{ControlError, ControlStore, Entry, Listing};

/// Keys of one page. A page whose answer is too large is asked for again with half as many.
pub const PAGE_KEYS_MAX: usize = 1_000;
/// How often a listing begins anew because the revision it read was compacted meanwhile.
const LIST_TRIES_MAX: usize = 3;

/// Which keys are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest {
    /// What they begin with.
    pub prefix: String,
    /// The first that is wanted, or where it would be; [`Page::next`] of the page before.
    pub from: Vec<u8>,
    /// At most so many, at least 1.
    pub limit: usize,
    /// As they were at this revision; as they are when `None`.
    pub revision: Option<i64>,
    /// Their values are left out.
    pub keys_only: bool,
}

impl PageRequest {
    /// The first page of what begins with `prefix`.
    pub fn new(prefix: &str) -> Self {
        let from = prefix.as_bytes().to_vec();
        Self { prefix: prefix.to_owned(), from, limit: PAGE_KEYS_MAX, revision: None, keys_only: false }
    }

    /// Without values.
    pub fn keys_only(self) -> Self {
        Self { keys_only: true, ..self }
    }
}

/// Some keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Sorted by key.
    pub entries: Vec<Entry>,
    /// Of which revision they are.
    pub revision: i64,
    /// Where the next page begins; `None` after the last.
    pub next: Option<Vec<u8>>,
}

/// The first key after `key`, in the order of bytes.
pub fn after(key: &[u8]) -> Vec<u8> {
    let mut after = key.to_vec();
    after.push(0);
    after
}

/// All pages, one after the other, of the revision that the first was read at.
#[derive(Debug)]
pub struct Pages<'s, S: ?Sized> {
    store: &'s S,
    /// `None` after the last.
    next: Option<PageRequest>,
}

impl<'s, S: ControlStore + ?Sized> Pages<'s, S> {
    /// From the first page on.
    pub fn new(store: &'s S, first: PageRequest) -> Self {
        Self { store, next: Some(first) }
    }

    /// The next page; `None` after the last.
    ///
    /// # Errors
    /// Those of [`ControlStore::page`]; [`ControlError::TooLarge`] only when one key alone is too large.
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
                    // The caller may ask again.
                    self.next = Some(asked);
                    return Err(error);
                }
            }
        }
    }
}

/// Everything at one revision.
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
