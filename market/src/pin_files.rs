//! The files of pins, whose order is described in `pins`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::error::MarketError;
use crate::name::is_digest;
use crate::time::TimeMicros;

/// Folder of a dataset's pins.
pub(crate) const PINS: &str = "pins";
/// Bytes of a pin that are read.
pub(crate) const PIN_BYTES_MAX: u64 = 64;

/// A pin.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PinFound {
    /// What it pins.
    pub snapshot: String,
    /// Its name in the folder of the pins.
    pub file: String,
    /// When it expires.
    pub until: TimeMicros,
}

impl PinFound {
    /// Who wrote it.
    pub fn holder(&self) -> &str {
        self.file.split_once('.').map_or("", |(_, holder)| holder)
    }
}

/// Of the pins that are valid at `now` the one that expires last, by snapshot.
pub(crate) fn latest(pins: Vec<PinFound>, now: TimeMicros) -> BTreeMap<String, PinFound> {
    let mut pinned: BTreeMap<String, PinFound> = BTreeMap::new();
    for pin in pins.into_iter().filter(|pin| pin.until > now) {
        match pinned.get(&pin.snapshot) {
            Some(known) if known.until >= pin.until => {}
            _ => drop(pinned.insert(pin.snapshot.clone(), pin)),
        }
    }
    pinned
}

/// Every pin in a dataset's directory.
pub(crate) fn pins_in(dataset: &Path, name: &str) -> Result<Vec<PinFound>, MarketError> {
    let directory = dataset.join(PINS);
    let shown = format!("{name}/{PINS}");
    let entries = match fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(MarketError::io("list", shown)(e)),
    };
    let mut pins = Vec::new();
    for entry in entries {
        let entry = entry.map_err(MarketError::io("list", &shown))?;
        let Ok(file) = entry.file_name().into_string() else { continue };
        // Temporary files of a pin being written, and unrelated files.
        let Some((snapshot, _)) = file.split_once('.').filter(|(snapshot, _)| is_digest(snapshot)) else {
            continue;
        };
        let small = entry.metadata().is_ok_and(|m| m.len() <= PIN_BYTES_MAX);
        let text = if small { fs::read_to_string(entry.path()) } else { Ok(String::new()) };
        let until = match text {
            Ok(text) => text.trim_end().parse().unwrap_or(TimeMicros::MAX),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            Err(_) => TimeMicros::MAX,
        };
        pins.push(PinFound { snapshot: snapshot.to_owned(), file, until });
    }
    pins.sort_unstable();
    Ok(pins)
}
