//! What the state looks like: a head, the panes below each other, the keys at the bottom.
//!
//! It draws into a buffer and changes nothing but where tables are scrolled to. What does not fit is left out in the order of its
//! importance: columns by their rank, panes without the keys, the line of the last refreshes.

use std::time::Instant;

use ratatui::buffer::Buffer;
use ratatui::layout::{Alignment, Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell as TableCell, Row as TableRow, Sparkline, StatefulWidget, Table, Widget as _};
use trawl_front::human::counted;
use trawl_front::records::instant;

use super::feed::Snapshot;
use super::rows;
use super::sheet::{Sheet, Tone, clean};
use super::state::{Connection, Pane, State};

/// Cells of the terminal between two columns.
const GAP: u16 = 2;
/// The smallest terminal in which anything is shown.
const SMALLEST: (u16, u16) = (20, 5);
/// Rows of a pane that shows anything: its title, its headings and two rows.
const PANE_ROWS_MIN: u16 = 4;
/// From how many rows of the terminal on the last refreshes are drawn as a line.
const LINE_FROM_ROWS: u16 = 16;
/// The keys, the more important ones first.
const KEYS: [(&str, &str); 11] = [
    ("q", "quit"),
    ("↑↓", "select"),
    ("Enter", "shards"),
    ("Esc", "close"),
    ("Tab", "pane"),
    ("←→", "sort by"),
    ("r", "reverse"),
    ("a", "active"),
    ("Space", "pause"),
    ("u", "update"),
    ("+ -", "interval"),
];

/// How it is drawn.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Whether colours are used; without them, attention is asked for by bold, dim and reversed text.
    pub colours: bool,
    /// Whether the selection and the keys are shown: not on paper.
    pub keys: bool,
}

impl Look {
    fn tone(self, tone: Tone) -> Style {
        let plain = Style::new();
        match (tone, self.colours) {
            (Tone::Plain, _) | (Tone::Good, false) => plain,
            (Tone::Quiet, _) => plain.add_modifier(Modifier::DIM),
            (Tone::Good, true) => plain.fg(Color::Green),
            (Tone::Warn, true) => plain.fg(Color::Yellow),
            (Tone::Bad, true) => plain.fg(Color::Red).add_modifier(Modifier::BOLD),
            (Tone::Warn, false) => plain.add_modifier(Modifier::UNDERLINED),
            (Tone::Bad, false) => plain.add_modifier(Modifier::BOLD),
        }
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);

/// Rows that everything needs, for a terminal that is as high as that.
pub fn whole_height(state: &State) -> u16 {
    let rows =
        |pane: &Pane| u16::try_from(sheet(state, *pane).rows().len().max(1)).unwrap_or(u16::MAX).saturating_add(2);
    state.panes().iter().map(rows).fold(head(state, Instant::now()).len() as u16, u16::saturating_add)
}

fn sheet(state: &State, pane: Pane) -> &Sheet {
    match pane {
        Pane::Workers => &state.workers,
        Pane::Scans => &state.scans,
        Pane::Shards => &state.shards,
    }
}

/// Draws everything. `now`: for how long something has been as it is.
pub fn draw(state: &mut State, now: Instant, area: Rect, buffer: &mut Buffer, look: Look) {
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        Line::raw("too small").render(Rect { height: area.height.min(1), ..area }, buffer);
        return;
    }
    let mut rest = area;
    let mut take = |rows: u16| {
        let rows = rows.min(rest.height);
        let taken = Rect { height: rows, ..rest };
        rest = Rect { y: rest.y + rows, height: rest.height - rows, ..rest };
        taken
    };
    for (line, tone) in head(state, now) {
        buffer.set_line(area.x, take(1).y, &line.style(look.tone(tone)), area.width);
    }
    if look.keys && area.height >= LINE_FROM_ROWS && state.rates.past().len() > 1 {
        past(state, take(1), buffer, look);
    }
    if look.keys {
        rest.height = rest.height.saturating_sub(1);
        keys(Rect { y: area.bottom() - 1, height: 1, ..area }, buffer);
    }
    for (pane, area) in places(state, rest) {
        draw_pane(state, pane, area, buffer, look);
    }
}

/// The lines at the top.
fn head(state: &State, now: Instant) -> Vec<(Line<'static>, Tone)> {
    let Some(snapshot) = &state.snapshot else { return vec![(Line::raw("trawl top"), Tone::Plain)] };
    let mut lines = vec![(title(snapshot, state), Tone::Plain), (Line::raw(totals(snapshot, state)), Tone::Plain)];
    if let Connection::Away { why, again } = &state.connection {
        let wait = again.saturating_duration_since(now).as_secs_f64().ceil();
        let asked = if wait > 0.0 { format!("asked again in {wait:.0} s") } else { "asked again now".to_owned() };
        lines.push((
            Line::raw(format!("AWAY, {asked}; what is shown is of {}: {}", instant(snapshot.now_us), clean(why))),
            Tone::Bad,
        ));
    }
    lines
}

fn title(snapshot: &Snapshot, state: &State) -> Line<'static> {
    let leader = match &snapshot.coordinators {
        Err(why) => clean(why),
        Ok(coordinators) => match coordinators.iter().find(|coordinator| coordinator.leads) {
            Some(leader) => format!(
                "{} leads, epoch {}, of {}",
                clean(&leader.id),
                leader.epoch,
                counted(coordinators.len(), "coordinator")
            ),
            None => format!("none of {} leads", counted(coordinators.len(), "coordinator")),
        },
    };
    let pace = match state.wanted.paused {
        true => "paused".to_owned(),
        false => format!("every {} s", state.wanted.interval.as_secs_f64()),
    };
    let about = format!("  {}  {leader}  {}  {pace}", clean(&snapshot.urls), instant(snapshot.now_us));
    Line::from(vec![Span::styled("trawl top", BOLD), Span::raw(about)])
}

fn totals(snapshot: &Snapshot, state: &State) -> String {
    let mut parts = Vec::new();
    if let Ok(scans) = &snapshot.scans {
        let more = if scans.more_active { "at least " } else { "" };
        parts.push(format!("{more}{} running, {} queued", scans.running, scans.queued));
        let waiting = scans.listed.iter().filter(|info| rows::is_active(info) && !info.waits_for.is_empty()).count();
        if waiting > 0 {
            parts.push(format!("{waiting} without workers"));
        }
        let more = if scans.more_lately { "at least " } else { "" };
        parts.push(format!("{more}{} ended in a minute", scans.ended_lately));
    }
    if let Ok(workers) = &snapshot.workers {
        let serving = workers.iter().filter(|worker| worker.state == "serving").count();
        parts.push(format!("{serving} of {} serving", counted(workers.len(), "worker")));
        let sum = |of: fn(&trawl_wire::pb::WorkerInfo) -> u32| {
            workers.iter().map(|worker| u64::from(of(worker))).sum::<u64>()
        };
        parts.push(format!("{} shards on {} threads", sum(|w| w.shards_in_flight), sum(|w| w.threads)));
    }
    if let Some(rate) = state.rates.all() {
        parts.push(format!("{:.0} segments/s", rate.segments_per_s));
        parts.extend(rate.from_memory.map(|share| format!("{:.0}% from memory", share * 100.0)));
    }
    parts.join(" · ")
}

/// Segments a second at the last refreshes, as a line of bars.
fn past(state: &State, area: Rect, buffer: &mut Buffer, look: Look) {
    let name = "segments/s ";
    let (x, _) = buffer.set_stringn(area.x, area.y, name, usize::from(area.width), DIM);
    let room = Rect { x, width: area.right().saturating_sub(x), ..area };
    let all = state.rates.past();
    let skipped = all.len().saturating_sub(usize::from(room.width));
    let values: Vec<u64> = all.skip(skipped).collect();
    Sparkline::default().data(values).style(look.tone(Tone::Good)).render(room, buffer);
}

fn keys(area: Rect, buffer: &mut Buffer) {
    let mut x = area.x;
    for (key, what) in KEYS {
        let wide = |text: &str| Span::raw(text).width() as u16;
        let needed = wide(key) + 1 + wide(what);
        if x + needed > area.right() {
            break;
        }
        (x, _) = buffer.set_stringn(x, area.y, key, usize::from(area.width), BOLD);
        (x, _) = buffer.set_stringn(x + 1, area.y, what, usize::from(area.width), DIM);
        x += GAP;
    }
}

/// Where the panes are. Where there is no room for all of them, the one that has the keys is shown alone.
fn places(state: &State, area: Rect) -> Vec<(Pane, Rect)> {
    let panes = state.panes();
    let rows = |pane: Pane| u16::try_from(sheet(state, pane).rows().len().max(1)).unwrap_or(u16::MAX).saturating_add(2);
    let whole = panes.iter().map(|pane| rows(*pane)).fold(0, u16::saturating_add) <= area.height;
    if !whole && area.height < PANE_ROWS_MIN.saturating_mul(panes.len() as u16) {
        return vec![(state.focus, area)];
    }
    // Workers are few: they take what they need up to a third. Of the rest, shards take no more than half.
    let workers = match whole {
        true => rows(Pane::Workers),
        false => rows(Pane::Workers).clamp(PANE_ROWS_MIN, (area.height / 3).max(PANE_ROWS_MIN)),
    };
    let left = area.height - workers;
    let shards = match panes.len() {
        3 if whole => rows(Pane::Shards),
        3 => rows(Pane::Shards).clamp(PANE_ROWS_MIN, (left / 2).max(PANE_ROWS_MIN)),
        _ => 0,
    };
    let mut y = area.y;
    let heights = [workers, left - shards, shards];
    panes
        .iter()
        .zip(heights)
        .map(|(pane, height)| {
            let place = Rect { y, height, ..area };
            y += height;
            (*pane, place)
        })
        .collect()
}

fn draw_pane(state: &mut State, pane: Pane, area: Rect, buffer: &mut Buffer, look: Look) {
    let focused = look.keys && state.focus == pane;
    let (name, note) = described(state, pane);
    let bar = Rect { height: 1, ..area };
    buffer.set_style(bar, if focused { Style::new().add_modifier(Modifier::REVERSED) } else { BOLD });
    buffer.set_stringn(bar.x, bar.y, &name, usize::from(bar.width), Style::new());
    let body = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    let sheet = match pane {
        Pane::Workers => &mut state.workers,
        Pane::Scans => &mut state.scans,
        Pane::Shards => &mut state.shards,
    };
    match note {
        Some((note, tone)) => {
            buffer.set_stringn(body.x, body.y, note, usize::from(body.width), look.tone(tone));
        }
        None => table(sheet, body, buffer, look, focused),
    }
}

/// The title of a pane, and what is said in place of its rows.
fn described(state: &State, pane: Pane) -> (String, Option<(String, Tone)>) {
    let snapshot = state.snapshot.as_deref();
    let rows = sheet(state, pane).rows().len();
    let refused = |why: &String| Some((clean(why), Tone::Bad));
    let quiet = |text: &str| (rows == 0).then(|| (text.to_owned(), Tone::Quiet));
    match pane {
        Pane::Workers => {
            let note = match snapshot.map(|snapshot| &snapshot.workers) {
                Some(Err(why)) => refused(why),
                _ => quiet("no worker is registered"),
            };
            (format!("Workers ({rows})"), note)
        }
        Pane::Scans => {
            let note = match (snapshot.map(|snapshot| &snapshot.scans), state.only_active) {
                (Some(Err(why)), _) => refused(why),
                (_, true) => quiet("no scan waits or runs"),
                (_, false) => quiet("no scans"),
            };
            let which = if state.only_active { "that wait or run " } else { "" };
            (format!("Scans {which}({rows})"), note)
        }
        Pane::Shards => {
            let scan = clean(state.wanted.scan.as_deref().unwrap_or_default());
            let found = snapshot.and_then(|snapshot| snapshot.shards.as_ref());
            match found.filter(|(of, _)| Some(of) == state.wanted.scan.as_ref()) {
                Some((_, Ok(shards))) => {
                    let title = rows::shards_title(shards.state, &shards.profile);
                    (format!("Shards of {scan}, the slowest first: {title}"), quiet("no shard was sent"))
                }
                Some((_, Err(why))) => (format!("Shards of {scan}"), refused(why)),
                None => (format!("Shards of {scan}"), quiet("asking")),
            }
        }
    }
}

fn table(sheet: &mut Sheet, area: Rect, buffer: &mut Buffer, look: Look, focused: bool) {
    let columns = sheet.fitting(area.width, GAP);
    let order = sheet.order();
    let aligned = |place: usize| if sheet.columns[place].number { Alignment::Right } else { Alignment::Left };
    let heading = columns.iter().map(|(place, _)| {
        let mark = match (order.column == Some(*place), order.reversed) {
            (false, _) => "",
            (true, false) => "▲",
            (true, true) => "▼",
        };
        TableCell::new(Text::raw(format!("{}{mark}", sheet.columns[*place].title)).alignment(aligned(*place)))
    });
    let heading = TableRow::new(heading.collect::<Vec<_>>()).style(DIM);
    let lines = sheet.rows().iter().map(|row| {
        TableRow::new(columns.iter().map(|(place, _)| {
            let cell = &row.cells[*place];
            TableCell::new(Text::raw(cell.text.as_str()).alignment(aligned(*place))).style(look.tone(cell.tone))
        }))
    });
    let widths = columns.iter().map(|(_, width)| Constraint::Length(*width));
    let highlight = match (look.keys, focused) {
        (false, _) => Style::new(),
        (true, true) => Style::new().add_modifier(Modifier::REVERSED),
        (true, false) => BOLD,
    };
    let drawn = Table::new(lines, widths).header(heading).column_spacing(GAP).row_highlight_style(highlight);
    let mut scrolled = sheet.table;
    scrolled.select(sheet.selected_place());
    StatefulWidget::render(drawn, area, buffer, &mut scrolled);
    sheet.table = scrolled;
}
