//! A file beside a dataset's snapshots in which the importer of a vendor's files notes what it has imported. It belongs to no snapshot,
//! and whoever reads it compares it with the bars: a dataset may have been deleted and made anew, or an older snapshot be the newest.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};

use crate::dataset::Dataset;
use crate::error::MarketError;
use crate::layout::VENDOR_RECORD;
use crate::name::check_dataset_name;
use crate::snapshot::write_atomically;
use crate::store::Store;
use crate::time::{DAY, TimeMicros};

impl Store {
    /// What was noted for a dataset; `None` where nothing was.
    ///
    /// # Errors
    /// [`MarketError::BadName`], [`MarketError::Io`], [`MarketError::DataRoot`].
    pub fn vendor_record(&self, name: &str) -> Result<Option<Vec<u8>>, MarketError> {
        check_dataset_name(name)?;
        if let Some(remote) = self.remote() {
            return remote.read(name, VENDOR_RECORD);
        }
        match fs::read(self.directory(name).join(VENDOR_RECORD)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(MarketError::io("read", format!("{name}/{VENDOR_RECORD}"))(error)),
        }
    }

    /// Notes something for a dataset, in place of what was noted before.
    ///
    /// # Errors
    /// Those of [`Store::vendor_record`].
    pub fn keep_vendor_record(&self, name: &str, bytes: &[u8]) -> Result<(), MarketError> {
        check_dataset_name(name)?;
        let Some(remote) = self.remote() else {
            return write_atomically(&self.directory(name), VENDOR_RECORD, bytes, name);
        };
        let path = format!("{name}/{VENDOR_RECORD}");
        let mut file = tempfile::tempfile().map_err(MarketError::io("write", &path))?;
        file.write_all(bytes).map_err(MarketError::io("write", &path))?;
        remote.objects.put(&path, &file).map_err(|error| remote.of(error, "put", path))
    }
}

impl Dataset {
    /// The dates on the exchange's clock on which any symbol has a bar, as midnights in UTC.
    ///
    /// # Errors
    /// Those of reading the times of the snapshot.
    pub fn dates(&self) -> Result<BTreeSet<TimeMicros>, MarketError> {
        let zone = self.manifest.calendar().zone();
        let local = |time: TimeMicros| if self.manifest.is_dated() { time } else { zone.wall(time) };
        Ok(self.times()?.into_iter().map(local).map(|local| local - local.rem_euclid(DAY)).collect())
    }
}
