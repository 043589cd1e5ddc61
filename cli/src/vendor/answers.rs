//! Answers about splits, dividends, tickers and their changes, kept while an import is not done: with few requests a minute it takes
//! hours to ask for them again.
//!
//! An answer is all pages of a question, whole or not at all, as those about bars are; only the results are kept, in the server's words.
//! These answers describe what the vendor knows today, so that none is used for longer than [`KEPT`]; one that came when the days that it
//! is about were not long over is used for [`KEPT_FRESH`].

use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use trawl_market::TimeMicros;

use super::client::Client;
use super::inbox::Inbox;

/// A time that is over by so much is no longer amended as a matter of course.
const SETTLED: Duration = Duration::from_secs(36 * 3600);
/// How long an answer is used by the next run of an import that was interrupted.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// The same for an answer that came before its days were settled.
const KEPT_FRESH: Duration = Duration::from_secs(24 * 3600);
const DAY: TimeMicros = 86_400_000_000;
/// Name of the file of an answer.
const NAME: &str = "answer.json";

/// When the answers about a day, given by its midnight, are no longer amended as a matter of course.
pub fn settled(last_day: TimeMicros) -> SystemTime {
    let end = u64::try_from(last_day.saturating_add(DAY)).unwrap_or(0);
    UNIX_EPOCH + Duration::from_micros(end) + SETTLED
}

/// Who is asked, and where answers are kept.
#[derive(Debug, Clone, Copy)]
pub struct Answers<'a> {
    pub client: &'a Client,
    pub inbox: &'a Inbox,
    /// Midnight of the last day that the import is about.
    pub last_day: TimeMicros,
}

#[derive(Debug, serde::Deserialize)]
struct Page<'a> {
    /// Absent or null where there are none.
    #[serde(borrow)]
    results: Option<&'a RawValue>,
}

impl Answers<'_> {
    /// The results of each page of a question.
    ///
    /// # Errors
    /// Those of [`Client::pages`]; results of another form; the disk.
    pub fn pages<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<Vec<T>> {
        self.ask(path, |each| self.client.pages(path, each))
    }

    /// The same; nothing where the server knows nothing of it.
    ///
    /// # Errors
    /// Those of [`Client::pages_if_any`]; results of another form; the disk.
    pub fn pages_if_any<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<Vec<T>> {
        self.ask(path, |each| self.client.pages_if_any(path, each).map(drop))
    }

    fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
        ask: impl FnOnce(&mut dyn FnMut(&[u8]) -> anyhow::Result<()>) -> anyhow::Result<()>,
    ) -> anyhow::Result<Vec<T>> {
        let file = self.inbox.path(&["answer", path], NAME);
        if self.is_good(&file, SystemTime::now())
            && let Some(kept) = fs::read(&file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok())
        {
            return Ok(kept);
        }
        let (mut all, mut text) = (Vec::new(), String::new());
        ask(&mut |body| {
            if let Some(results) = serde_json::from_slice::<Page<'_>>(body)?.results.filter(|r| r.get() != "null") {
                all.push(serde_json::from_str(results.get())?);
                text.push(if text.is_empty() { '[' } else { ',' });
                text.push_str(results.get());
            }
            Ok(())
        })?;
        text.push_str(if text.is_empty() { "[]" } else { "]" });
        // A key is in no file, whatever the server writes: such an answer is not kept.
        if !self.client.is_in(&text) {
            Inbox::put(&file, |to| {
                let mut to = BufWriter::new(to);
                to.write_all(text.as_bytes())?;
                Ok(to.flush()?)
            })?;
        }
        Ok(all)
    }

    /// Whether an answer is here that is used at this time.
    fn is_good(&self, file: &Path, now: SystemTime) -> bool {
        let Ok(asked) = fs::metadata(file).and_then(|found| found.modified()) else { return false };
        let kept = if asked < settled(self.last_day) { KEPT_FRESH } else { KEPT };
        // What comes from the future has no age.
        now.duration_since(asked).is_ok_and(|age| age < kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vendor::client::{ENDPOINT, Key};

    #[test]
    fn an_answer_is_used_for_a_week_and_one_about_days_that_were_not_over_for_a_day() {
        let cache = tempfile::tempdir().unwrap();
        let (client, inbox) =
            (Client::new(ENDPOINT, Key::of("k3y"), (5, 60)).unwrap(), Inbox::at(cache.path(), "d", "us"));
        let of = |date: TimeMicros| Answers { client: &client, inbox: &inbox, last_day: date };
        let today = trawl_market::now() - trawl_market::now().rem_euclid(DAY);
        let long_ago = trawl_market::parse_time("2024-01-05").unwrap();
        let file = inbox.path(&["answer", "/x"], NAME);
        Inbox::put(&file, |to| Ok(to.write_all(b"[[1],[2,3]]")?)).unwrap();
        let (now, hour) = (SystemTime::now(), Duration::from_secs(3600));
        for (date, hours, good) in
            [(long_ago, 0, true), (long_ago, 166, true), (long_ago, 169, false), (today, 22, true), (today, 25, false)]
        {
            assert_eq!(of(date).is_good(&file, now + hours * hour), good, "{hours} hours");
        }
        assert!(!of(long_ago).is_good(&file, now - hour), "from the future");
        assert_eq!(of(long_ago).pages::<Vec<u8>>("/x").unwrap(), [vec![1], vec![2, 3]], "without asking");
    }
}
