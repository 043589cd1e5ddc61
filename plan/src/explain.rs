//! `--explain`: the plan as text, with shared parts, frames, stages, and the look-back and cost of each node.

use std::fmt::Write as _;

use crate::frame::{Frame, FrameId};
use crate::graph::{Leaf, Node, NodeId};
use crate::lex::quoted;
use trawl_terms::{Clock, Direction};

use crate::scan_plan::Plan;

impl Plan {
    /// The text that `--explain` prints.
    pub fn explain(&self) -> String {
        let mut text = format!("plan {}\n", self.fingerprint());
        let _ = writeln!(text, "columns read: {}", self.columns.join(", "));
        let _ = writeln!(
            text,
            "look-back: {} bars; cost: {:.1} ns per symbol and bar\n",
            self.look_back(),
            self.cost_ns_per_bar()
        );
        self.explain_frames(&mut text);
        self.explain_nodes(&mut text);
        self.explain_stages(&mut text);
        self.explain_wanted(&mut text);
        text
    }

    fn explain_frames(&self, text: &mut String) {
        if self.frames.len() == 1 {
            return;
        }
        for (i, frame) in self.frames.iter().enumerate() {
            let _ = writeln!(text, "@{i:<4} {}", describe(frame));
        }
        text.push('\n');
    }

    fn step(&self, node: &Node) -> String {
        let Some(leaf) = node.op.facts().leaf() else { return node.op.canonical() };
        match leaf {
            Leaf::Column(c) => self.columns[usize::from(c)].clone(),
            Leaf::Label(l) => {
                let test = &self.labels[usize::from(l)];
                match &test.value {
                    Some(value) => format!("{} == {}", test.label, quoted(value)),
                    None => test.label.clone(),
                }
            }
            Leaf::Attribute(a) => self.attributes[usize::from(a)].clone(),
            Leaf::HistoryMask => "inside the history's bars".to_owned(),
            Leaf::Begins(period) => format!("first bar of a {}", format!("{period:?}").to_lowercase()),
            Leaf::Clock(clock) => match clock {
                Clock::InSession => "in a regular session",
                Clock::SinceOpen => "minutes since the open",
                Clock::ToClose => "minutes to the close",
                Clock::TimeOfDay => "minutes since midnight",
                Clock::Weekday => "day of the week",
                Clock::Month => "month",
                Clock::Date => "date",
            }
            .to_owned(),
            Leaf::Cross(c) => {
                let cross = &self.crosses[usize::from(c)];
                let by = cross.by.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
                format!("{} of %{}{by}", cross.function.canonical(), cross.value.0)
            }
            Leaf::Constant(_) | Leaf::Read(_) => node.op.canonical(),
        }
    }

    fn explain_nodes(&self, text: &mut String) {
        let (look_backs, reaches) = (self.graph.look_backs(), self.graph.reaches());
        let users = self.users();
        let limited = self.history.is_some();
        let framed = self.frames.len() > 1;
        let reach = if limited { "  with warm-up" } else { "" };
        let frame = if framed { "frame " } else { "" };
        let _ = writeln!(
            text,
            "{:>5}  {frame}{:<34} {:<22} {:>9}{reach} {:>7}  uses",
            "node", "step", "of", "look-back", "ns/bar"
        );
        for (i, node) in self.nodes().iter().enumerate() {
            let inputs: Vec<String> = node.inputs.iter().map(|i| format!("%{}", i.0)).collect();
            let shared = if users[i] > 1 { format!("{} (computed once)", users[i]) } else { users[i].to_string() };
            let frame = match node.frame {
                _ if !framed => String::new(),
                FrameId::ANY => "      ".to_owned(),
                id => format!("{:<6}", format!("@{}", id.0)),
            };
            let reach = if limited { format!("{:>14}", reaches[i]) } else { String::new() };
            let _ = writeln!(
                text,
                "{:>5}  {frame}{:<34} {:<22} {:>9}{reach} {:>7.1}  {shared}",
                format!("%{i}"),
                self.step(node),
                inputs.join(" "),
                look_backs[i],
                node.op.facts().cost_ns
            );
        }
        text.push('\n');
    }

    /// How often each node is used.
    fn users(&self) -> Vec<usize> {
        let mut users = vec![0usize; self.nodes().len()];
        let inputs = self.nodes().iter().flat_map(|n| n.inputs.iter().copied());
        for id in inputs.chain(self.crosses.iter().map(|c| c.value)).chain(self.outputs()) {
            users[id.index()] += 1;
        }
        users
    }

    fn explain_stages(&self, text: &mut String) {
        let last = self.stages.len() - 1;
        if last == 0 {
            return;
        }
        for (i, stage) in self.stages.iter().enumerate() {
            let gives: Vec<String> = stage
                .crosses
                .iter()
                .map(|(c, _, _)| {
                    let cross = &self.crosses[usize::from(*c)];
                    format!("{} of %{}", cross.function.canonical(), cross.value.0)
                })
                .collect();
            let what = if i == last {
                "gives the answer".to_owned()
            } else {
                format!("gives every symbol's values for {}", gives.join(", "))
            };
            let nodes: usize = stage.pieces.iter().map(|p| p.program.nodes().len()).sum();
            let _ = writeln!(text, "stage {} of {}: {nodes} steps, {what}", i + 1, last + 1);
        }
        text.push('\n');
    }

    fn explain_wanted(&self, text: &mut String) {
        let mut line = |key: &str, id: NodeId, rest: &str| {
            let _ = writeln!(text, "{key:<9} %{}{rest}", id.0);
        };
        let point = &self.points[0];
        if let Some(universe) = point.universe {
            line("universe", universe, "");
        }
        if let Some(condition) = point.condition {
            line("where", condition, "");
        }
        if let Some(edge) = point.edge {
            line("edge", edge, "");
        }
        for (node, direction) in point.rank.iter().zip(&self.rank) {
            line("rank", *node, if *direction == Direction::Ascending { " asc" } else { " desc" });
        }
        for (node, heading) in point.select.iter().zip(&self.headings) {
            line("select", *node, &format!(" as {heading}"));
        }
        if let Some(limit) = self.limit {
            let _ = writeln!(text, "limit     {limit}");
        }
        if let Some(history) = self.history {
            let origin = if history.origin { ", where everything begins" } else { "" };
            let _ = writeln!(text, "history   {} bars{origin}", history.bars);
        }
        if let Some(age) = self.max_age {
            let _ = writeln!(text, "max_age   {} minutes", age / 60_000_000);
        }
        if self.points.len() > 1 {
            let names: Vec<&str> = point.settings.iter().map(|(name, _)| name.as_str()).collect();
            let _ = writeln!(
                text,
                "sweep     {} combinations of {}; shown is the first",
                self.points.len(),
                names.join(", ")
            );
            let shared = self.sharing();
            let _ = writeln!(
                text,
                "shared    {} steps instead of {}; {} moving averages instead of {}",
                shared.steps_computed, shared.steps, shared.averages_computed, shared.averages
            );
            if let Some(best) = self.best {
                let (which, plural) = (
                    if best.direction == Direction::Descending { "largest" } else { "smallest" },
                    if best.keep == 1 { "" } else { "s" },
                );
                let _ = writeln!(
                    text,
                    "best      each symbol keeps the {} combination{plural} with the {which} value",
                    best.keep
                );
            }
        }
    }
}

fn describe(frame: &Frame) -> String {
    match frame {
        frame if *frame == Frame::OWN => "the symbol's own bars".to_owned(),
        frame => frame.to_string(),
    }
}
