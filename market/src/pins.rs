//! Pins: they keep a snapshot from being deleted while a scan reads it.
//!
//! A pin is a file `NAME/pins/<snapshot>.<holder>` that contains the instant at which it expires, in microseconds since
//! 1970. Its holder renews it before that; the pin of a dead holder expires. Deleting a snapshot (`removal`) checks
//! [`Store::pinned`] after the manifest was moved away, and pinning checks for the manifest after the pin was written. In an object
//! store a removal announces the manifest instead of moving it away, and pinning looks for the announcement too.

use std::collections::BTreeMap;
use std::fs;

use crate::bundled_names::is_bundled;
use crate::error::MarketError;
use crate::name::{HEX_DIGITS, is_digest, split_reference};
use crate::pin_files::{PINS, PinFound, latest, pins_in};
use crate::snapshot::write_atomically;
use crate::store::Store;
use crate::time::TimeMicros;

/// Bytes of a holder's name.
pub const PIN_HOLDER_BYTES_MAX: usize = 64;
impl Store {
    /// Pins `NAME@SNAPSHOT` (the snapshot in full) for `holder` until `until`, or extends its pin. Bundled datasets
    /// need no pins.
    ///
    /// # Errors
    /// [`MarketError::BadName`] for a reference without a whole snapshot and for a holder that cannot name a file;
    /// [`MarketError::UnknownSnapshot`]; [`MarketError::Io`].
    pub fn pin(&self, reference: &str, holder: &str, until: TimeMicros) -> Result<(), MarketError> {
        let Some((name, file)) = pin_file(reference, holder)? else { return Ok(()) };
        let (dataset, snapshot) = (self.directory(name), &file[PINS.len() + 1..][..HEX_DIGITS]);
        let manifest = dataset.join(crate::snapshot::manifest_path(snapshot));
        let unknown = || MarketError::UnknownSnapshot { dataset: name.to_owned(), prefix: snapshot.to_owned() };
        if let Some(remote) = self.remote() {
            return if remote.pin(name, &file, snapshot, until)? { Ok(()) } else { Err(unknown()) };
        }
        if !manifest.is_file() {
            return Err(unknown());
        }
        write_atomically(&dataset, &file, format!("{until}\n").as_bytes(), name)?;
        if manifest.is_file() {
            return Ok(());
        }
        // It is being deleted right now, perhaps without having seen the pin.
        self.unpin(reference, holder)?;
        Err(unknown())
    }

    /// Removes a pin, if it exists.
    ///
    /// # Errors
    /// Those of [`Store::pin`].
    pub fn unpin(&self, reference: &str, holder: &str) -> Result<(), MarketError> {
        let Some((name, file)) = pin_file(reference, holder)? else { return Ok(()) };
        if let Some(remote) = self.remote() {
            return remote.unpin(name, &file);
        }
        match fs::remove_file(self.directory(name).join(&file)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(MarketError::io("delete", format!("{name}/{file}"))(e))
            }
            _ => Ok(()),
        }
    }

    /// The snapshots of a dataset that are pinned at `now`, each with the latest expiry. A pin whose expiry cannot be
    /// read never expires (the largest time), so that nothing in use is deleted.
    ///
    /// # Errors
    /// [`MarketError::BadName`]; [`MarketError::Io`] when the pins exist and cannot be listed.
    pub fn pinned(&self, name: &str, now: TimeMicros) -> Result<BTreeMap<String, TimeMicros>, MarketError> {
        let (name, _) = split_reference(name)?;
        let latest = latest(self.pins(name)?, now).into_iter();
        Ok(latest.map(|(snapshot, pin)| (snapshot, pin.until)).collect())
    }

    /// Deletes the pins of a dataset that had expired at `now`: their holders died. Returns how many.
    ///
    /// # Errors
    /// Those of [`Store::pinned`].
    pub fn drop_old_pins(&self, name: &str, now: TimeMicros) -> Result<usize, MarketError> {
        let (name, _) = split_reference(name)?;
        let mut dropped = 0;
        for PinFound { file, until, .. } in self.pins(name)? {
            let gone = || match self.remote() {
                Some(remote) => remote.unpin(name, &format!("{PINS}/{file}")).is_ok(),
                None => fs::remove_file(self.directory(name).join(PINS).join(&file)).is_ok(),
            };
            if until <= now && gone() {
                dropped += 1;
            }
        }
        Ok(dropped)
    }

    /// All pins of a dataset whose name has been checked.
    pub(crate) fn pins(&self, name: &str) -> Result<Vec<PinFound>, MarketError> {
        match self.remote() {
            Some(remote) => remote.pins(name),
            None => pins_in(&self.directory(name), name),
        }
    }
}

/// The dataset's name and the pin's path in it; `None` for a dataset that needs no pin.
fn pin_file<'r>(reference: &'r str, holder: &str) -> Result<Option<(&'r str, String)>, MarketError> {
    let bad = |text: &str, what, expected: &str| {
        let expected = expected.to_owned();
        Err(MarketError::BadName { text: crate::name::shortened(text), what, expected })
    };
    let (name, snapshot) = split_reference(reference)?;
    let Some(snapshot) = snapshot.filter(|snapshot| is_digest(snapshot)) else {
        return bad(reference, "pinned snapshot", "expected NAME@SNAPSHOT, all 64 digits of it");
    };
    let legal = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_');
    if holder.is_empty() || holder.len() > PIN_HOLDER_BYTES_MAX || !holder.bytes().all(legal) {
        return bad(holder, "holder of a pin", "expected 1 to 64 letters, digits, '-' or '_'");
    }
    Ok((!is_bundled(name)).then(|| (name, format!("{PINS}/{snapshot}.{holder}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store with a dataset `d` of one snapshot, which is never opened.
    fn store() -> (tempfile::TempDir, Store, String) {
        let root = tempfile::tempdir().unwrap();
        let snapshot = "ab".repeat(32);
        fs::create_dir_all(root.path().join("d/snapshots")).unwrap();
        fs::write(root.path().join(format!("d/snapshots/{snapshot}.json")), b"{}").unwrap();
        let store = Store::new(root.path().to_owned());
        (root, store, snapshot)
    }

    #[test]
    fn a_pin_holds_until_it_ends_and_the_latest_counts() {
        let (_root, store, snapshot) = store();
        let reference = format!("d@{snapshot}");
        assert!(store.pinned("d", 0).unwrap().is_empty());
        store.pin(&reference, "a-1", 100).unwrap();
        store.pin(&reference, "a-2", 50).unwrap();
        assert_eq!(store.pinned("d", 49).unwrap(), BTreeMap::from([(snapshot.clone(), 100)]));
        store.pin(&reference, "a-2", 200).unwrap();
        assert_eq!(store.pinned("d", 100).unwrap(), BTreeMap::from([(snapshot.clone(), 200)]));
        assert_eq!(store.drop_old_pins("d", 100).unwrap(), 1);
        store.unpin(&reference, "a-2").unwrap();
        store.unpin(&reference, "a-2").unwrap();
        assert!(store.pinned("d", 0).unwrap().is_empty());
    }

    #[test]
    fn a_pin_that_cannot_be_read_holds_and_strangers_do_not() {
        let (root, store, snapshot) = store();
        store.pin(&format!("d@{snapshot}"), "a-1", 100).unwrap();
        let pins = root.path().join("d/pins");
        fs::write(pins.join(format!("{snapshot}.a-1")), b"rubbish").unwrap();
        fs::write(pins.join("README"), b"5").unwrap();
        fs::write(pins.join(".tmp123"), b"5").unwrap();
        assert_eq!(store.pinned("d", 1000).unwrap(), BTreeMap::from([(snapshot.clone(), TimeMicros::MAX)]));
        assert_eq!(store.drop_old_pins("d", 1000).unwrap(), 0);
        fs::write(pins.join(format!("{snapshot}.a-1")), vec![b'1'; 1000]).unwrap();
        assert_eq!(store.pinned("d", 1000).unwrap().len(), 1);
    }

    #[test]
    fn names_cannot_leave_the_folder_and_bundled_datasets_need_no_pin() {
        let (_root, store, snapshot) = store();
        let reference = format!("d@{snapshot}");
        for holder in ["", "..", "a/b", "a.b", &"x".repeat(65)] {
            assert!(matches!(store.pin(&reference, holder, 1), Err(MarketError::BadName { .. })), "{holder}");
        }
        for bad in ["d", "d@abababab", "../d@ab", ""] {
            assert!(matches!(store.pin(bad, "a-1", 1), Err(MarketError::BadName { .. })), "{bad}");
        }
        let other = format!("d@{}", "cd".repeat(32));
        assert!(matches!(store.pin(&other, "a-1", 1), Err(MarketError::UnknownSnapshot { .. })));
        store.pin(&format!("us5@{snapshot}"), "a-1", 1).unwrap();
        assert!(!store.root.join("us5").exists());
    }
}
