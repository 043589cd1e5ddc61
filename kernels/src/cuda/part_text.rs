//! The loops of a part: over tiles, and over the bars of a tile.

use std::fmt::Write as _;

use super::steps::Source;

/// In the code of a bar: the function of a step that goes a bar further, whether it is past its seed or not.
pub(crate) const NEXT: &str = "$next";

/// Bars side by side in the loop that runs at most bars: independent steps of neighbouring bars overlap.
const UNROLLED: usize = 1;

/// Code of a part by when it runs: at every bar, and from the first bar on that finite windows are wanted from.
#[derive(Default)]
pub(crate) struct Body {
    pub states: String,
    pub starts: String,
    pub every: String,
    pub tail: String,
    /// Series that steps look back at, by the number of their history; whether they do at every bar.
    pub histories: Vec<(Source, bool)>,
    /// Columns and series of other parts that were read, and whether at every bar.
    pub read: Vec<(Source, bool)>,
    /// Conditions under which steps are past their seeds, once and for all.
    pub settles: Vec<String>,
}

impl Body {
    pub fn section(&mut self, whole: bool) -> &mut String {
        if whole { &mut self.every } else { &mut self.tail }
    }
}

/// What the loops of a part are like.
pub(crate) struct Loop {
    pub number: usize,
    /// Bars of a tile.
    pub tile: usize,
    pub warps: usize,
    pub level: usize,
    /// The highest level of the kernel's parts.
    pub top: usize,
    /// Lanes are chunks: bar numbers differ from rows, and rows before bar 0 are of nothing.
    pub over_chunks: bool,
}

impl Loop {
    /// The function of a part. `buffers`: its tiles, one line each.
    pub fn around(&self, body: &Body, buffers: &str) -> String {
        let Self { number, tile, warps, level, top, over_chunks } = *self;
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
        let _ = write!(
            text,
            "    for (int step = b.first_tile; step < b.tiles + {top}; ++step) {{\n        @_fetch(a, b, c, step + 1);\n        \
             const int tile = step - {level};\n        if (tile >= b.first_tile && tile < b.tiles) {{\n"
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
        text.push_str("        }\n        copies_wait<0>();\n        block_barrier(b.threads);\n    }\n}\n");
        text
    }

    /// The bars of a tile where every step is past its seed: first those before finite windows are wanted, then the others.
    fn short(&self, body: &Body) -> String {
        let every = body.every.replace(NEXT, "next_settled");
        let bar = format!("const int t = tile * {} + i, at = i * LANES + b.lane;\n", self.tile);
        let mut text = String::from("int i = 0;\n");
        if !body.tail.is_empty() {
            text.push_str("const int tail = b.before_tail(tile);\n");
        }
        let until = if body.tail.is_empty() { "bars" } else { "tail" };
        if body.every.is_empty() {
            let _ = writeln!(text, "i = {until};");
        } else {
            let _ = writeln!(text, "#pragma unroll {}\nfor (; i < {until}; ++i) {{", super::parts::x("X_UNROLL", UNROLLED));
            indent(&mut text, 1, &bar);
            indent(&mut text, 1, &every);
            text.push_str("}\n");
        }
        if !body.tail.is_empty() {
            text.push_str("for (; i < bars; ++i) {\n");
            indent(&mut text, 1, &bar);
            indent(&mut text, 1, &every);
            // In a block of its own: it may read again what is read at every bar.
            text.push_str("    {\n");
            indent(&mut text, 2, &body.tail);
            text.push_str("    }\n}\n");
        }
        text
    }

    /// The bars of a tile where a step may be at its seed.
    fn long(&self, body: &Body) -> String {
        let mut text = String::from("for (int i = 0; i < bars; ++i) {\n");
        let _ = writeln!(text, "    const int t = tile * {} + i, at = i * LANES + b.lane;", self.tile);
        indent(&mut text, 1, &body.every.replace(NEXT, "next"));
        if !body.tail.is_empty() {
            text.push_str("    if (t >= b.tail) {\n");
            indent(&mut text, 2, &body.tail);
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
        indent(&mut text, 1, &body.every.replace(NEXT, "next"));
        if !body.tail.is_empty() {
            text.push_str("    if (row >= b.tail && t >= 0) {\n");
            indent(&mut text, 2, &body.tail);
            text.push_str("    }\n");
        }
        text.push_str("}\n");
        text
    }
}

fn indent(text: &mut String, levels: usize, lines: &str) {
    for line in lines.lines() {
        let _ = writeln!(text, "{:1$}{line}", "", 4 * levels);
    }
}
