//! Kernel text of a part's loops: over tiles, and over the bars of a tile.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use trawl_plan::graph::SHORT_WINDOW_BARS;

use crate::cuda::codegen::side_by_side::{TAIL_TOGETHER, indent, side_by_side, tail_side_by_side, windows_together};
use crate::cuda::codegen::statement::{INSIDE, Kind, NEXT, Statement, TOGETHER, When};
use crate::cuda::codegen::steps::StepInput;

/// Bars side by side in the loop that runs at most bars: steps of neighbouring bars overlap, and their divisions.
const SIDE_BY_SIDE: usize = 2;

/// As [`SIDE_BY_SIDE`], for parts of at most [`FEW_LINES`] statements: registers are left for more bars.
const SIDE_BY_SIDE_FEW: usize = 4;
const FEW_LINES: usize = 24;

/// Maximum outputs of a part whose bars run side by side in the tail: the values of all of them wait for their stores. With more,
/// registers of the part that brings the columns spill, and the code of all parts exceeds the instruction cache.
const TAIL_OUTPUTS_MAX: usize = 6;

/// Maximum statements of such a part: its code is there twice.
const TAIL_LINES_MAX: usize = 64;

// Bars side by side are fewer than those of a window in blocks, so that at most one of them begins a block.
const _: () = assert!(SIDE_BY_SIDE <= SIDE_BY_SIDE_FEW && SIDE_BY_SIDE_FEW as u32 <= SHORT_WINDOW_BARS);

/// A series of which past values are kept.
pub(crate) struct Kept {
    pub source: StepInput,
    pub when: When,
    /// The function that keeps a value.
    pub push: String,
}

/// Code of a part by when it runs ([`When`]).
#[derive(Default)]
pub(crate) struct Body {
    pub states: String,
    pub starts: String,
    /// How windows that do not run at every bar leave out a tile.
    pub left_out: String,
    pub every: Vec<Statement>,
    pub tail: Vec<Statement>,
    pub wanted: Vec<Statement>,
    /// Series with look-back, by index of their history.
    pub histories: Vec<Kept>,
    /// Columns and series of other parts that have been loaded, and when.
    pub read: Vec<(StepInput, When)>,
    /// Conditions under which steps are past their seeds for the rest of the run.
    pub settles: Vec<String>,
    /// Conditions under which no window of every bar begins a block within the next bars.
    pub blocks: Vec<String>,
    /// Conditions under which no window begins a block within the next bars, except at the first of them.
    pub tail_blocks: Vec<String>,
    /// Whether bars of the tail run one after another.
    pub runs_in_order: bool,
    /// Per step: number of divisions on the path to its value.
    stages: BTreeMap<usize, usize>,
}

impl Body {
    pub fn push(&mut self, when: When, line: Statement) {
        match when {
            When::Every => &mut self.every,
            When::Tail => &mut self.tail,
            When::Wanted => &mut self.wanted,
        }
        .push(line);
    }

    /// Whether all of it runs at every bar.
    fn has_no_tail(&self) -> bool {
        self.tail.is_empty() && self.wanted.is_empty()
    }

    /// The code from the first bar on at which finite windows are needed. `row`: the bar's number among those of the launch.
    fn tail_text(&self, row: &str) -> String {
        joined(&self.tail, "next") + &self.wanted_text(row)
    }

    /// As [`Self::tail_text`], with windows that begin their blocks together.
    fn settled_tail_text(&self) -> String {
        let line = |line: &Statement| line.text.clone() + "\n";
        let text = windows_together(self.tail.iter(), line, str::to_owned);
        text.replace(NEXT, "next").replace(INSIDE, "next_inside") + &self.wanted_text("t")
    }

    fn wanted_text(&self, row: &str) -> String {
        let mut text = String::new();
        if !self.wanted.is_empty() {
            let _ = writeln!(text, "if (b.wants({row})) {{");
            indent(&mut text, 1, &joined(&self.wanted, "next"));
            text.push_str("}\n");
        }
        text
    }

    /// The code of several bars of the tail side by side, and the condition under which it runs. `None` if they run in order.
    fn tail_together(&self, tile: usize) -> Option<(String, String)> {
        let outputs = self.wanted.iter().filter(|line| matches!(line.kind, Kind::Fixed)).count();
        let lines = self.every.len() + self.tail.len() + self.wanted.len();
        if self.has_no_tail()
            || self.runs_in_order
            || tile < TAIL_TOGETHER
            || outputs > TAIL_OUTPUTS_MAX
            || lines > TAIL_LINES_MAX
        {
            return None;
        }
        let text = tail_side_by_side(&self.every, &self.tail, &self.wanted, tile, self.histories.len())?;
        let mut condition = format!("i + {TAIL_TOGETHER} <= bars");
        for block in &self.tail_blocks {
            let _ = write!(condition, " && {}", block.replace(TOGETHER, &TAIL_TOGETHER.to_string()));
        }
        Some((text, condition))
    }

    /// Maximum number of divisions on the paths to these steps; series of other parts count as 0.
    pub fn stage_of(&self, steps: impl Iterator<Item = usize>) -> usize {
        steps.filter_map(|step| self.stages.get(&step)).max().copied().unwrap_or(0)
    }

    /// Adds a step; returns the stage of its value.
    pub fn push_step(&mut self, step: usize, when: When, line: Statement) -> usize {
        let after = line.stage + usize::from(matches!(line.kind, Kind::Divided(_)));
        self.stages.insert(step, after);
        self.push(when, line);
        after
    }
}

/// Parameters of the loops of a part.
pub(crate) struct Loop {
    pub number: usize,
    /// Number of bars of a tile.
    pub tile: usize,
    pub warps: usize,
    pub level: usize,
    /// The highest level of the kernel's parts.
    pub top: usize,
    /// Whether its warp brings the columns.
    pub fetches: bool,
    /// Whether lanes are chunks: bar numbers then differ from rows, and rows before bar 0 are unused.
    pub over_chunks: bool,
}

impl Loop {
    /// The function of a part. `buffers`: its tiles, one line each.
    pub fn around(&self, body: &Body, buffers: &str) -> String {
        let Self { number, tile, warps, level, top, fetches, over_chunks } = *self;
        let mut text = format!(
            "\nSTEP void @_part{number}(const @_arguments& a, const Frame<{tile}, {warps}>& b, const @_columns& c) {{\n"
        );
        if over_chunks {
            text.push_str("    const int first = first_bar_of(a.run.table + a.p[0], b.group * LANES + b.lane);\n");
        }
        indent(&mut text, 1, &body.states);
        indent(&mut text, 1, &body.starts);
        let (fetch, wait) = if fetches { ("@_fetch(a, b, c, step + 1);\n", "copies_wait<0>();\n") } else { ("", "") };
        // One step: a tile, if there is one for this level.
        let around = |lines: &str| {
            let mut text =
                format!("{fetch}const int tile = step - {level};\nif (tile >= b.first_tile && tile < b.tiles) {{\n");
            indent(&mut text, 1, buffers);
            text.push_str("    const int bars = b.bars_of(tile);\n");
            if !body.has_no_tail() && !over_chunks {
                text.push_str("    const int tail = b.before_tail(tile);\n");
                if !body.left_out.is_empty() {
                    text.push_str("    if (b.leaves_out(tile, tail)) {\n");
                    indent(&mut text, 2, &body.left_out);
                    text.push_str("    }\n");
                }
            }
            indent(&mut text, 1, lines);
            let _ = write!(text, "}}\n{wait}block_barrier(b.threads);\n");
            text
        };
        let until = format!("step < b.tiles + {top}");
        if over_chunks || body.settles.is_empty() {
            let lines = if over_chunks { self.of_chunks(body) } else { self.short(body) };
            let _ = writeln!(text, "    for (int step = b.first_tile; {until}; ++step) {{");
            indent(&mut text, 2, &around(&lines));
            text.push_str("    }\n");
        } else {
            // A loop of its own for settled tiles: what only seeds need takes no registers there.
            let settled = body.settles.join(" && ");
            let long = self.long(body) + &format!("settled = goes_on(b.all_settled(tile + 1, {settled}), tile);\n");
            let short = self.short(body) + "settled = goes_on(true, tile);\n";
            let _ = writeln!(text, "    bool settled = false;\n    int step = b.first_tile;\n    while ({until}) {{");
            for (condition, lines) in [("!settled", long), ("settled", short)] {
                let _ = writeln!(text, "        for (; {until} && {condition}; ++step) {{");
                indent(&mut text, 3, &around(&lines));
                text.push_str("        }\n");
            }
            text.push_str("    }\n");
        }
        text.push_str("}\n");
        text
    }

    /// The bars of a tile where every step is past its seed: first those before finite windows are wanted, then the
    /// others.
    fn short(&self, body: &Body) -> String {
        let every = joined(&body.every, "next_settled");
        let bar = format!("const int t = tile * {} + i, at = i * LANES + b.lane;\n", self.tile);
        let mut text = String::from("int i = 0;\n");
        let mut rest = String::new();
        let until = if body.has_no_tail() { "bars" } else { "tail" };
        if body.every.is_empty() {
            let _ = writeln!(text, "i = {until};");
        } else {
            let single = format!("{bar}{every}");
            let together = self.together(&body.every);
            match side_by_side(&body.every, together, self.tile, &body.blocks) {
                Some(bars) => {
                    let _ = writeln!(text, "for (; i + {together} <= {until}; i += {together}) {{");
                    indent(&mut text, 1, &bars);
                    text.push_str("}\n");
                    let _ = writeln!(rest, "for (; i < {until}; ++i) {{");
                    indent(&mut rest, 1, &single);
                    rest.push_str("}\n");
                }
                // One loop without unrolling: the code of families fills the instruction caches.
                None => {
                    text.push_str("#pragma unroll 1\nfor (; i < bars; ++i) {\n");
                    indent(&mut text, 1, &single);
                    if !body.has_no_tail() {
                        text.push_str("    if (i >= tail) {\n");
                        indent(&mut text, 2, &body.tail_text("t"));
                        text.push_str("    }\n");
                    }
                    text.push_str("}\n");
                    return text;
                }
            }
        }
        if body.has_no_tail() {
            return text + &rest;
        }
        rest.push_str("for (; i < bars; ++i) {\n");
        if let Some((together, condition)) = body.tail_together(self.tile) {
            let _ = writeln!(rest, "    if ({condition}) {{");
            indent(&mut rest, 2, &together);
            let _ = writeln!(rest, "        i += {TAIL_TOGETHER} - 1;\n        continue;\n    }}");
        }
        indent(&mut rest, 1, &bar);
        indent(&mut rest, 1, &every);
        // In its own scope: it may load again what is loaded at every bar.
        rest.push_str("    {\n");
        indent(&mut rest, 2, &body.settled_tail_text());
        rest.push_str("    }\n}\n");
        // In most tiles nothing is left: one question instead of one for each loop.
        text.push_str("if (i < bars) {\n");
        indent(&mut text, 1, &rest);
        text.push_str("}\n");
        text
    }

    /// Number of bars side by side.
    fn together(&self, lines: &[Statement]) -> usize {
        let most = if lines.len() <= FEW_LINES { SIDE_BY_SIDE_FEW } else { SIDE_BY_SIDE };
        most.min(self.tile)
    }

    /// The bars of a tile where a step may be at its seed.
    fn long(&self, body: &Body) -> String {
        let mut text = String::from("for (int i = 0; i < bars; ++i) {\n");
        let _ = writeln!(text, "    const int t = tile * {} + i, at = i * LANES + b.lane;", self.tile);
        indent(&mut text, 1, &joined(&body.every, "next"));
        if !body.has_no_tail() {
            text.push_str("    if (i >= tail) {\n");
            indent(&mut text, 2, &body.tail_text("t"));
            text.push_str("    }\n");
        }
        text.push_str("}\n");
        text
    }

    /// The rows of a tile where lanes are chunks.
    fn of_chunks(&self, body: &Body) -> String {
        let mut text = String::from("for (int i = 0; i < bars; ++i) {\n");
        let _ = writeln!(
            text,
            "    const int row = tile * {} + i, t = first + row;\n    const int at = i * LANES + b.lane;",
            self.tile
        );
        indent(&mut text, 1, &joined(&body.every, "next"));
        if !body.has_no_tail() {
            text.push_str("    if (row >= b.tail && t >= 0) {\n");
            indent(&mut text, 2, &body.tail_text("row"));
            text.push_str("    }\n");
        }
        text.push_str("}\n");
        text
    }
}

/// Joins statements bar by bar. `next`: the function called on a step that may be past its seed.
fn joined(lines: &[Statement], next: &str) -> String {
    lines.iter().map(|line| line.text.replace(NEXT, next).replace(INSIDE, "next") + "\n").collect()
}

/// A ring of past values that one part keeps for several families of averages; each value is stored twice, so that
/// walks are contiguous.
#[derive(Clone, Copy)]
pub(crate) struct Shared {
    pub(crate) source: StepInput,
    /// The part that fills the ring; the others read it one tile later.
    pub(crate) writer: usize,
    pub(crate) ring: usize,
}
