//! Which files a dataset's days came from: the tag of each, so that a day is imported again when its file has changed, and only then.

use std::collections::{BTreeMap, BTreeSet};

use trawl_market::{TimeMicros, format_time};

use super::day_files::{DayFile, date};
use super::inbox::digest;

/// Version of the record.
const VERSION: u32 = 1;

/// The record of a dataset.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Record {
    version: u32,
    /// Such as `us_stocks_sip`, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub market: Option<String>,
    /// By date.
    days: BTreeMap<String, Known>,
    /// Of all of the above: a record that was changed by others is not believed.
    #[serde(default)]
    checksum: String,
}

/// The file from which a day came.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Known {
    bytes: u64,
    tag: String,
}

/// What is to be done with the files of a place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Work {
    /// Days that the dataset does not have.
    pub new: Vec<DayFile>,
    /// Days that it has from a file with other content.
    pub republished: Vec<DayFile>,
    /// Days that it has from the very file.
    pub unchanged: Vec<DayFile>,
}

impl Record {
    /// Reads a record; one that cannot be read, or was changed by others, is empty, so that all days are imported again.
    pub fn read(bytes: Option<&[u8]>) -> Self {
        let read = bytes.and_then(|bytes| serde_json::from_slice::<Self>(bytes).ok());
        let is_own =
            |record: &Self| record.version == VERSION && record.summed().is_ok_and(|own| own == record.checksum);
        let record = read.filter(is_own).unwrap_or_else(|| Self { version: VERSION, ..Self::default() });
        Self { checksum: String::new(), ..record }
    }

    /// Its checksum, which does not count itself.
    fn summed(&self) -> serde_json::Result<String> {
        let bare = serde_json::to_string(&Self { checksum: String::new(), ..self.clone() })?;
        Ok(digest(&[&bare]))
    }

    /// Its bytes.
    ///
    /// # Errors
    /// Those of writing JSON.
    pub fn write(&self) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&Self { checksum: self.summed()?, ..self.clone() })
    }

    /// Keeps only days on which the dataset has bars: it may have been made anew since the record was written.
    pub fn keep_dates(&mut self, dates: &BTreeSet<TimeMicros>) {
        self.days.retain(|day, _| date(day).is_some_and(|date| dates.contains(&date)));
    }

    /// Compares files with the record; `again`: none is unchanged, and each day that is among `held` is replaced, whatever it came from.
    pub fn work(&self, files: impl IntoIterator<Item = DayFile>, again: bool, held: &BTreeSet<TimeMicros>) -> Work {
        let mut work = Work::default();
        for file in files {
            match self.days.get(&format_time(file.date)) {
                None if again && held.contains(&file.date) => work.republished.push(file),
                None => work.new.push(file),
                Some(known) if !again && known.tag == file.file.tag && known.bytes == file.file.bytes => {
                    work.unchanged.push(file)
                }
                Some(_) => work.republished.push(file),
            }
        }
        work
    }

    /// Notes that days were imported.
    pub fn add(&mut self, files: impl IntoIterator<Item = DayFile>) {
        for file in files {
            self.days.insert(format_time(file.date), Known { bytes: file.file.bytes, tag: file.file.tag });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vendor::place::Found;

    fn file(day: &str, bytes: u64, tag: &str) -> DayFile {
        let file = Found { path: format!("{day}.csv.gz"), bytes, tag: tag.to_owned() };
        DayFile { date: date(day).unwrap(), file }
    }

    #[test]
    fn a_day_is_imported_again_when_its_file_changed_or_its_bars_are_gone() {
        let mut record = Record::read(None);
        let files = || [file("2024-01-02", 5, "a"), file("2024-01-03", 5, "b"), file("2024-01-04", 5, "c")];
        let none = BTreeSet::new();
        assert_eq!(record.work(files(), false, &none).new.len(), 3);
        let held = BTreeSet::from([date("2024-01-03").unwrap()]);
        assert_eq!(
            record.work(files(), true, &held).republished.len(),
            1,
            "bars of another origin are replaced by choice"
        );
        record.add(files());
        let record = Record::read(Some(&record.write().unwrap()));
        assert_eq!(record.work(files(), false, &none), Work { unchanged: files().to_vec(), ..Work::default() });
        assert_eq!(record.work(files(), true, &none).republished.len(), 3);
        let changed = record.work(
            [file("2024-01-02", 5, "x"), file("2024-01-03", 6, "b"), file("2024-01-04", 5, "c")],
            false,
            &none,
        );
        assert_eq!((changed.new.len(), changed.republished.len(), changed.unchanged.len()), (0, 2, 1));
        let mut gone = record.clone();
        gone.keep_dates(&BTreeSet::from([date("2024-01-03").unwrap()]));
        assert_eq!(
            (gone.work(files(), false, &none).new.len(), gone.work(files(), false, &none).unchanged.len()),
            (2, 1)
        );
        let tampered = String::from_utf8(record.write().unwrap()).unwrap().replace("\"a\"", "\"x\"");
        assert_eq!(Record::read(Some(tampered.as_bytes())), Record::read(None));
        assert_eq!(Record::read(Some(b"{\"version\":9,\"days\":{}}")), Record::read(None));
    }
}
