//! Kernel text of a part's loops: over tiles, and over the bars of a tile.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::cuda::codegen::step_abi::Division;
use crate::cuda::codegen::steps::StepInput;

/// Placeholder in the code of a bar for the function that advances a step by one bar: the general one, or the one for
/// steps past their seed.
pub(crate) const NEXT: &str = "$next";

/// As [`NEXT`], for a window in blocks: the general function, or the one for bars that do not begin a block.
pub(crate) const INSIDE: &str = "$inside";

/// Placeholder in a condition for the number of bars processed side by side.
pub(crate) const TOGETHER: &str = "$together";

/// Bars side by side in the loop that runs at most bars: steps of neighbouring bars overlap, and their divisions.
const SIDE_BY_SIDE: usize = 2;

/// As [`SIDE_BY_SIDE`], for parts of at most [`FEW_LINES`] statements: registers are left for more bars.
const SIDE_BY_SIDE_FEW: usize = 4;
const FEW_LINES: usize = 24;

/// When a statement runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum When {
    /// At every bar.
    Every,
    /// From the first bar on at which finite windows are needed.
    Tail,
    /// At bars whose values are wanted: no later bar depends on it.
    Wanted,
}

/// A statement in the code of a bar.
#[derive(Debug, Clone)]
pub(crate) struct Statement {
    text: String,
    /// Number of divisions on the path to its inputs.
    stage: usize,
    kind: Kind,
    /// Index of the history that it reads or writes: bars side by side need all of these in one stage.
    history: Option<usize>,
}

#[derive(Debug, Clone)]
enum Kind {
    /// Reads a column, or a series of another part.
    Load,
    Plain,
    /// A step that divides: its result is one stage after its inputs.
    Divided(Divided),
    /// Runs bar by bar only.
    Fixed,
}

/// A step that divides.
#[derive(Debug, Clone)]
pub(crate) struct Divided {
    pub step: usize,
    /// What its functions are called on: its state, or a type.
    pub owner: String,
    pub arguments: String,
    pub division: Division,
}

impl Divided {
    /// The line that makes its quotient the short way.
    fn quotient(&self) -> String {
        let Self { step, owner, arguments, division } = self;
        match division {
            Division::OfState => format!("real q{step} = quotient_short(o{step}, d{step}, usual);"),
            Division::ByWhole => {
                format!("real q{step} = {owner}quotient(o{step}, {arguments}, usual);")
            }
        }
    }
}

impl Statement {
    pub fn load(text: String) -> Self {
        Self { text, stage: 0, kind: Kind::Load, history: None }
    }

    pub fn of(stage: usize, text: String) -> Self {
        Self { text, stage, kind: Kind::Plain, history: None }
    }

    pub fn of_history(self, history: usize) -> Self {
        Self { history: Some(history), ..self }
    }

    pub fn fixed(text: String) -> Self {
        Self { text, stage: 0, kind: Kind::Fixed, history: None }
    }

    pub fn divided(stage: usize, divided: Divided, text: String) -> Self {
        Self { kind: Kind::Divided(divided), ..Self::of(stage, text) }
    }
}

/// Code of a part by when it runs ([`When`]).
#[derive(Default)]
pub(crate) struct Body {
    pub states: String,
    pub starts: String,
    pub every: Vec<Statement>,
    pub tail: Vec<Statement>,
    pub wanted: Vec<Statement>,
    /// Series with look-back, by index of their history, and when they are kept.
    pub histories: Vec<(StepInput, When)>,
    /// Columns and series of other parts that have been loaded, and when.
    pub read: Vec<(StepInput, When)>,
    /// Conditions under which steps are past their seeds for the rest of the run.
    pub settles: Vec<String>,
    /// Conditions under which no window of every bar begins a block within the next bars.
    pub blocks: Vec<String>,
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
        let mut text = joined(&self.tail, "next");
        if !self.wanted.is_empty() {
            let _ = writeln!(text, "if (b.wants({row})) {{");
            indent(&mut text, 1, &joined(&self.wanted, "next"));
            text.push_str("}\n");
        }
        text
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
        if !body.settles.is_empty() {
            text.push_str("    bool settled = false;\n");
        }
        let (fetch, wait) =
            if fetches { ("        @_fetch(a, b, c, step + 1);\n", "        copies_wait<0>();\n") } else { ("", "") };
        let _ = write!(
            text,
            "    for (int step = b.first_tile; step < b.tiles + {top}; ++step) {{\n{fetch}        const int tile = step - \
             {level};\n        if (tile >= b.first_tile && tile < b.tiles) {{\n"
        );
        indent(&mut text, 3, buffers);
        text.push_str("            const int bars = b.bars_of(tile);\n");
        if over_chunks {
            indent(&mut text, 3, &self.of_chunks(body));
        } else if body.settles.is_empty() {
            indent(&mut text, 3, &self.short(body));
        } else {
            let conditions = body.settles.join(" && ");
            let _ = writeln!(
                text,
                "            settled = goes_on(settled || b.all_settled(tile, {conditions}), tile);\n            if (settled) {{"
            );
            indent(&mut text, 4, &self.short(body));
            text.push_str("            } else {\n");
            indent(&mut text, 4, &self.long(body));
            text.push_str("            }\n");
        }
        let _ = write!(text, "        }}\n{wait}        block_barrier(b.threads);\n    }}\n}}\n");
        text
    }

    /// The bars of a tile where every step is past its seed: first those before finite windows are wanted, then the
    /// others.
    fn short(&self, body: &Body) -> String {
        let every = joined(&body.every, "next_settled");
        let bar = format!("const int t = tile * {} + i, at = i * LANES + b.lane;\n", self.tile);
        let mut text = String::from("int i = 0;\n");
        if !body.has_no_tail() {
            text.push_str("const int tail = b.before_tail(tile);\n");
        }
        let until = if body.has_no_tail() { "bars" } else { "tail" };
        if body.every.is_empty() {
            let _ = writeln!(text, "i = {until};");
        } else {
            let single = format!("{bar}{every}");
            let together = self.together(&body.every);
            match self.side_by_side(&body.every, together) {
                Some(bars) => {
                    let _ = writeln!(text, "for (; i + {together} <= {until}; i += {together}) {{");
                    let inside = bars.replace(INSIDE, "next_inside");
                    if body.blocks.is_empty() {
                        indent(&mut text, 1, &inside);
                    } else {
                        let blocks = body.blocks.join(" && ").replace(TOGETHER, &together.to_string());
                        let _ = writeln!(text, "    if ({blocks}) {{");
                        indent(&mut text, 2, &inside);
                        text.push_str("    } else {\n");
                        indent(&mut text, 2, &bars.replace(INSIDE, "next"));
                        text.push_str("    }\n");
                    }
                    let _ = writeln!(text, "}}\nfor (; i < {until}; ++i) {{");
                    indent(&mut text, 1, &single);
                    text.push_str("}\n");
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
        if !body.has_no_tail() {
            text.push_str("for (; i < bars; ++i) {\n");
            indent(&mut text, 1, &bar);
            indent(&mut text, 1, &every);
            // In its own scope: it may load again what is loaded at every bar.
            text.push_str("    {\n");
            indent(&mut text, 2, &body.tail_text("t"));
            text.push_str("    }\n}\n");
        }
        text
    }

    /// Number of bars side by side.
    fn together(&self, lines: &[Statement]) -> usize {
        let most = if lines.len() <= FEW_LINES { SIDE_BY_SIDE_FEW } else { SIDE_BY_SIDE };
        most.min(self.tile)
    }

    /// Several bars at once: first their loads, then stage by stage, with the bars in order within a stage; between
    /// stages their divisions side by side, with a single test whether all of them may take the fast path. `None` if
    /// bars must run in order.
    fn side_by_side(&self, lines: &[Statement], together: usize) -> Option<String> {
        let mut stages: BTreeMap<usize, usize> = BTreeMap::new();
        let is_apart = |line: &Statement| match line.history {
            _ if matches!(line.kind, Kind::Fixed) => true,
            Some(history) => *stages.entry(history).or_insert(line.stage) != line.stage,
            None => false,
        };
        if together < 2 || lines.iter().any(is_apart) {
            return None;
        }
        let mut text = String::new();
        for bar in 0..together {
            let _ = writeln!(
                text,
                "const int t_{bar} = tile * {} + i + {bar}, at_{bar} = (i + {bar}) * LANES + b.lane;",
                self.tile
            );
        }
        let (loads, steps): (Vec<&Statement>, Vec<&Statement>) =
            lines.iter().partition(|line| matches!(line.kind, Kind::Load));
        for bar in 0..together {
            loads.iter().for_each(|line| text += &(of_bar(&line.text, bar) + "\n"));
        }
        let last = steps.iter().map(|line| line.stage + 1).max().unwrap_or(0);
        for stage in 0..=last {
            for bar in 0..together {
                for line in &steps {
                    match &line.kind {
                        Kind::Divided(Divided { step, owner, arguments, .. }) if line.stage + 1 == stage => {
                            let made = format!("const real v{step} = {owner}with_quotient(q{step}, {arguments});\n");
                            text += &of_bar(&made, bar);
                        }
                        Kind::Divided(Divided { step, owner, arguments, .. }) if line.stage == stage => {
                            let made =
                                format!("real o{step}, d{step};\n{owner}operands({arguments}, o{step}, d{step});\n");
                            text += &of_bar(&made, bar);
                        }
                        Kind::Plain if line.stage == stage => text += &(of_bar(&line.text, bar) + "\n"),
                        _ => {}
                    }
                }
            }
            let places: Vec<(&Divided, usize)> = steps
                .iter()
                .filter(|line| line.stage == stage)
                .filter_map(|line| if let Kind::Divided(divided) = &line.kind { Some(divided) } else { None })
                .flat_map(|divided| (0..together).map(move |bar| (divided, bar)))
                .collect();
            if places.is_empty() {
                continue;
            }
            let _ = writeln!(text, "bool usual{stage} = true;");
            for (divided, bar) in &places {
                text += &(of_bar(&divided.quotient(), *bar).replace("usual", &format!("usual{stage}")) + "\n");
            }
            let _ = writeln!(text, "if (!usual{stage}) {{");
            for (Divided { step, .. }, bar) in &places {
                let _ = writeln!(text, "    q{step}_{bar} = o{step}_{bar} / d{step}_{bar};");
            }
            text.push_str("}\n");
        }
        Some(text.replace(NEXT, "next_settled"))
    }

    /// The bars of a tile where a step may be at its seed.
    fn long(&self, body: &Body) -> String {
        let mut text = String::from("for (int i = 0; i < bars; ++i) {\n");
        let _ = writeln!(text, "    const int t = tile * {} + i, at = i * LANES + b.lane;", self.tile);
        indent(&mut text, 1, &joined(&body.every, "next"));
        if !body.has_no_tail() {
            text.push_str("    if (t >= b.tail) {\n");
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

/// A statement with names specific to one of several bars: values, arrays of values, bar number and index in the tile.
fn of_bar(text: &str, bar: usize) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    let mut rest = text;
    while let Some(begin) = rest.find(|c: char| c.is_ascii_alphabetic() || c == '_') {
        out.push_str(&rest[..begin]);
        let after = &rest[begin..];
        let end = after.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(after.len());
        let name = &after[..end];
        out.push_str(name);
        let numbered = name.len() > 1 && name[1..].bytes().all(|c| c.is_ascii_digit());
        let member = rest[..begin].ends_with('.');
        if !member && (name == "t" || name == "at" || numbered && name.starts_with(['v', 'x', 'a', 'q', 'o', 'd'])) {
            let _ = write!(out, "_{bar}");
        }
        rest = &after[end..];
    }
    out + rest
}

fn indent(text: &mut String, levels: usize, lines: &str) {
    for line in lines.lines() {
        let _ = writeln!(text, "{:1$}{line}", "", 4 * levels);
    }
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
