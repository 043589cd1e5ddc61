//! `trawl scan --notify URL`: posts what was found to another program, once the answer is printed and written.
//!
//! The flags are checked here, before a scan starts; `payload` is what is posted, `sign` lets a receiver verify the
//! sender, `deliver` decides how often it is tried. Nothing here can change an answer. The secret and the URL's query
//! never appear in a message, a log or a trace. docs/notify.md describes what a receiver needs to know.

mod deliver;
mod payload;
mod sign;
mod target;

use std::fmt;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use trawl_plan::ScanDocument;
use trawl_wire::Answer;

use crate::failure::UserMistake;
use sign::Secret;
use target::Target;

/// Longest that delivery may take, attempts and pauses together.
pub const TOTAL_MS: u64 = 30_000;

/// The target and the key for signing, as the user gave them.
#[derive(Clone, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Post the matches to this http or https URL, once the answer is printed and written (docs/notify.md)
    #[arg(long = "notify", value_name = "URL", help_heading = "Output")]
    url: Option<String>,

    /// File with the secret that signs the notification [default: the environment variable TRAWL_NOTIFY_SECRET]
    #[arg(long = "notify-secret-file", value_name = "FILE", requires = "url", help_heading = "Output")]
    secret_file: Option<PathBuf>,

    /// File with PEM certificates of the authorities to trust for https instead of the public ones
    #[arg(long = "notify-ca-file", value_name = "FILE", requires = "url", help_heading = "Output")]
    ca_file: Option<PathBuf>,

    /// Post nothing when no symbol matched
    #[arg(long = "notify-matches-only", requires = "url", help_heading = "Output")]
    matches_only: bool,

    /// Give up delivering after this many seconds, attempts and pauses together [default: 30]
    #[arg(long = "notify-timeout", value_name = "SECONDS", requires = "url", allow_negative_numbers = true,
        value_parser = timeout, help_heading = "Output")]
    timeout: Option<Duration>,
}

/// Seconds, up to [`TOTAL_MS`].
fn timeout(text: &str) -> Result<Duration, String> {
    let longest = Duration::from_millis(TOTAL_MS);
    let time = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.filter(|time| !time.is_zero() && *time <= longest)
        .ok_or_else(|| format!("seconds above 0 and up to {} are expected, such as 5 or 0.5", longest.as_secs()))
}

/// The URL may contain a secret in its query.
impl fmt::Debug for Args {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("notify::Args").field("given", &self.url.is_some()).finish_non_exhaustive()
    }
}

/// A notification that can be sent: its URL and secret have been checked.
#[derive(Debug)]
pub struct Notifier {
    target: Target,
    secret: Secret,
    authorities: Option<Vec<ureq::tls::Certificate<'static>>>,
    /// Whether an answer without matches is not posted.
    matches_only: bool,
    total: Duration,
}

impl Args {
    /// Checks the options; `None` when nothing is to be posted.
    ///
    /// # Errors
    /// A [`UserMistake`]: a URL that cannot be used, no secret, a file that cannot be read.
    pub fn prepare(&self) -> Result<Option<Notifier>, UserMistake> {
        let Some(url) = &self.url else { return Ok(None) };
        let target = Target::parse(url)?;
        let secret = Secret::find(self.secret_file.as_deref())?;
        let authorities = self.ca_file.as_deref().map(target::authorities).transpose()?;
        let total = self.timeout.unwrap_or(Duration::from_millis(TOTAL_MS));
        Ok(Some(Notifier { target, secret, authorities, matches_only: self.matches_only, total }))
    }
}

impl Notifier {
    /// Posts the answer, if it is wanted. Prints on stdout where to, unless `quiet`; prints on stderr when it was not delivered.
    pub fn deliver(&self, answer: &Answer, scan: Option<&ScanDocument>, quiet: bool) -> bool {
        if self.matches_only && answer.rows.iter().all(|row| row.place.is_none()) {
            if !quiet {
                let _ = writeln!(std::io::stdout(), "nothing matched, so nothing was posted");
            }
            return true;
        }
        let outcome = payload::body(answer, scan).and_then(|body| {
            let document = scan.map_or_else(String::new, ScanDocument::to_json);
            let key = sign::idempotency_key(&answer.digest, self.target.whole(), &document);
            deliver::post(self, &body, &key)
        });
        match outcome {
            Ok(()) if quiet => {}
            // A closed stdout is not a failure of the delivery.
            Ok(()) => drop(writeln!(std::io::stdout(), "notified {}", self.target.shown())),
            Err(why) => {
                let message = format!("the notification was not delivered to {}: {why}", self.target.shown());
                crate::diagnostics::error_line(&message, None);
                return false;
            }
        }
        true
    }
}
