//! Pins in an object store: objects with the names and the content of the files in a directory (`crate::pins`).

use std::collections::BTreeSet;
use std::io::Write as _;

use super::RemoteRoot;
use super::objects::Deadline;
use crate::error::MarketError;
use crate::layout::manifest_path;
use crate::name::is_digest;
use crate::pin_files::{PIN_BYTES_MAX, PINS, PinFound};
use crate::time::TimeMicros;

impl RemoteRoot {
    /// Writes a pin; false, and without it, if its snapshot is gone or is being removed.
    pub fn pin(&self, name: &str, file: &str, snapshot: &str, until: TimeMicros) -> Result<bool, MarketError> {
        let path = format!("{name}/{file}");
        let written =
            tempfile::tempfile().and_then(|mut pin| pin.write_all(format!("{until}\n").as_bytes()).map(|()| pin));
        let pin = written.map_err(MarketError::io("write", &path))?;
        self.objects.put(&path, &pin).map_err(|error| self.of(error, "put", path))?;
        let manifest = manifest_path(snapshot);
        // In this order: a removal that has ended meanwhile has deleted the manifest.
        if !self.is_announced(name, &BTreeSet::from([manifest.clone()]))? && self.read(name, &manifest)?.is_some() {
            return Ok(true);
        }
        self.unpin(name, file)?;
        Ok(false)
    }

    /// Deletes a pin, if it exists.
    pub fn unpin(&self, name: &str, file: &str) -> Result<(), MarketError> {
        self.delete(name, file, Deadline::of_a_call())
    }

    /// All pins of a dataset.
    pub fn pins(&self, name: &str) -> Result<Vec<PinFound>, MarketError> {
        let mut pins = Vec::new();
        for object in self.list(&format!("{name}/{PINS}"))?.objects {
            let Some((snapshot, _)) = object.name.split_once('.').filter(|(snapshot, _)| is_digest(snapshot)) else {
                continue;
            };
            let snapshot = snapshot.to_owned();
            let until = match object.bytes <= PIN_BYTES_MAX {
                true => match self.read(name, &format!("{PINS}/{}", object.name))? {
                    Some(content) => String::from_utf8_lossy(&content).trim_end().parse().unwrap_or(TimeMicros::MAX),
                    None => continue,
                },
                false => TimeMicros::MAX,
            };
            pins.push(PinFound { snapshot, file: object.name, until });
        }
        pins.sort_unstable();
        Ok(pins)
    }
}
