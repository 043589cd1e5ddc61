//! What is shown, and what each key does to it. Pure: nothing here reads a clock, a terminal or the network.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::feed::{News, Snapshot, Wanted};
use super::rates::Rates;
use super::rows;
use super::sheet::Sheet;

/// Rows that Page Up and Page Down move by.
const PAGE_ROWS: isize = 10;
/// The shortest time between two refreshes.
pub const INTERVAL_MIN: Duration = Duration::from_millis(200);
/// The longest.
pub const INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// A part of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pane {
    /// Workers.
    Workers,
    /// Scans.
    Scans,
    /// The shards of one scan.
    Shards,
}

/// Whether a coordinator answers.
#[derive(Debug, Clone, PartialEq)]
pub enum Connection {
    /// The last question was answered.
    Open,
    /// None answered.
    Away {
        /// Why.
        why: String,
        /// When they are asked again.
        again: Instant,
    },
}

/// Everything that is shown.
#[derive(Debug)]
pub struct State {
    /// What the last refresh brought.
    pub snapshot: Option<Arc<Snapshot>>,
    /// Whether a coordinator answers.
    pub connection: Connection,
    /// What workers did lately.
    pub rates: Rates,
    /// Which pane has the keys.
    pub focus: Pane,
    /// Scans.
    pub scans: Sheet,
    /// Workers.
    pub workers: Sheet,
    /// The shards of the scan that is open.
    pub shards: Sheet,
    /// Whether scans that have ended are left out.
    pub only_active: bool,
    /// What is asked for.
    pub wanted: Wanted,
    /// Whether the user has had enough.
    pub ended: bool,
}

impl State {
    /// Before the first refresh. `scan`: the one whose shards are shown.
    pub fn new(interval: Duration, scan: Option<String>) -> Self {
        Self {
            snapshot: None,
            connection: Connection::Open,
            rates: Rates::default(),
            focus: Pane::Scans,
            scans: Sheet::new(&rows::SCANS),
            workers: Sheet::new(&rows::WORKERS),
            shards: Sheet::new(&rows::SHARDS),
            only_active: false,
            wanted: Wanted { interval, scan, paused: false, now: 0 },
            ended: false,
        }
    }

    /// Takes what was learnt.
    pub fn take(&mut self, news: News) {
        match news {
            News::Nothing => {}
            News::Stop => self.ended = true,
            News::Away { why, again } => self.connection = Connection::Away { why, again },
            News::Snapshot(snapshot) => {
                if self.connection != Connection::Open {
                    // Totals before and after tell nothing of the time between, in which the rates were not seen.
                    self.rates = Rates::default();
                    self.connection = Connection::Open;
                }
                if let Ok(workers) = &snapshot.workers {
                    self.rates.take(snapshot.at, workers);
                }
                self.snapshot = Some(snapshot);
                self.fill();
            }
        }
    }

    /// Makes the rows anew.
    fn fill(&mut self) {
        let Some(snapshot) = self.snapshot.clone() else { return };
        let listed = snapshot.scans.as_ref().map_or(&[][..], |scans| scans.listed.as_slice());
        let shown = listed.iter().filter(|info| !self.only_active || rows::is_active(info));
        self.scans.set_rows(shown.map(|info| rows::scan(info, snapshot.now_us)).collect());
        let workers = snapshot.workers.as_ref().map_or(&[][..], Vec::as_slice);
        self.workers.set_rows(workers.iter().map(|info| rows::worker(info, &self.rates)).collect());
        let shards = match &snapshot.shards {
            Some((scan, Ok(shards))) if self.wanted.scan.as_ref() == Some(scan) => rows::shards(&shards.profile),
            _ => Vec::new(),
        };
        self.shards.set_rows(shards);
    }

    /// The pane that has the keys.
    fn sheet(&mut self) -> &mut Sheet {
        match self.focus {
            Pane::Workers => &mut self.workers,
            Pane::Scans => &mut self.scans,
            Pane::Shards => &mut self.shards,
        }
    }

    /// The panes that are shown, from the top.
    pub fn panes(&self) -> &'static [Pane] {
        match self.wanted.scan {
            Some(_) => &[Pane::Workers, Pane::Scans, Pane::Shards],
            None => &[Pane::Workers, Pane::Scans],
        }
    }

    fn turn_focus(&mut self, forward: bool) {
        let panes = self.panes();
        let place = panes.iter().position(|pane| *pane == self.focus).unwrap_or_default();
        let step = if forward { 1 } else { panes.len() - 1 };
        self.focus = panes[(place + step) % panes.len()];
    }

    /// Opens the shards of the selected scan.
    fn open(&mut self) {
        if let (Pane::Scans, Some(scan)) = (self.focus, self.scans.selected()) {
            self.wanted.scan = Some(scan.to_owned());
            self.shards.set_rows(Vec::new());
        }
    }

    fn close(&mut self) {
        self.wanted.scan = None;
        self.shards.set_rows(Vec::new());
        if self.focus == Pane::Shards {
            self.focus = Pane::Scans;
        }
    }

    /// Does what a key says.
    pub fn key(&mut self, key: KeyEvent) {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => self.ended = true,
                KeyCode::Char('l') => self.wanted.now += 1,
                _ => {}
            }
            return;
        }
        match key.code {
            KeyCode::Char('q') => self.ended = true,
            KeyCode::Tab => self.turn_focus(true),
            KeyCode::BackTab => self.turn_focus(false),
            KeyCode::Down | KeyCode::Char('j') => self.sheet().move_by(1),
            KeyCode::Up | KeyCode::Char('k') => self.sheet().move_by(-1),
            KeyCode::PageDown => self.sheet().move_by(PAGE_ROWS),
            KeyCode::PageUp => self.sheet().move_by(-PAGE_ROWS),
            KeyCode::Home => self.sheet().move_by(isize::MIN),
            KeyCode::End => self.sheet().move_by(isize::MAX),
            KeyCode::Right | KeyCode::Char('>') => self.sheet().sort_by_next(true),
            KeyCode::Left | KeyCode::Char('<') => self.sheet().sort_by_next(false),
            KeyCode::Char('r') => self.sheet().reverse(),
            KeyCode::Enter => self.open(),
            KeyCode::Esc => self.close(),
            KeyCode::Char('a') => {
                self.only_active = !self.only_active;
                self.fill();
            }
            KeyCode::Char(' ' | 'p') => self.wanted.paused = !self.wanted.paused,
            KeyCode::Char('u') => self.wanted.now += 1,
            KeyCode::Char('+') => self.wanted.interval = self.wanted.interval.saturating_mul(2).min(INTERVAL_MAX),
            KeyCode::Char('-') => self.wanted.interval = (self.wanted.interval / 2).max(INTERVAL_MIN),
            _ => {}
        }
    }
}
