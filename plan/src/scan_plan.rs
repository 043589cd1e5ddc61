//! The finished plan: a graph, what of it is wanted, and the stages that compute it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use trawl_terms::Direction;

use crate::document::History;
use crate::frame::{CrossSection, Frame, FrameId, LabelTest};
use crate::graph::{Graph, Kind, Leaf, Node, NodeId, Op};
use crate::program::{Program, Stage, Whole};
use crate::sweep::{Choice, Setting, Sharing};

/// What the numbers of a select column are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnKind {
    /// Numbers.
    #[default]
    Number,
    /// 1, 0 or NaN.
    Condition,
    /// Days since 1970-01-01.
    Date,
    /// Places in this list of texts, from 0 on.
    Text(Vec<String>),
}

impl ColumnKind {
    /// The text of a value; `None` for NA, or in a column of another kind.
    pub fn text(&self, value: f64) -> Option<&str> {
        match self {
            Self::Text(texts) if value >= 0.0 => texts.get(value as usize).map(String::as_str),
            _ => None,
        }
    }
}

/// What is wanted at one point of a sweep; a plan without a sweep has one point without settings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Point {
    /// Values of the sweep's variables, by name.
    pub settings: Vec<(String, Setting)>,
    /// Population condition; all symbols when `None`.
    pub universe: Option<NodeId>,
    /// What is looked for; `None` only in plans of bare expressions.
    pub condition: Option<NodeId>,
    /// 1 where a comparison behind universe or condition is near; `None` without comparisons.
    pub edge: Option<NodeId>,
    /// Sort keys in order.
    pub rank: Vec<NodeId>,
    /// Values given for each match, under [`Plan::headings`].
    pub select: Vec<NodeId>,
}

impl Point {
    fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        let first = self.universe.into_iter().chain(self.condition).chain(self.edge);
        first.chain(self.rank.iter().copied()).chain(self.select.iter().copied())
    }

    fn nodes_mut(&mut self) -> impl Iterator<Item = &mut NodeId> {
        let first = self.universe.iter_mut().chain(&mut self.condition).chain(&mut self.edge);
        first.chain(&mut self.rank).chain(&mut self.select)
    }

    /// Splits off the values of this point from those of the last stage's outputs: universe, condition, edge, rank keys, select columns.
    pub fn values<'v>(&self, outputs: &mut &'v [f64]) -> PointValues<'v> {
        let mut take = |count: usize| {
            let (taken, rest) = outputs.split_at(count.min(outputs.len()));
            *outputs = rest;
            taken
        };
        let mut one = |node: &Option<NodeId>| take(usize::from(node.is_some())).first().copied();
        PointValues {
            universe: one(&self.universe).unwrap_or(1.0),
            condition: one(&self.condition).unwrap_or(f64::NAN),
            edge: one(&self.edge) == Some(1.0),
            rank: take(self.rank.len()),
            select: take(self.select.len()),
        }
    }
}

/// What a point's outputs are at one bar of one symbol.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PointValues<'v> {
    /// 1, 0 or NaN; 1 when the plan has no universe.
    pub universe: f64,
    /// 1, 0 or NaN; NaN when the plan has no condition.
    pub condition: f64,
    /// Whether a comparison behind them was near.
    pub edge: bool,
    /// One per rank key.
    pub rank: &'v [f64],
    /// One per select column.
    pub select: &'v [f64],
}

/// A compiled scan, or bare expressions.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Dataset columns the plan reads; `Column` nodes index into this. Load exactly these.
    pub columns: Vec<String>,
    /// Tests of labels; `Label` nodes index into this.
    pub labels: Vec<LabelTest>,
    /// Attributes of symbols that are read; `Attribute` nodes index into it.
    pub attributes: Vec<String>,
    /// Of each label whose values are a column, these values, sorted: the numbers of the column are places in the list.
    pub label_values: BTreeMap<String, Vec<String>>,
    /// Names of the attributes that are dates, in days since 1970-01-01.
    pub dates: BTreeSet<String>,
    /// Axes of bars; the first is [`Frame::OWN`].
    pub frames: Vec<Frame>,
    /// Cross-sections in the order of first use; `Cross` nodes index into this.
    pub crosses: Vec<CrossSection>,
    /// What is wanted, a point for each combination of the sweep's values.
    pub points: Vec<Point>,
    /// Headings of the select columns.
    pub headings: Vec<String>,
    /// Which end comes first, one for each rank key. NA always comes last.
    pub rank: Vec<Direction>,
    /// Rows kept after sorting.
    pub limit: Option<u32>,
    /// How much of the history is seen; all of it when `None`.
    pub history: Option<History>,
    /// Microseconds that a bar may be older than the time at which a symbol is read; it has a bar of that time when `None`.
    pub max_age: Option<i64>,
    /// Which points each symbol keeps, by the last select column; all of them when `None`.
    pub best: Option<Choice>,
    /// The least bars of a history whose whole series are wanted; 0 when any will do.
    pub bars_needed: usize,
    /// The function that needs so many.
    pub needed_by: &'static str,
    pub(crate) graph: Graph,
    pub(crate) stages: Vec<Stage>,
}

impl Plan {
    /// The nodes, inputs before users.
    pub fn nodes(&self) -> &[Node] {
        self.graph.nodes()
    }

    /// Every node that is wanted, point by point.
    pub fn outputs(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.points.iter().flat_map(Point::nodes)
    }

    /// What is run, in order; cross-sections are made between the stages. Never empty.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// What gives the wanted outputs: the last piece of the last stage, on the own bars.
    pub fn program(&self) -> &Program {
        let last = self.stages.last().and_then(|stage| stage.pieces.last());
        &last.expect("a plan has a last stage with a last piece").program
    }

    /// For each heading what its values are, at every point.
    pub fn kinds(&self) -> Vec<ColumnKind> {
        let at_points = |at: usize| {
            let mut kinds = self.points.iter().filter_map(|point| point.select.get(at)).map(|id| self.kind_of(*id));
            let first = kinds.next().unwrap_or_default();
            if kinds.all(|kind| kind == first) { first } else { ColumnKind::Number }
        };
        (0..self.headings.len()).map(at_points).collect()
    }

    fn kind_of(&self, id: NodeId) -> ColumnKind {
        let node = self.graph.node(id);
        let leaf = node.op.facts().leaf();
        if node.kind == Kind::Bool {
            ColumnKind::Condition
        } else if let Some(Leaf::Label(at)) = leaf {
            let label = &self.labels[usize::from(at)].label;
            ColumnKind::Text(self.label_values.get(label).cloned().unwrap_or_default())
        } else if let Some(Leaf::Attribute(at)) = leaf
            && self.dates.contains(&self.attributes[usize::from(at)])
        {
            ColumnKind::Date
        } else {
            ColumnKind::Number
        }
    }

    /// Symbols that are referred to, distinct and sorted.
    pub fn references(&self) -> Vec<&str> {
        let mut symbols: Vec<&str> = self.frames.iter().filter_map(Frame::reference).collect();
        symbols.sort_unstable();
        symbols.dedup();
        symbols
    }

    /// The canonical form: every node by number, then what is wanted. Names, spacing and the order of lets are gone.
    fn canonical(&self) -> String {
        let mut text = String::from("trawl plan 2\n");
        for frame in &self.frames {
            let _ = writeln!(text, "frame {frame}");
        }
        for node in self.nodes() {
            let op = if let Op::Column(i) = node.op {
                format!("column({})", self.columns[usize::from(i)])
            } else if let Op::Label(i) = node.op {
                let test = &self.labels[usize::from(i)];
                match &test.value {
                    Some(value) => format!("label({:?}, {value:?})", test.label),
                    None => format!("label({:?})", test.label),
                }
            } else if let Op::Attribute(i) = node.op {
                format!("attribute({})", self.attributes[usize::from(i)])
            } else {
                node.op.canonical()
            };
            let inputs: Vec<String> = node.inputs.iter().map(|i| i.0.to_string()).collect();
            let frame = if node.frame == FrameId::ANY { "-".to_owned() } else { node.frame.0.to_string() };
            let _ = writeln!(text, "{op} {} @{frame}", inputs.join(" "));
        }
        for cross in &self.crosses {
            let _ = writeln!(text, "cross {} {} by {:?}", cross.function.canonical(), cross.value.0, cross.by);
        }
        let show = |id: Option<NodeId>| id.map_or("-".to_owned(), |id| id.0.to_string());
        for point in &self.points {
            let settings: Vec<String> =
                point.settings.iter().map(|(name, value)| format!("{name:?} {value:?}")).collect();
            let _ = writeln!(text, "point {}", settings.join(" "));
            let _ = writeln!(text, "universe {}\nwhere {}", show(point.universe), show(point.condition));
            for (node, direction) in point.rank.iter().zip(&self.rank) {
                let _ = writeln!(text, "rank {} {direction:?}", node.0);
            }
            for (node, heading) in point.select.iter().zip(&self.headings) {
                let _ = writeln!(text, "select {} {heading:?}", node.0);
            }
        }
        let _ = writeln!(text, "limit {:?}\nhistory {:?}", self.limit, self.history);
        if let Some(age) = self.max_age {
            let _ = writeln!(text, "max_age {age}");
        }
        if let Some(best) = self.best {
            // The spelling of format n6, which fingerprints keep.
            let descending = best.direction == Direction::Descending;
            let _ = writeln!(text, "best Choice {{ descending: {descending}, keep: {} }}", best.keep);
        }
        text
    }

    /// SHA-256 of the canonical form, 64 hex digits: equal exactly when the same is computed under the same headings.
    pub fn fingerprint(&self) -> String {
        hex::encode(Sha256::digest(self.canonical().as_bytes()))
    }

    /// Bars before the first bar at which every wanted output can be defined, along the own bars.
    pub fn look_back(&self) -> usize {
        let look_backs = self.graph.look_backs();
        self.outputs().map(|id| look_backs[id.index()]).max().unwrap_or(0)
    }

    /// As [`Self::look_back`], with the warm-up that filters are given under a limited history.
    pub fn reach(&self) -> usize {
        let reaches = self.graph.reaches();
        self.outputs().map(|id| reaches[id.index()]).max().unwrap_or(0)
    }

    /// Bars before the first bar at which one node can be defined, along its frame.
    pub fn look_back_of(&self, id: NodeId) -> usize {
        self.graph.look_backs()[id.index()]
    }

    /// As [`Self::look_back_of`] for every node at once.
    pub fn look_backs(&self) -> Vec<usize> {
        self.graph.look_backs()
    }

    /// Bytes that the plan takes in memory, about.
    pub fn bytes(&self) -> usize {
        let text = |setting: &Setting| if let Setting::Text(text) = setting { text.len() } else { 0 };
        let settings = |point: &Point| -> usize {
            point.settings.iter().map(|(name, value)| size_of::<(String, Setting)>() + name.len() + text(value)).sum()
        };
        let point = |point: &Point| size_of::<Point>() + settings(point) + 4 * point.nodes().count();
        let programs = self.stages.iter().flat_map(|stage| &stage.pieces).map(|piece| piece.program.bytes());
        let headings = self.headings.iter().map(|heading| size_of::<String>() + heading.len());
        self.graph.bytes()
            + programs.sum::<usize>()
            + headings.sum::<usize>()
            + self.points.iter().map(point).sum::<usize>()
    }

    /// How much the points have in common.
    pub fn sharing(&self) -> Sharing {
        let nodes = self.nodes();
        let counts = |id: NodeId| {
            let facts = nodes[id.index()].op.facts();
            let computed = match facts.leaf() {
                Some(Leaf::Column(_) | Leaf::Constant(_) | Leaf::Label(_) | Leaf::Attribute(_) | Leaf::HistoryMask) => {
                    false
                }
                Some(Leaf::Begins(_) | Leaf::Clock(_) | Leaf::Cross(_) | Leaf::Read(_)) | None => true,
            };
            (u64::from(computed), u64::from(facts.is_average))
        };
        let mut sharing = Sharing { combinations: self.points.len() as u64, ..Sharing::default() };
        // The number of the point that a node was last seen at, from 1 on.
        let mut seen = vec![0u32; nodes.len()];
        for (number, point) in (1u32..).zip(&self.points) {
            let mut open: Vec<NodeId> = point.nodes().collect();
            while let Some(id) = open.pop() {
                let before = std::mem::replace(&mut seen[id.index()], number);
                if before == number {
                    continue;
                }
                let (step, average) = counts(id);
                sharing.steps += step;
                sharing.averages += average;
                if before == 0 {
                    sharing.steps_computed += step;
                    sharing.averages_computed += average;
                }
                open.extend(&nodes[id.index()].inputs);
            }
        }
        sharing
    }

    /// Estimated nanoseconds of one core per symbol and bar, for the cost model; what several stages compute counts in
    /// each.
    pub fn cost_ns_per_bar(&self) -> f64 {
        self.stages.iter().flat_map(|s| &s.pieces).map(|p| p.program.cost_ns_per_bar()).sum()
    }

    /// Drops what no output needs, brings nodes, leaves and frames into canonical order, and cuts stages.
    pub(crate) fn finished(mut self) -> Self {
        let roots: Vec<NodeId> = self.outputs().collect();
        let (graph, roots, crosses) = self.graph.prune(&roots, &self.crosses);
        let mut roots = roots.into_iter();
        for id in self.points.iter_mut().flat_map(Point::nodes_mut) {
            if let Some(root) = roots.next() {
                *id = root;
            }
        }
        let (mut columns, mut labels) = (Keep::new(&self.columns), Keep::new(&self.labels));
        let mut attributes = Keep::new(&self.attributes);
        let mut frames = Keep::new(&self.frames);
        frames.index(0);
        let leaf = |op| {
            if let Op::Column(i) = op {
                Op::Column(columns.index(i))
            } else if let Op::Label(i) = op {
                Op::Label(labels.index(i))
            } else if let Op::Attribute(i) = op {
                Op::Attribute(attributes.index(i))
            } else {
                op
            }
        };
        self.graph = graph.map_leaves(leaf, |frame| FrameId(frames.index(frame.0))).built();
        let on = |c: CrossSection| CrossSection { frame: self.graph.node(c.value).frame, ..c };
        self.crosses = crosses.into_iter().map(on).collect();
        (self.columns, self.labels, self.frames) = (columns.kept, labels.kept, frames.kept);
        self.attributes = attributes.kept;
        let outputs: Vec<NodeId> = self.outputs().collect();
        let whole = Whole {
            graph: &self.graph,
            columns: &self.columns,
            labels: &self.labels,
            attributes: &self.attributes,
            crosses: &self.crosses,
        };
        self.stages = whole.stages(&outputs);
        self
    }
}

/// Renumbers by first use.
struct Keep<'a, T> {
    all: &'a [T],
    map: Vec<Option<u16>>,
    kept: Vec<T>,
}

impl<'a, T: Clone> Keep<'a, T> {
    fn new(all: &'a [T]) -> Self {
        Self { all, map: vec![None; all.len()], kept: Vec::new() }
    }

    fn index(&mut self, of: u16) -> u16 {
        let at = usize::from(of);
        *self.map[at].get_or_insert_with(|| {
            self.kept.push(self.all[at].clone());
            (self.kept.len() - 1) as u16
        })
    }
}
