//! What a caller may take of a cluster: its highest priority, its quotas, the datasets it may read, and until when.
//!
//! A token's line carries it as `KEY=VALUE` after the digest; a certificate has that of its role.

use std::fmt::Write as _;

use chrono::{DateTime, Utc};
use trawl_terms::Priority;
use trawl_wire::record::checked_name;

use crate::identity::Role;
use crate::rights::Right;

/// A day of the calendar.
pub use chrono::NaiveDate as Day;

/// The keys of a token's line, for messages.
const KEYS: &str = "priority, until, scans, submissions-per-minute and datasets";
/// Maximum datasets named in one line.
const DATASETS_MAX: usize = 256;

/// See the module's header.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Allowance {
    /// The highest priority that it may ask for.
    pub priority: Priority,
    /// The last day, in UTC, on which the token is valid; without end if `None`.
    pub until: Option<Day>,
    /// Scans that it may have running; the coordinator's limit if `None`.
    pub scans: Option<u32>,
    /// Submissions per minute; the coordinator's limit if `None`.
    pub submissions_per_minute: Option<u32>,
    /// Names of the datasets that it may scan, sorted; all if empty.
    pub datasets: Vec<String>,
}

impl Allowance {
    /// That of a certificate without a token.
    pub fn of_role(role: Role) -> Self {
        let priority = match role {
            Role::Operator | Role::Coordinator => Priority::High,
            Role::Client | Role::Worker => Priority::Normal,
        };
        Self { priority, ..Self::default() }
    }

    /// That of a caller with all rights.
    pub fn unlimited() -> Self {
        Self { priority: Priority::High, ..Self::default() }
    }

    /// That of a token whose line says nothing else: an administrator's priority is not limited.
    pub fn usual(rights: &[Right]) -> Self {
        if rights.contains(&Right::Admin) { Self::unlimited() } else { Self::default() }
    }

    /// Parses the words after a token's digest. A key that is left out is as in [`Self::usual`].
    ///
    /// # Errors
    /// The word that is wrong, and what is expected.
    pub fn parse(words: &[&str], rights: &[Right]) -> Result<Self, String> {
        let mut allowance = Self::usual(rights);
        let mut seen = Vec::new();
        for word in words {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("'{word}' is not KEY=VALUE, with {KEYS}"))?;
            if seen.contains(&key) {
                return Err(format!("'{key}' is given twice"));
            }
            seen.push(key);
            let of = |what: String| format!("{key}: {what}");
            match key {
                "priority" => allowance.priority = Priority::parse(value).map_err(of)?,
                "until" => allowance.until = Some(parse_day(value).map_err(of)?),
                "scans" => allowance.scans = Some(count(value).map_err(of)?),
                "submissions-per-minute" => allowance.submissions_per_minute = Some(count(value).map_err(of)?),
                "datasets" => allowance.datasets = parse_datasets(value).map_err(of)?,
                _ => return Err(format!("'{key}' is not known; there are {KEYS}")),
            }
        }
        Ok(allowance)
    }

    /// The words for [`Self::parse`], each after a space; only those that differ from [`Self::usual`].
    pub fn words(&self, rights: &[Right]) -> String {
        let mut words = String::new();
        // Writing to a text does not fail.
        if self.priority != Self::usual(rights).priority {
            let _ = write!(words, " priority={}", self.priority.name());
        }
        if let Some(until) = self.until {
            let _ = write!(words, " until={until}");
        }
        if let Some(scans) = self.scans {
            let _ = write!(words, " scans={scans}");
        }
        if let Some(rate) = self.submissions_per_minute {
            let _ = write!(words, " submissions-per-minute={rate}");
        }
        if !self.datasets.is_empty() {
            let _ = write!(words, " datasets={}", self.datasets.join(","));
        }
        words
    }

    /// Whether the token has ended at `now`.
    pub fn has_ended(&self, now: DateTime<Utc>) -> bool {
        self.until.is_some_and(|last| now.date_naive() > last)
    }

    /// Whether it may scan a dataset, given by its name without a snapshot.
    pub fn admits_dataset(&self, name: &str) -> bool {
        self.datasets.is_empty() || self.datasets.iter().any(|admitted| admitted == name)
    }
}

/// Parses a day.
///
/// # Errors
/// The form that is expected.
pub fn parse_day(text: &str) -> Result<Day, String> {
    Day::parse_from_str(text, "%Y-%m-%d").map_err(|_| format!("'{text}' is no day: YYYY-MM-DD is expected"))
}

/// Parses names of datasets separated by commas; returns them sorted, without duplicates.
///
/// # Errors
/// The name that is not one.
pub fn parse_datasets(text: &str) -> Result<Vec<String>, String> {
    let names: Result<Vec<String>, String> =
        text.split(',').map(|name| checked_name(name).map_err(|what| format!("'{name}': {what}"))).collect();
    let mut names = names?;
    names.sort_unstable();
    names.dedup();
    if names.len() > DATASETS_MAX {
        return Err(format!("more than {DATASETS_MAX} datasets"));
    }
    Ok(names)
}

fn count(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("'{text}' is no whole number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_its_user_may_take_and_is_written_as_it_is_read() {
        let line = "priority=high until=2026-12-31 scans=4 submissions-per-minute=30 datasets=us5,eu";
        let words: Vec<&str> = line.split(' ').collect();
        let allowance = Allowance::parse(&words, &[Right::Submit]).unwrap();
        assert_eq!((allowance.priority, allowance.scans), (Priority::High, Some(4)));
        assert_eq!(allowance.submissions_per_minute, Some(30));
        assert!(allowance.admits_dataset("eu") && !allowance.admits_dataset("jp"));
        let written = allowance.words(&[Right::Submit]);
        assert_eq!(written, " priority=high until=2026-12-31 scans=4 submissions-per-minute=30 datasets=eu,us5");
        let again: Vec<&str> = written.split_whitespace().collect();
        assert_eq!(Allowance::parse(&again, &[]).unwrap(), allowance);
    }

    #[test]
    fn without_keys_a_user_has_normal_priority_and_an_administrator_any() {
        assert_eq!(Allowance::parse(&[], &[Right::Submit]).unwrap(), Allowance::default());
        assert_eq!(Allowance::parse(&[], &[Right::Admin]).unwrap(), Allowance::unlimited());
        assert!(Allowance::default().admits_dataset("any"));
        let limited = Allowance::parse(&["priority=normal"], &[Right::Admin]).unwrap();
        assert_eq!((limited.priority, limited.words(&[Right::Admin]).as_str()), (Priority::Normal, " priority=normal"));
        assert_eq!(Allowance::of_role(Role::Client).priority, Priority::Normal);
        assert_eq!(Allowance::of_role(Role::Operator).priority, Priority::High);
    }

    #[test]
    fn a_token_is_valid_until_the_end_of_its_last_day() {
        let allowance = Allowance::parse(&["until=2026-02-28"], &[]).unwrap();
        let at = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
        assert!(!allowance.has_ended(at("2026-02-28T23:59:59Z")));
        assert!(allowance.has_ended(at("2026-03-01T00:00:00Z")));
        assert!(!Allowance::default().has_ended(at("2999-01-01T00:00:00Z")));
    }

    #[test]
    fn every_mistake_is_named() {
        for (word, expected) in [
            ("priority=urgent", "low, normal and high"),
            ("until=tomorrow", "YYYY-MM-DD"),
            ("until=2026-02-30", "YYYY-MM-DD"),
            ("scans=-1", "whole number"),
            ("scan=1", "there are priority"),
            ("datasets=a/b", "'a/b'"),
            ("high", "KEY=VALUE"),
        ] {
            let error = Allowance::parse(&[word], &[]).unwrap_err();
            assert!(error.contains(expected), "{word}: {error}");
        }
        assert!(Allowance::parse(&["scans=1", "scans=2"], &[]).unwrap_err().contains("twice"));
    }
}
