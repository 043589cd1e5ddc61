//! Kernel text of several bars side by side: their steps overlap, and so do their divisions.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::cuda::codegen::statement::{Divided, INSIDE, Kind, NEXT, Statement, TOGETHER, Window};
use crate::cuda::codegen::step_abi::Division;

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

impl Divided {
    /// The line that makes its quotient the short way.
    fn quotient(&self) -> String {
        let Self { step, owner, arguments, division } = self;
        match division {
            Division::OfState | Division::OfMean => format!("real q{step} = quotient_short(o{step}, d{step}, usual);"),
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
    let mut stages: BTreeMap<usize, usize> = BTreeMap::new();
    let is_apart = |line: &Statement| match line.history {
        _ if matches!(line.kind, Kind::Fixed) => true,
        Some(history) => *stages.entry(history).or_insert(line.stage) != line.stage,
        None => false,
    };
    if together < 2 || lines.iter().any(is_apart) {
        return None;
    }
    let mut text = format!("const int t = tile * {tile} + i, at = i * LANES + b.lane;\n");
    for bar in 0..together {
        let _ = writeln!(text, "const int t_{bar} = t + {bar};");
    }
    let pieces = |begins: bool, next: &str| -> Vec<String> {
        pieces(lines, together, begins)
            .iter()
            .map(|piece| piece.replace(NEXT, "next_settled").replace(INSIDE, next))
            .collect()
    };
    let inside = pieces(false, "next_inside");
    if blocks.is_empty() {
        return Some(text + &inside.concat());
    }
    // Where another window begins a block, this one may not.
    let begins = pieces(blocks.len() == 1, "next");
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

/// First the loads of all bars, then stage by stage and run by run, with the bars in order within a run; behind the runs of a stage
/// their stores for other parts, and between stages their divisions side by side, with a single test whether all of them may take the fast path. Where a bar begins a block of
/// the only window (`begins`), that takes all bars at once: what it reads of them is made before.
fn pieces(lines: &[Statement], together: usize, begins: bool) -> Vec<String> {
    let mut pieces = Vec::new();
    let (loads, steps): (Vec<&Statement>, Vec<&Statement>) =
        lines.iter().partition(|line| matches!(line.kind, Kind::Load));
    let loads = (0..together).flat_map(|bar| loads.iter().map(move |line| of_bar(&line.text, bar) + "\n"));
    pieces.push(loads.collect());
    let runs = runs(lines);
    let begins = begins && runs.is_some();
    let runs = runs.unwrap_or_else(|| vec![lines]);
    let last = steps.iter().map(|line| line.stage + 1).max().unwrap_or(0);
    for stage in 0..=last {
        let means = steps.iter().filter(|line| line.stage + 1 == stage);
        pieces.extend(means.filter_map(|line| match &line.kind {
            Kind::Divided(divided) if divided.division == Division::OfMean => Some(divided.moved(together)),
            _ => None,
        }));
        for run in &runs {
            let bars = (0..together).flat_map(|bar| run.iter().map(move |line| of_stage(line, stage, bar)));
            let mut piece: String = bars.collect();
            if let [Statement { kind: Kind::Window(window), stage: of, .. }] = run
                && begins
                && *of == stage
            {
                piece = window.begins(together);
            }
            pieces.push(piece);
        }
        // A store between bars would keep them apart.
        let stores: Vec<_> =
            steps.iter().filter(|line| matches!(line.kind, Kind::Store) && line.stage == stage).collect();
        let bars = (0..together).flat_map(|bar| stores.iter().map(move |line| of_bar(&line.text, bar) + "\n"));
        pieces.push(bars.collect());
        pieces.push(divisions(&steps, stage, together));
    }
    pieces
}

/// What a line of one of several bars does in a stage.
fn of_stage(line: &Statement, stage: usize, bar: usize) -> String {
    let text = match &line.kind {
        Kind::Divided(Divided { step, owner, arguments, division })
            if line.stage + 1 == stage && *division != Division::OfMean =>
        {
            format!("const real v{step} = {owner}with_quotient(q{step}, {arguments});\n")
        }
        Kind::Divided(Divided { step, owner, arguments, .. }) if line.stage == stage => {
            format!("real o{step}, d{step};\n{owner}operands({arguments}, o{step}, d{step});\n")
        }
        Kind::Plain | Kind::Window(_) if line.stage == stage => line.text.clone() + "\n",
        _ => return String::new(),
    };
    of_bar(&text, bar)
}

/// The divisions of a stage.
fn divisions(steps: &[&Statement], stage: usize, together: usize) -> String {
    let divided = steps.iter().filter(|line| line.stage == stage).filter_map(|line| match &line.kind {
        Kind::Divided(divided) => Some(divided),
        _ => None,
    });
    let places: Vec<(&Divided, usize)> =
        divided.flat_map(|divided| (0..together).map(move |bar| (divided, bar))).collect();
    if places.is_empty() {
        return String::new();
    }
    let mut text = format!("bool usual{stage} = true;\n");
    for (divided, bar) in &places {
        text += &(of_bar(&divided.quotient(), *bar).replace("usual", &format!("usual{stage}")) + "\n");
    }
    let _ = writeln!(text, "if (!usual{stage}) {{");
    for (Divided { step, .. }, bar) in &places {
        let _ = writeln!(text, "    q{step}_{bar} = o{step}_{bar} / d{step}_{bar};");
    }
    text + "}\n"
}

/// The lines of bars side by side, in runs that one bar after the other goes through before the next run: windows are runs
/// of their own. `None` if a history is read or written in several runs, since bars must then go through them together.
fn runs(lines: &[Statement]) -> Option<Vec<&[Statement]>> {
    let is_window = |line: &Statement| matches!(line.kind, Kind::Window(_));
    let runs: Vec<&[Statement]> = lines.chunk_by(|a, b| !is_window(a) && !is_window(b)).collect();
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
