//! A snapshot's table of contents, and the id that follows from it.
//!
//! The id is the sha256 of a canonical text of everything but the dataset's name, so the same bars have the same id
//! under any name, on any machine, on any day. Reading a manifest computes the id again and compares it.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use trawl_terms::Timeframe;

use crate::calendar::{CALENDARS, Calendar};
use crate::group::group_of;
use crate::limits::{COLUMNS_MAX, GROUPS_MAX, SYMBOLS_MAX, TAILS_MAX};
use crate::name::{is_column, is_digest, is_symbol};
use crate::reference::{check_attributes, check_labels};
use crate::time::TimeMicros;

/// Origin of imported bars in a manifest.
pub(crate) const ORIGIN_IMPORT: &str = "import";

/// Newest version of the layout that this build writes and reads. A snapshot is written as the lowest version that can
/// represent it, so that ids remain unchanged: 2 where it has a calendar, tables or a time up to which it is complete, 3 where
/// bars were appended, 4 where symbols have attributes.
pub const MANIFEST_VERSION: u32 = 4;

/// One symbol of a snapshot.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct SymbolEntry {
    /// As imported.
    pub symbol: String,
    /// Fixed group: hash(symbol) mod groups.
    pub group: u32,
    /// First row among the bars of the group, by symbol and time; inside the group's file as long as nothing was appended.
    pub row_start: u64,
    /// Number of bars, at least one.
    pub rows: u64,
    /// Time of the first bar.
    pub first_time: TimeMicros,
    /// Time of the last bar.
    pub last_time: TimeMicros,
}

/// The Arrow IPC file that holds the bars of one group, `files/<sha256>.arrow`.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct GroupFile {
    /// Which group.
    pub group: u32,
    /// Of the whole file, in hex: also its name.
    pub sha256: String,
    /// Size of the file.
    pub bytes: u64,
    /// Bars in it.
    pub rows: u64,
}

/// The Arrow IPC file that holds the sorted distinct bar times of the whole snapshot (column `time`).
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct TimesFile {
    /// Of the whole file, in hex: also its name.
    pub sha256: String,
    /// Size of the file.
    pub bytes: u64,
    /// Distinct times.
    pub rows: u64,
}

/// A file of appended bars: those that one append, or several that were merged, added to all groups. `files/<sha256>.arrow`
/// with its index `files/<index>.tail` (see `tail`).
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct TailFile {
    /// Of the file of bars, in hex: also its name.
    pub sha256: String,
    /// Size of the file of bars.
    pub bytes: u64,
    /// Bars in it.
    pub rows: u64,
    /// sha256 of the index, in hex: also its name.
    pub index: String,
    /// Size of the index.
    pub index_bytes: u64,
    /// How often its bars were merged: 0 as appended.
    pub level: u32,
}

/// What was appended to a snapshot that was written whole.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Appended {
    /// Id of the snapshot that was written whole; its manifest is kept as `bases/<id>.json`.
    pub base: String,
    /// Distinct bar times of all bars.
    pub times: u64,
    /// In the order in which they were appended, which is the order of each symbol's bars.
    pub tails: Vec<TailFile>,
}

/// A CSV file of reference data, `files/<sha256>.csv`.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct TableFile {
    /// Of the whole file, in hex: also its name.
    pub sha256: String,
    /// Size of the file.
    pub bytes: u64,
    /// Rows without the header.
    pub rows: u64,
    /// Names of the labels or attributes, sorted; none for a table of factors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}

/// A snapshot's table of contents.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Manifest {
    /// 1 to [`MANIFEST_VERSION`].
    pub version: u32,
    /// Name of the dataset it was opened as (not part of the id).
    pub name: String,
    /// Id derived from the content, 64 hex digits; `NAME@` takes any unambiguous prefix of at least 8.
    pub snapshot: String,
    /// Length of a bar.
    pub timeframe: Timeframe,
    /// True for generated markets: shown wherever the data are shown.
    pub synthetic: bool,
    /// Where the bars come from: `import`, or the generator's description.
    pub origin: String,
    /// Number of groups, fixed when the dataset was created.
    pub groups: u32,
    /// Numeric columns, lower case: open, high, low, close, volume as far as they exist, then the others by name.
    pub columns: Vec<String>,
    /// Bars of all symbols.
    pub bars: u64,
    /// Earliest bar.
    pub first_time: TimeMicros,
    /// Latest bar.
    pub last_time: TimeMicros,
    /// Name of the exchange calendar; `None` is the default, see [`Manifest::calendar`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calendar: Option<String>,
    /// The instant up to which the data are complete, if it was given; see [`Manifest::complete_to`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete_to: Option<TimeMicros>,
    /// Splits and dividends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factors: Option<TableFile>,
    /// Tickers and labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbol_table: Option<TableFile>,
    /// Attributes of symbols; `earnings:date` is one of dates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributes: Option<TableFile>,
    /// Distinct bar times, without those that only appended bars have.
    pub times: TimesFile,
    /// Bars that were appended; `None` for a snapshot that was written whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub appended: Option<Appended>,
    /// Files of the groups, ascending. Where bars were appended they are those of the base, and not stored again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<GroupFile>,
    /// Sorted by symbol, with all of their bars. Where bars were appended, they follow from the base and the indices, and are
    /// not stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub symbols: Vec<SymbolEntry>,
}

impl Manifest {
    /// The entry of a symbol.
    pub fn symbol(&self, symbol: &str) -> Option<&SymbolEntry> {
        let at = self.symbols.binary_search_by(|e| e.symbol.as_str().cmp(symbol)).ok()?;
        self.symbols.get(at)
    }

    /// The file of a group; `None` for a group without symbols.
    pub fn file(&self, group: u32) -> Option<&GroupFile> {
        let at = self.files.binary_search_by_key(&group, |f| f.group).ok()?;
        self.files.get(at)
    }

    /// The exchange calendar: the one that was given, else `weekdays` for synthetic markets and `XNYS` for others.
    pub fn calendar(&self) -> Calendar {
        let usual = if self.synthetic { Calendar::WEEKDAYS } else { Calendar::XNYS };
        // The name was checked when the manifest was read.
        self.calendar.as_deref().and_then(|name| Calendar::named(name).ok()).unwrap_or(usual)
    }

    /// The calendar as stored in a manifest: `None` for the default, so that equal content has one form.
    pub(crate) fn calendar_to_keep(calendar: Calendar, synthetic: bool) -> Option<String> {
        let usual = if synthetic { Calendar::WEEKDAYS } else { Calendar::XNYS };
        (calendar != usual).then(|| calendar.name().to_owned())
    }

    /// When the bar that starts at a time ends.
    pub fn bar_end(&self, start: TimeMicros) -> TimeMicros {
        self.calendar().bar_end(self.timeframe, start)
    }

    /// The instant up to which the data are complete: as given at the import, else the end of the last bar. A bar that
    /// ends later is forming.
    pub fn complete_to(&self) -> TimeMicros {
        self.complete_to.unwrap_or_else(|| self.bar_end(self.last_time))
    }

    /// Names of the labels of symbols, sorted.
    pub fn labels(&self) -> &[String] {
        self.symbol_table.as_ref().map_or(&[], |t| &t.labels)
    }

    /// Names of the attributes of symbols with their kinds, sorted.
    pub(crate) fn attributes(&self) -> &[String] {
        self.attributes.as_ref().map_or(&[], |t| &t.labels)
    }

    /// Files of reference data.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &TableFile> {
        self.factors.iter().chain(&self.symbol_table).chain(&self.attributes)
    }

    /// The lowest version that can represent all of this.
    pub(crate) fn version_needed(&self) -> u32 {
        if self.attributes.is_some() {
            return 4;
        }
        if self.appended.is_some() {
            return 3;
        }
        let plain = self.calendar.is_none()
            && self.complete_to.is_none()
            && self.factors.is_none()
            && self.symbol_table.is_none();
        if plain { 1 } else { 2 }
    }

    /// Number of distinct bar times.
    pub fn distinct_times(&self) -> u64 {
        self.appended.as_ref().map_or(self.times.rows, |appended| appended.times)
    }

    /// Files of appended bars, in order.
    pub fn tails(&self) -> &[TailFile] {
        self.appended.as_ref().map_or(&[], |appended| &appended.tails)
    }

    /// The manifest as it is stored: without what follows from the base and the indices of appended bars.
    pub(crate) fn stored(&self) -> Self {
        match self.appended {
            Some(_) => Self { files: Vec::new(), symbols: Vec::new(), ..self.clone() },
            None => self.clone(),
        }
    }

    /// The groups that contain a symbol, ascending.
    pub fn filled_groups(&self) -> Vec<u32> {
        let mut groups: Vec<u32> = self.symbols.iter().map(|entry| entry.group).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// Computes the id from the rest. Where bars were appended, files and symbols are those of the base, whose id it contains,
    /// and of the files that were appended.
    pub fn content_id(&self) -> String {
        let mut text = format!(
            "trawl-snapshot\nversion={}\ntimeframe={}\nsynthetic={}\norigin={}\ngroups={}\ncolumns={}\n",
            self.version,
            self.timeframe,
            self.synthetic,
            self.origin,
            self.groups,
            self.columns.join(","),
        );
        let mut hasher = Sha256::new();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "times {} {} {}", self.times.sha256, self.times.bytes, self.times.rows);
        if let Some(calendar) = &self.calendar {
            let _ = writeln!(text, "calendar {calendar}");
        }
        if let Some(time) = self.complete_to {
            let _ = writeln!(text, "complete_to {time}");
        }
        let tables =
            [("factors", &self.factors), ("symbol_table", &self.symbol_table), ("attributes", &self.attributes)];
        for (name, table) in tables {
            if let Some(t) = table {
                let _ = writeln!(text, "{name} {} {} {} {}", t.sha256, t.bytes, t.rows, t.labels.join(","));
            }
        }
        if let Some(appended) = &self.appended {
            let _ = writeln!(text, "base {} {}", appended.base, appended.times);
            for t in &appended.tails {
                let _ = writeln!(
                    text,
                    "tail {} {} {} {} {} {}",
                    t.sha256, t.bytes, t.rows, t.index, t.index_bytes, t.level
                );
            }
            hasher.update(text.as_bytes());
            return hex::encode(hasher.finalize());
        }
        for f in &self.files {
            let _ = writeln!(text, "file {} {} {} {}", f.group, f.sha256, f.bytes, f.rows);
        }
        // Without the machinery of `write!`: there are many symbols.
        let mut digits = itoa::Buffer::new();
        for s in &self.symbols {
            text.push_str("symbol ");
            text.push_str(digits.format(s.group));
            for number in [s.row_start, s.rows] {
                text.push(' ');
                text.push_str(digits.format(number));
            }
            for time in [s.first_time, s.last_time] {
                text.push(' ');
                text.push_str(digits.format(time));
            }
            text.push(' ');
            text.push_str(&s.symbol);
            text.push('\n');
        }
        hasher.update(text.as_bytes());
        hex::encode(hasher.finalize())
    }

    /// Checks everything that reading relies on; the error says what is wrong. Of a snapshot with appended bars, what is
    /// stored: its symbols are checked when they are put together.
    pub(crate) fn check(&self) -> Result<(), String> {
        let wrong = |ok: bool, what: &str| if ok { Ok(()) } else { Err(what.to_owned()) };
        wrong(self.version == self.version_needed(), "its version does not match its content")?;
        if let Some(name) = self.calendar.as_deref().filter(|c| !Calendar::named(c).is_ok_and(|k| k.name() == *c)) {
            let (name, known) = (crate::name::shortened(name), CALENDARS.join(", "));
            return Err(format!(
                "its calendar '{name}' is none that this program knows ({known}): use the version of trawl that wrote it, \
                 or a newer one; 'trawl --version' shows this program's"
            ));
        }
        check_labels(self.labels(), &self.columns)?;
        check_attributes(self.attributes(), &self.columns, self.labels())?;
        wrong(self.attributes().is_sorted_by(|a, b| a < b), "its attributes are not sorted")?;
        wrong(self.labels().is_sorted_by(|a, b| a < b), "its labels are not sorted")?;
        wrong(is_digest(&self.snapshot), "its snapshot id is not 64 hex digits")?;
        wrong(!self.origin.contains('\n'), "its origin has several lines")?;
        wrong((1..=GROUPS_MAX).contains(&self.groups), "its number of groups is out of bounds")?;
        wrong(self.columns.len() <= COLUMNS_MAX, "it has too many columns")?;
        wrong(self.columns.iter().all(|c| is_column(c)), "a column's name is invalid")?;
        let unique: std::collections::BTreeSet<_> = self.columns.iter().collect();
        wrong(unique.len() == self.columns.len(), "a column appears twice")?;
        let tables = self.tables().map(|t| &t.sha256);
        wrong([&self.times.sha256].into_iter().chain(tables).all(|d| is_digest(d)), "a file's name is not a sha256")?;
        match &self.appended {
            Some(appended) => appended.check(),
            None => self.check_symbols(),
        }
    }

    fn check_symbols(&self) -> Result<(), String> {
        let wrong = |ok: bool, what: &str| if ok { Ok(()) } else { Err(what.to_owned()) };
        wrong(!self.symbols.is_empty() && self.symbols.len() <= SYMBOLS_MAX, "its number of symbols is out of bounds")?;
        wrong(self.symbols.is_sorted_by(|a, b| a.symbol < b.symbol), "its symbols are not sorted")?;
        wrong(self.files.is_sorted_by(|a, b| a.group < b.group), "its files are not sorted")?;
        wrong(self.files.iter().all(|f| is_digest(&f.sha256)), "a file's name is not a sha256")?;
        let mut rows: std::collections::BTreeMap<u32, u64> = Default::default();
        for s in &self.symbols {
            wrong(is_symbol(&s.symbol), "a symbol's name is invalid")?;
            wrong(s.group == group_of(&s.symbol, self.groups), "a symbol is in the wrong group")?;
            let filled = rows.entry(s.group).or_default();
            wrong(s.row_start == *filled && s.rows > 0, "the row ranges of a group are not consecutive")?;
            *filled = filled.checked_add(s.rows).ok_or("its row counts overflow")?;
        }
        let counted = self.files.iter().map(|f| (f.group, f.rows));
        wrong(counted.eq(rows.iter().map(|(&g, &r)| (g, r))), "the row counts of its files and its symbols differ")?;
        let total = rows.values().try_fold(0u64, |a, &r| a.checked_add(r));
        wrong(total == Some(self.bars), "its number of bars is wrong")?;
        let first = self.symbols.iter().map(|s| s.first_time).min();
        let last = self.symbols.iter().map(|s| s.last_time).max();
        wrong(first == Some(self.first_time) && last == Some(self.last_time), "its range of times is wrong")
    }
}

impl Appended {
    fn check(&self) -> Result<(), String> {
        let wrong = |ok: bool, what: &str| if ok { Ok(()) } else { Err(what.to_owned()) };
        wrong(is_digest(&self.base), "the id of its base is not 64 hex digits")?;
        wrong((1..=TAILS_MAX).contains(&self.tails.len()), "its number of files of appended bars is out of bounds")?;
        let digests = self.tails.iter().flat_map(|tail| [&tail.sha256, &tail.index]);
        wrong(digests.into_iter().all(|d| is_digest(d)), "a file's name is not a sha256")?;
        wrong(self.tails.iter().all(|tail| tail.rows > 0), "a file of appended bars is empty")
    }
}

/// sha256 of bytes, in lower-case hex.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}
