//! `trawl top`: scans, workers, queues and hit rates of a cluster, live in the terminal.
//!
//! A thread asks a coordinator (`feed`), what it learns goes into a state (`state`, with `rows`, `rates` and `sheet`), and this is drawn
//! (`draw`) on a terminal (`terminal`). It only reads: nothing of the cluster is changed from here.

mod draw;
mod feed;
mod rates;
mod rows;
mod sheet;
mod state;
mod terminal;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::layout::Rect;
use ratatui::text::Span;
use tokio::sync::watch;
use trawl_coordinator::client::Manager;

use super::scan::of_client;
use super::scans::{ClientArgs, print};
use super::serving::stop_signal;
use crate::failure::{DONE, NOT_DONE};
use crate::output::waterfall;
use draw::{Look, draw};
use feed::{News, Target};
use state::{INTERVAL_MAX, INTERVAL_MIN, State};

/// How long a key or news wait at most before they are seen.
const TICK: Duration = Duration::from_millis(100);
/// How often the screen is drawn although nothing has happened: seconds are counted on it.
const REDRAW: Duration = Duration::from_secs(1);
/// Keys that are read before the screen is drawn again.
const KEYS_AT_ONCE: usize = 256;

const AFTER_HELP: &str = "\
HIT is the share of segments whose bars were in the worker's memory in the last 10 s, HIT EVER since the worker was started; SEG/S are \
segments a second; HIDDEN is the share of fetching from the data root that computing hid.

Keys are at the bottom of the screen. A coordinator that goes away is asked again; the screen says so, and since when.

Examples:
  trawl top
  trawl top --coordinator https://c1:7400,https://c2:7400 --tls-ca ca.pem --tls-cert me.pem --tls-key me.key
  trawl top --once | head -3";

/// Watch scans, workers, queues and hit rates of a cluster, live in the terminal
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    client: ClientArgs,

    /// Seconds between two refreshes, from 0.2 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = interval)]
    interval: Duration,

    /// Number of scans to list at most
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,

    /// Show the shards of this scan, the slowest first
    #[arg(long, value_name = "SCAN")]
    scan: Option<String>,

    /// Print one picture as text, and exit; needs no terminal
    #[arg(long)]
    once: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.filter(|interval| (INTERVAL_MIN..=INTERVAL_MAX).contains(interval)).ok_or_else(|| {
        let (from, to) = (INTERVAL_MIN.as_secs_f64(), INTERVAL_MAX.as_secs());
        format!("seconds from {from} to {to} are expected, such as 2 or 0.5")
    })
}

/// Shows the cluster.
///
/// # Errors
/// No terminal; certificates that cannot be used; no coordinator that answers at the start.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (urls, security) = args.client.target()?;
    let target = Target { urls, security, scans_max: args.limit };
    if args.once {
        return once(args, &target);
    }
    terminal::check()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("cannot start the thread that asks")?;
    let started = Instant::now();
    let mut state = State::new(args.interval, args.scan.clone());
    // A wrong address or certificate is reported like that of any other command, before the screen is taken.
    let first = runtime.block_on(first(&target, started, args.scan.as_deref()))?;
    state.take(News::Snapshot(first.into()));
    let (wanted, wishes) = watch::channel(state.wanted.clone());
    let (teller, mut news) = watch::channel(News::Nothing);
    let stop = runtime.block_on(async { stop_signal(false) })?;
    let look = Look { colours: colours(), keys: true };
    let mut screen = terminal::Screen::take()?;
    runtime.spawn(feed::run(target, started, wishes, teller, stop));
    let ended = show(&mut screen, &mut state, &wanted, &mut news, look);
    drop(screen);
    // A question that is on its way is not waited for.
    runtime.shutdown_background();
    ended.map(|()| ExitCode::from(DONE))
}

async fn first(target: &Target, started: Instant, scan: Option<&str>) -> anyhow::Result<feed::Snapshot> {
    let asked = async {
        let mut manager = Manager::connect(&target.urls, &target.security).await?;
        feed::ask(&mut manager, target, started, scan).await
    };
    asked.await.map_err(of_client)
}

fn show(
    screen: &mut terminal::Screen,
    state: &mut State,
    wanted: &watch::Sender<feed::Wanted>,
    news: &mut watch::Receiver<News>,
    look: Look,
) -> anyhow::Result<()> {
    let mut drawn = None::<Instant>;
    while !state.ended {
        if drawn.is_none_or(|drawn| drawn.elapsed() >= REDRAW) {
            screen
                .terminal
                .draw(|frame| draw(state, Instant::now(), frame.area(), frame.buffer_mut(), look))
                .context("cannot draw on this terminal")?;
            drawn = Some(Instant::now());
        }
        if keys(state)? {
            drawn = None;
        }
        // It fails once the thread is gone, which it only is after the signal to stop.
        let changed = news.has_changed();
        if changed.as_ref().is_ok_and(|changed| *changed) || changed.is_err() {
            state.take(news.borrow_and_update().clone());
            drawn = None;
        }
        ensure!(changed.is_ok() || state.ended, "the thread that asks has ended");
        wanted.send_if_modified(|present| {
            let changed = *present != state.wanted;
            present.clone_from(&state.wanted);
            changed
        });
    }
    Ok(())
}

/// Waits for keys and takes those that are there; whether there was anything that changes the screen.
fn keys(state: &mut State) -> anyhow::Result<bool> {
    let cannot = "cannot read keys from this terminal";
    let mut seen = false;
    let mut wait = TICK;
    for _ in 0..KEYS_AT_ONCE {
        if state.ended || !event::poll(wait).context(cannot)? {
            break;
        }
        match event::read().context(cannot)? {
            Event::Key(key) if key.kind != KeyEventKind::Release => state.key(key),
            Event::Resize(..) => {}
            _ => continue,
        }
        seen = true;
        wait = Duration::ZERO;
    }
    Ok(seen)
}

/// Whether stdout takes colours.
fn colours() -> bool {
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn once(args: &Args, target: &Target) -> anyhow::Result<ExitCode> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start a runtime")?;
    let snapshot = runtime.block_on(first(target, Instant::now(), args.scan.as_deref()))?;
    let shards = snapshot.shards.as_ref().is_none_or(|(_, shards)| shards.is_ok());
    let whole = snapshot.scans.is_ok() && snapshot.workers.is_ok() && snapshot.coordinators.is_ok() && shards;
    let mut state = State::new(args.interval, args.scan.clone());
    state.take(News::Snapshot(snapshot.into()));
    let width = u16::try_from(waterfall::width()).unwrap_or(u16::MAX);
    let area = Rect::new(0, 0, width, draw::whole_height(&state));
    let mut buffer = Buffer::empty(area);
    draw(&mut state, Instant::now(), area, &mut buffer, Look { colours: false, keys: false });
    print(&text_of(&buffer))?;
    Ok(ExitCode::from(if whole { DONE } else { NOT_DONE }))
}

/// A drawn buffer as lines without blanks at their ends.
fn text_of(buffer: &Buffer) -> String {
    let area = buffer.area;
    let mut text = String::new();
    for y in area.top()..area.bottom() {
        let mut line = String::new();
        let mut x = area.left();
        while x < area.right() {
            let symbol = buffer[(x, y)].symbol();
            line.push_str(symbol);
            // A wide character covers the cells behind it.
            x += u16::try_from(Span::raw(symbol).width()).unwrap_or(1).max(1);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests;
