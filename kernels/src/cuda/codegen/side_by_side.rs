//! Kernel text of several bars side by side: their steps overlap, and so do their divisions.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

use crate::cuda::codegen::statement::{Divided, INSIDE, Kind, NEXT, Pair, Statement, TOGETHER, Window};
use crate::cuda::codegen::step_abi::Division;

/// Bars side by side from the first bar on at which finite windows are needed. Windows of even periods then begin blocks at
/// the first of them only.
pub(crate) const TAIL_TOGETHER: usize = 2;

/// Past values that a function of two bars reads together. A history that it looks back at keeps all but one of as many slots
/// once more behind its ring ([`RingSlots::Again`](super::ring_slots::RingSlots::Again)).
pub(crate) const READ_TOGETHER: usize = 4;

/// How a piece of code takes bars side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// One after another within each stage, with the divisions of a stage side by side.
    Stages,
    /// The same, but the only window takes all bars at once: one of them begins a block.
    BeginsTogether,
    /// Where windows begin blocks at the first bar only.
    Tail,
    /// What is computed at wanted bars, once all bars are kept that are looked back at.
    Wanted,
}

/// Divisions of the tail that are made together: values that wait for their stores and addresses of rings leave few registers.
const TAIL_DIVISIONS: usize = 2;

impl Way {
    fn is_of_tail(self) -> bool {
        matches!(self, Self::Tail | Self::Wanted)
    }
}

impl Window {
    /// The lines of bars side by side of which one may begin a block.
    fn begins(&self, together: usize) -> String {
        let Self { step, input, arguments } = self;
        let inputs: Vec<String> = (0..together).map(|bar| of_bar(input, bar)).collect();
        let mut text = format!(
            "const real in{step}[] = {{{}}};\nreal out{step}[{together}];\ns{step}.next_begins(in{step}, out{step}, \
             {arguments});\n",
            inputs.join(", ")
        );
        for bar in 0..together {
            let _ = writeln!(text, "const real v{step}_{bar} = out{step}[{bar}];");
        }
        text
    }
}

impl Pair {
    /// The lines of two bars, both of which are in the history.
    fn both(&self) -> String {
        let Self { step, name, history, input, arguments } = self;
        let (one, two) = (of_bar(input, 0), of_bar(input, 1));
        format!(
            "const real in{step}[] = {{{one}, {two}}};\nreal out{step}[{TAIL_TOGETHER}];\n{name}s<{READ_TOGETHER}>(Past{{\
             k{history}, h{history}.now, t_1}}, t_0, in{step}, out{step}, {arguments});\nconst real v{step}_0 = \
             out{step}[0];\nconst real v{step}_1 = out{step}[1];\n"
        )
    }
}

impl Divided {
    /// The lines that make its operands at a bar.
    fn operands(&self, bar: usize) -> String {
        let Self { step, owner, arguments, .. } = self;
        of_bar(&format!("real o{step}, d{step};\n{owner}operands({arguments}, o{step}, d{step});\n"), bar)
    }

    /// The line that makes its quotient the short way.
    fn quotient(&self) -> String {
        let Self { step, owner, arguments, division } = self;
        match division {
            Division::OfState | Division::OfMean | Division::OfValues(_) => {
                format!("real q{step} = quotient_short(o{step}, d{step}, usual);")
            }
            Division::ByWhole => {
                format!("real q{step} = {owner}quotient(o{step}, {arguments}, usual);")
            }
        }
    }

    /// The lines that move a mean by the quotients of several bars: as if there was one, and again if there was none.
    fn moved(&self, together: usize) -> String {
        let Self { step, owner, arguments, .. } = self;
        let mut text = format!("const auto k{step} = s{step};\n");
        for bar in 0..together {
            let line = format!("real v{step} = {owner}with_quotient_begun(q{step}, {arguments});\n");
            text += &of_bar(&line, bar);
        }
        let _ = write!(text, "if (!{owner}is_begun()) {{\n    s{step} = k{step};\n");
        for bar in 0..together {
            text += &of_bar(&format!("    v{step} = {owner}with_quotient(q{step}, {arguments});\n"), bar);
        }
        text + "}\n"
    }
}

/// The lines of `together` bars of a tile of `tile` bars. `blocks`: the conditions under which no window begins a block within
/// them. `None` if bars must run in order.
pub(crate) fn side_by_side(lines: &[Statement], together: usize, tile: usize, blocks: &[String]) -> Option<String> {
    if together < 2 || !may_overlap(lines.iter()) {
        return None;
    }
    let mut text = first_lines(together, tile);
    let lines: Vec<&Statement> = lines.iter().collect();
    let pieces = |way: Way, next: &str| -> Vec<String> {
        pieces(&lines, together, way)
            .iter()
            .map(|piece| piece.replace(NEXT, "next_settled").replace(INSIDE, next))
            .collect()
    };
    let inside = pieces(Way::Stages, "next_inside");
    if blocks.is_empty() {
        return Some(text + &inside.concat());
    }
    // Where another window begins a block, this one may not.
    let begins = pieces(if blocks.len() == 1 { Way::BeginsTogether } else { Way::Stages }, "next");
    // What is the same either way is written once, in front.
    let same = inside.iter().zip(&begins).take_while(|(a, b)| a == b).count();
    text += &inside[..same].concat();
    let _ = writeln!(text, "if ({}) {{", blocks.join(" && ").replace(TOGETHER, &together.to_string()));
    indent(&mut text, 1, &inside[same..].concat());
    text.push_str("} else {\n");
    indent(&mut text, 1, &begins[same..].concat());
    text.push_str("}\n");
    Some(text)
}

/// The lines of [`TAIL_TOGETHER`] bars of the tail of a tile of `tile` bars, of which at most the first begins blocks: what runs at
/// every bar, in the tail, and at wanted bars. `histories`: their number. `None` if bars must run in order.
pub(crate) fn tail_side_by_side(
    every: &[Statement],
    tail: &[Statement],
    wanted: &[Statement],
    tile: usize,
    histories: usize,
) -> Option<String> {
    let is_load = |line: &Statement| matches!(line.kind, Kind::Load);
    // What is loaded at every bar may be loaded again in the tail.
    let again =
        |line: &&Statement| is_load(line) && every.iter().any(|known| is_load(known) && known.text == line.text);
    let lines: Vec<&Statement> = every.iter().chain(tail.iter().filter(|line| !again(line))).collect();
    if !may_overlap(lines.iter().copied()) {
        return None;
    }
    let settled = |pieces: Vec<String>| pieces.concat().replace(NEXT, "next_settled").replace(INSIDE, "next_inside");
    let mut text = first_lines(TAIL_TOGETHER, tile);
    text += &settled(pieces(&lines, TAIL_TOGETHER, Way::Tail));
    if wanted.is_empty() {
        return Some(text);
    }
    let (stores, steps): (Vec<&Statement>, Vec<&Statement>) =
        wanted.iter().partition(|line| matches!(line.kind, Kind::Fixed));
    let behind = behind_pairs(&steps);
    let (late, early): (Vec<&Statement>, Vec<&Statement>) =
        stores.iter().partition(|store| behind.iter().any(|name| mentions(&store.text, name)));
    let (free, bound) = needed_by(&early, &steps);
    let steps = |lines: &[&Statement]| {
        let mut text = settled(pieces(lines, TAIL_TOGETHER, Way::Wanted));
        for (history, bar) in (0..histories).flat_map(|history| (0..TAIL_TOGETHER - 1).map(move |bar| (history, bar))) {
            let ago = TAIL_TOGETHER - 1 - bar;
            let last = format!("h{history}.now, t_{bar}}}");
            text = text.replace(&last, &format!("h{history}.ago({ago}, k{history}), t_{bar}}}"));
        }
        text
    };
    let _ = writeln!(text, "if (b.wants_any(t, {TAIL_TOGETHER})) {{");
    // What no function of two bars makes is stored in front of these, and nothing else is made there: registers need not hold it.
    for (lines, stores) in [(free, early), (bound, late)] {
        indent(&mut text, 1, &steps(&lines));
        indent(&mut text, 1, &stored(&stores));
    }
    text.push_str("}\n");
    Some(text)
}

/// The names of what functions of two bars make, and of what is made of it.
fn behind_pairs<'a>(lines: &[&'a Statement]) -> Vec<&'a str> {
    let mut behind: Vec<&str> = Vec::new();
    for line in lines {
        if matches!(line.kind, Kind::Pair(_)) || behind.iter().any(|name| mentions(&line.text, name)) {
            behind.extend(line.name());
        }
    }
    behind
}

/// The lines that stores need, and the others; each in order.
fn needed_by<'a>(stores: &[&Statement], lines: &[&'a Statement]) -> (Vec<&'a Statement>, Vec<&'a Statement>) {
    let mut readers: Vec<&str> = stores.iter().map(|store| store.text.as_str()).collect();
    let (mut needed, mut others) = (Vec::new(), Vec::new());
    for line in lines.iter().rev() {
        if line.name().is_some_and(|name| readers.iter().any(|text| mentions(text, name))) {
            readers.push(&line.text);
            needed.push(*line);
        } else {
            others.push(*line);
        }
    }
    needed.reverse();
    others.reverse();
    (needed, others)
}

/// The stores of several bars, each where it is wanted.
fn stored(stores: &[&Statement]) -> String {
    let mut text = String::new();
    for bar in (0..TAIL_TOGETHER).filter(|_| !stores.is_empty()) {
        let _ = writeln!(text, "if (b.wants(t_{bar})) {{");
        stores.iter().for_each(|store| indent(&mut text, 1, &of_bar(&store.text, bar)));
        text.push_str("}\n");
    }
    text
}

/// Whether bars may run side by side: nothing is fixed, and each history is read and written in one stage.
fn may_overlap<'a>(mut lines: impl Iterator<Item = &'a Statement>) -> bool {
    let mut stages: BTreeMap<usize, usize> = BTreeMap::new();
    lines.all(|line| match line.history {
        _ if matches!(line.kind, Kind::Fixed) => false,
        Some(history) => *stages.entry(history).or_insert(line.stage) == line.stage,
        None => true,
    })
}

/// The numbers of bars side by side, and their place in the tile.
fn first_lines(together: usize, tile: usize) -> String {
    let mut text = format!("const int t = tile * {tile} + i, at = i * LANES + b.lane;\n");
    for bar in 0..together {
        let _ = writeln!(text, "const int t_{bar} = t + {bar};");
    }
    text
}

/// First the loads of all bars, then stage by stage and run by run, with the bars in order within a run; behind the runs of a stage
/// their stores for other parts, and between stages their divisions side by side, with a single test whether all of them may take
/// the fast path. What takes all bars at once is a run of its own: what it reads of them is made before.
fn pieces(lines: &[&Statement], together: usize, way: Way) -> Vec<String> {
    let mut pieces = Vec::new();
    let (loads, steps): (Vec<&Statement>, Vec<&Statement>) =
        lines.iter().partition(|line| matches!(line.kind, Kind::Load));
    let loads = (0..together).flat_map(|bar| loads.iter().map(move |line| of_bar(&line.text, bar) + "\n"));
    pieces.push(loads.collect());
    let is_pair = |line: &Statement| matches!(line.kind, Kind::Pair(_));
    let runs = match way {
        Way::Stages | Way::BeginsTogether => runs(lines),
        Way::Tail => None,
        Way::Wanted => Some(lines.chunk_by(|a, b| !is_pair(a) && !is_pair(b)).collect()),
    };
    let begins = way == Way::BeginsTogether && runs.is_some();
    let runs = runs.unwrap_or_else(|| vec![lines]);
    let last = steps.iter().map(|line| line.stage + 1).max().unwrap_or(0);
    for stage in 0..=last {
        let means = steps.iter().filter(|line| line.stage + 1 == stage);
        pieces.extend(means.filter_map(|line| match &line.kind {
            Kind::Divided(divided) if divided.division == Division::OfMean => Some(divided.moved(together)),
            _ => None,
        }));
        for run in &runs {
            let piece = match run {
                [Statement { kind: Kind::Window(window), stage: of, .. }] if begins && *of == stage => {
                    window.begins(together)
                }
                [Statement { kind: Kind::Pair(pair), stage: of, .. }] if way == Way::Wanted => {
                    if *of == stage {
                        pair.both()
                    } else {
                        String::new()
                    }
                }
                run => {
                    let bars = |bars: Range<usize>| -> String {
                        bars.flat_map(|bar| run.iter().map(move |line| of_stage(line, stage, bar, way))).collect()
                    };
                    if way == Way::Tail {
                        let first = |line: &Statement| of_stage(line, stage, 0, way);
                        windows_together(run.iter().copied(), first, |call| of_bar(call, 0)) + &bars(1..together)
                    } else {
                        bars(0..together)
                    }
                }
            };
            pieces.push(piece);
        }
        // A store between bars would keep them apart. Those of the tail lie behind all stages.
        if !way.is_of_tail() {
            pieces.push(stores(&steps, Some(stage), together));
        }
        pieces.push(divisions(&steps, stage, together, way));
    }
    if way.is_of_tail() {
        pieces.push(stores(&steps, None, together));
    }
    pieces
}

/// The stores of series for other parts, of a stage or of all.
fn stores(steps: &[&Statement], stage: Option<usize>, together: usize) -> String {
    let here = |line: &&&Statement| matches!(line.kind, Kind::Store) && stage.is_none_or(|stage| line.stage == stage);
    let stores: Vec<_> = steps.iter().filter(here).collect();
    (0..together).flat_map(|bar| stores.iter().map(move |line| of_bar(&line.text, bar) + "\n")).collect()
}

/// Lines of a bar as `text_of` makes them. Windows wait until their values are read, then all of those that wait begin blocks in one
/// branch: what is in front of a branch does not overlap with what is behind. `named`: the text of a call of this bar.
pub(crate) fn windows_together<'a>(
    lines: impl Iterator<Item = &'a Statement>,
    text_of: impl Fn(&Statement) -> String,
    named: impl Fn(&str) -> String,
) -> String {
    let mut text = String::new();
    let mut waiting: Vec<(&Statement, String)> = Vec::new();
    let go_on = |text: &mut String, waiting: &mut Vec<(&Statement, String)>| {
        let calls: Vec<&str> = waiting.iter().filter_map(|(line, _)| Some(line.text.split_once(" = ")?.1)).collect();
        let begins: String = calls.iter().map(|call| named(&call.replace(INSIDE, "begin")) + "\n").collect();
        if calls.len() > 1 {
            let states = calls.iter().filter_map(|call| call.split_once('.'));
            let any: Vec<String> = states.map(|(state, _)| format!("{state}.block.begins()")).collect();
            let _ = writeln!(text, "if ({}) {{", any.join(" || "));
            indent(text, 1, &begins);
            text.push_str("}\n");
        } else {
            *text += &begins;
        }
        waiting.drain(..).for_each(|(_, next)| *text += &next);
    };
    for line in lines {
        let made = text_of(line);
        let reads = |(window, _): &(&Statement, String)| window.name().is_some_and(|name| mentions(&line.text, name));
        if !made.is_empty() && waiting.iter().any(reads) {
            go_on(&mut text, &mut waiting);
        }
        if made.contains(INSIDE) {
            waiting.push((line, made));
        } else {
            text += &made;
        }
    }
    go_on(&mut text, &mut waiting);
    text
}

/// Whether a text has a name.
fn mentions(text: &str, name: &str) -> bool {
    let inside = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(name)
        .any(|(at, _)| !text[..at].ends_with(inside) && !text[at + name.len()..].starts_with(inside))
}

/// What a line of one of several bars does in a stage. In the tail operands are made with their divisions.
fn of_stage(line: &Statement, stage: usize, bar: usize, way: Way) -> String {
    let text = match &line.kind {
        Kind::Divided(Divided { step, owner, arguments, division })
            if line.stage + 1 == stage && *division != Division::OfMean =>
        {
            format!("const real v{step} = {owner}with_quotient(q{step}, {arguments});\n")
        }
        Kind::Divided(divided) if line.stage == stage && !way.is_of_tail() => return divided.operands(bar),
        Kind::Plain | Kind::Window(_) | Kind::Pair(_) if line.stage == stage => line.text.clone() + "\n",
        _ => return String::new(),
    };
    of_bar(&text, bar)
}

/// The divisions of a stage, with a single question for those that are made together whether all may take the fast path.
fn divisions(steps: &[&Statement], stage: usize, together: usize, way: Way) -> String {
    let divided = steps.iter().filter(|line| line.stage == stage).filter_map(|line| match &line.kind {
        Kind::Divided(divided) => Some(divided),
        _ => None,
    });
    let divided: Vec<&Divided> = divided.collect();
    let mut text = String::new();
    let most = if way.is_of_tail() { TAIL_DIVISIONS } else { divided.len().max(1) };
    for some in divided.chunks(most) {
        let places: Vec<(&Divided, usize)> =
            some.iter().flat_map(|divided| (0..together).map(move |bar| (*divided, bar))).collect();
        let usual = format!("usual_{}", some[0].step);
        if way.is_of_tail() {
            places.iter().for_each(|(divided, bar)| text += &divided.operands(*bar));
        }
        let _ = writeln!(text, "bool {usual} = true;");
        for (divided, bar) in &places {
            text += &(of_bar(&divided.quotient(), *bar).replace("usual", &usual) + "\n");
        }
        let _ = writeln!(text, "if (!{usual}) {{");
        for (Divided { step, .. }, bar) in &places {
            let _ = writeln!(text, "    q{step}_{bar} = o{step}_{bar} / d{step}_{bar};");
        }
        text.push_str("}\n");
    }
    text
}

/// The lines of bars side by side, in runs that one bar after the other goes through before the next run: windows are runs
/// of their own. `None` if a history is read or written in several runs, since bars must then go through them together.
fn runs<'a, 'b>(lines: &'b [&'a Statement]) -> Option<Vec<&'b [&'a Statement]>> {
    let is_window = |line: &Statement| matches!(line.kind, Kind::Window(_));
    let runs: Vec<&[&Statement]> = lines.chunk_by(|a, b| !is_window(a) && !is_window(b)).collect();
    let mut run_of: BTreeMap<usize, usize> = BTreeMap::new();
    let of_histories = runs.iter().enumerate().flat_map(|(at, run)| run.iter().map(move |line| (line.history, at)));
    let apart =
        of_histories.filter_map(|(history, at)| Some(*run_of.entry(history?).or_insert(at) != at)).any(|apart| apart);
    (!apart).then_some(runs)
}

/// A statement with names specific to one of several bars: values, arrays of values, bar number and index in the tile. What
/// is in the tile is addressed by its distance from the first bar, which then is a part of the instruction.
fn of_bar(text: &str, bar: usize) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    let mut rest = text;
    while let Some(begin) = rest.find(|c: char| c.is_ascii_alphabetic() || c == '_') {
        out.push_str(&rest[..begin]);
        let after = &rest[begin..];
        let end = after.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(after.len());
        let name = &after[..end];
        let numbered = name.len() > 1 && name[1..].bytes().all(|c| c.is_ascii_digit());
        if let Some(behind) = after[end..].strip_prefix("[at]")
            && numbered
        {
            let _ = write!(out, "({name} + at)[{bar} * LANES]");
            rest = behind;
            continue;
        }
        out.push_str(name);
        let member = rest[..begin].ends_with('.');
        if !member && (name == "t" || numbered && name.starts_with(['v', 'x', 'a', 'q', 'o', 'd'])) {
            let _ = write!(out, "_{bar}");
        }
        rest = &after[end..];
    }
    out + rest
}

pub(super) fn indent(text: &mut String, levels: usize, lines: &str) {
    for line in lines.lines() {
        let _ = writeln!(text, "{:1$}{line}", "", 4 * levels);
    }
}
