//! `trawl scan --notify URL`: tells a program elsewhere what was found, once the answer is printed and written.
//!
//! Flags and their mistakes are here, before a scan begins; `payload` is what is posted, `sign` how a receiver knows who
//! posted it, `deliver` how often it is tried. Nothing here can change an answer. Secret and the URL's query never reach
//! a message, a log or a trace. What a receiver needs to know is in docs/notify.md.

mod deliver;
mod payload;
mod sign;
mod target;

use std::fmt;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use trawl_protocol::Answer;

use crate::failure::UserMistake;
use sign::Secret;
use target::Target;

/// Longest that delivery may take, attempts and pauses together.
pub const TOTAL_MS: u64 = 30_000;

/// Where to and signed with what, as the user said.
#[derive(Clone, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Post the matches to this http or https URL, once the answer is printed and written (docs/notify.md)
    #[arg(long = "notify", value_name = "URL", help_heading = "Output")]
    url: Option<String>,

    /// File with the secret that signs what is posted [default: the environment variable TRAWL_NOTIFY_SECRET]
    #[arg(long = "notify-secret-file", value_name = "FILE", requires = "url", help_heading = "Output")]
    secret_file: Option<PathBuf>,

    /// File with certificates (PEM) of authorities to trust for https instead of the public ones
    #[arg(long = "notify-ca-file", value_name = "FILE", requires = "url", help_heading = "Output")]
    ca_file: Option<PathBuf>,

    /// Longest that delivery may take; shorter than the default for tests
    #[arg(long = "notify-total-ms", value_name = "MS", hide = true, default_value_t = TOTAL_MS,
        value_parser = clap::value_parser!(u64).range(1..=TOTAL_MS))]
    total_ms: u64,
}

/// The URL may hold a secret in its query.
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
    total: Duration,
}

impl Args {
    /// Checks what was said; `None` when nothing is to be posted.
    ///
    /// # Errors
    /// A [`UserMistake`]: a URL that cannot be used, no secret, a file that cannot be read.
    pub fn prepare(&self) -> Result<Option<Notifier>, UserMistake> {
        let Some(url) = &self.url else { return Ok(None) };
        let target = Target::parse(url)?;
        let secret = Secret::find(self.secret_file.as_deref())?;
        let authorities = self.ca_file.as_deref().map(target::authorities).transpose()?;
        Ok(Some(Notifier { target, secret, authorities, total: Duration::from_millis(self.total_ms) }))
    }
}

impl Notifier {
    /// Posts the answer. Tells on stdout where to, unless `quiet`; tells on stderr when it was not delivered.
    pub fn deliver(&self, answer: &Answer, digest: &str, quiet: bool) -> bool {
        let outcome = payload::body(answer, digest).and_then(|body| {
            let key = sign::idempotency_key(digest, self.target.whole());
            deliver::post(self, &body, &key)
        });
        match outcome {
            Ok(()) if quiet => {}
            // Nobody may be reading any more; that is no failure of the delivery.
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
