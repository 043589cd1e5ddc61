//! Cuts a plan into what the kernels run: programs over one frame each, in the order they need one another, and stages
//! between which cross-sections are made.
//!
//! Stage i computes what its cross-sections are made of from the results of earlier stages; the last stage computes
//! what the scan wants. A stage is a list of pieces: a piece runs one program for each symbol (or for the one symbol of
//! a reference), reads the outputs of earlier pieces of its own stage, and never waits for another symbol. What two
//! stages share is computed in each: nothing but cross-sections passes from one to the next.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::frame::{CrossSection, FrameId, LabelTest, Read};
use crate::graph::{Graph, Leaf, Node, NodeId, Op};
use trawl_terms::{Clock, Period};

/// What a program reads, one series each.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A column of the frame's bars.
    Column(String),
    /// A label of the frame's subject at each bar's time.
    Label(LabelTest),
    /// An attribute of the frame's subject at each bar's time.
    Attribute(String),
    /// 1 on the bars of the scan's `history`, NA before them.
    HistoryMask,
    /// 1 on the first bar of each period by the dataset's calendar, 0 on the others.
    Begins(Period),
    /// What the dataset's calendar says of each bar's time.
    Clock(Clock),
    /// An output of an earlier piece of the same stage, on another frame.
    Read {
        /// Index into the stage's pieces.
        piece: usize,
        /// Index into that piece's program's outputs.
        output: usize,
        /// How bars of the other frame are found for bars of this one.
        how: Read,
    },
    /// A cross-section that an earlier stage made, at each bar's time: index into the plan's.
    Cross(u16),
}

/// A graph over series of one frame: `Column(i)` is input i. What the kernels run.
#[derive(Debug, Clone)]
pub struct Program {
    /// What `Column(i)` reads, by `i`.
    pub inputs: Vec<Input>,
    /// Nodes whose series are wanted, in order.
    pub outputs: Vec<NodeId>,
    /// Shared by its copies.
    graph: Arc<Graph>,
}

impl Program {
    /// A program whose graph was made elsewhere: `Column(i)` is `inputs[i]`, and every node is of one frame.
    pub fn over(inputs: Vec<Input>, graph: Graph, outputs: Vec<NodeId>) -> Self {
        Self { inputs, outputs, graph: Arc::new(graph.built()) }
    }

    /// The nodes, inputs before users.
    pub fn nodes(&self) -> &[Node] {
        self.graph.nodes()
    }

    /// Bytes that it takes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        self.graph.bytes() + size_of_val(&*self.outputs) + size_of_val(&*self.inputs)
    }

    /// The same program with other outputs, such as every node's value.
    pub fn with_outputs(&self, outputs: Vec<NodeId>) -> Self {
        Self { outputs, ..self.clone() }
    }

    /// Bars before the first bar at which one node can be defined.
    pub fn look_back_of(&self, id: NodeId) -> usize {
        self.graph.look_backs()[id.index()]
    }

    /// Bars that the outputs want before the bar that is wanted, warm-up included.
    pub fn reach(&self) -> usize {
        let reaches = self.graph.reaches();
        self.outputs.iter().map(|id| reaches[id.index()]).max().unwrap_or(0)
    }

    /// Estimated nanoseconds of one core per symbol and bar.
    pub fn cost_ns_per_bar(&self) -> f64 {
        self.nodes().iter().map(|n| n.op.facts().cost_ns).sum()
    }
}

/// A program and the frame it runs along.
#[derive(Debug, Clone)]
pub struct FrameProgram {
    /// Index into the plan's frames.
    pub frame: FrameId,
    /// What runs along that frame's bars.
    pub program: Program,
}

/// Pieces between two exchanges of cross-sections.
#[derive(Debug, Clone)]
pub struct Stage {
    /// In order: each reads earlier ones only.
    pub pieces: Vec<FrameProgram>,
    /// The cross-sections whose values this stage computes, ascending, with piece and output. Empty in the last stage,
    /// whose wanted outputs are those of its last piece.
    pub crosses: Vec<(u16, usize, usize)>,
}

/// What stages are cut from.
pub(crate) struct Whole<'a> {
    pub graph: &'a Graph,
    pub columns: &'a [String],
    pub labels: &'a [LabelTest],
    pub attributes: &'a [String],
    pub crosses: &'a [CrossSection],
}

impl Whole<'_> {
    /// The stages of a plan that wants `outputs` of the own bars. The last piece of the last stage has exactly them, in
    /// order.
    pub fn stages(&self, outputs: &[NodeId]) -> Vec<Stage> {
        let passes = self.passes();
        let last = self.crosses.iter().map(|c| passes[c.value.index()] + 1).max().unwrap_or(0);
        let mut stages: Vec<Stage> = Vec::with_capacity(last + 1);
        for pass in 0..last {
            let of_pass = |(_, c): &(usize, &CrossSection)| passes[c.value.index()] == pass;
            let mine: Vec<(usize, &CrossSection)> = self.crosses.iter().enumerate().filter(of_pass).collect();
            let mut wanted: BTreeMap<FrameId, Vec<NodeId>> = BTreeMap::new();
            for (_, cross) in &mine {
                wanted.entry(cross.frame).or_default().push(cross.value);
            }
            let (pieces, places) = self.pieces(&wanted);
            let place = |(i, c): &(usize, &CrossSection)| {
                let (piece, output) = places[&c.value];
                (*i as u16, piece, output)
            };
            stages.push(Stage { crosses: mine.iter().map(place).collect(), pieces });
        }
        let wanted = BTreeMap::from([(FrameId::OWN, outputs.to_vec())]);
        let (pieces, _) = self.pieces(&wanted);
        stages.push(Stage { pieces, crosses: Vec::new() });
        stages
    }

    /// How many exchanges each node waits for.
    fn passes(&self) -> Vec<usize> {
        let mut passes: Vec<usize> = Vec::with_capacity(self.graph.nodes().len());
        for node in self.graph.nodes() {
            let pass = if let Op::Cross(i) = node.op {
                passes[self.crosses[usize::from(i)].value.index()] + 1
            } else {
                node.inputs.iter().map(|i| passes[i.index()]).max().unwrap_or(0)
            };
            passes.push(pass);
        }
        passes
    }

    /// How many reads of other frames lie behind each node.
    fn levels(&self) -> Vec<usize> {
        let mut levels: Vec<usize> = Vec::with_capacity(self.graph.nodes().len());
        for node in self.graph.nodes() {
            let below = node.inputs.iter().map(|i| levels[i.index()]).max().unwrap_or(0);
            levels.push(below + usize::from(matches!(node.op, Op::Read(_))));
        }
        levels
    }

    /// The pieces that compute `wanted`, the wanted ones last with their outputs as given, and where each wanted node
    /// is found.
    fn pieces(&self, wanted: &BTreeMap<FrameId, Vec<NodeId>>) -> (Vec<FrameProgram>, HashMap<NodeId, (usize, usize)>) {
        let levels = self.levels();
        // Roots by (level, frame): a piece reads lower levels only. The wanted ones come last, a piece for each frame.
        let mut roots: BTreeMap<(usize, FrameId), Vec<NodeId>> = BTreeMap::new();
        let top = wanted.values().flatten().map(|id| levels[id.index()]).max().unwrap_or(0) + 1;
        let mut open: Vec<NodeId> = Vec::new();
        for (frame, nodes) in wanted {
            open.extend(nodes);
            roots.insert((top, *frame), nodes.clone());
        }
        let mut seen = vec![false; self.graph.nodes().len()];
        while let Some(id) = open.pop() {
            if std::mem::replace(&mut seen[id.index()], true) {
                continue;
            }
            let node = self.graph.node(id);
            if let (Op::Read(_), [of]) = (node.op, node.inputs.as_slice()) {
                let group = roots.entry((levels[of.index()], self.graph.node(*of).frame)).or_default();
                if !group.contains(of) {
                    group.push(*of);
                }
            }
            open.extend(&node.inputs);
        }
        let mut places = HashMap::new();
        let mut pieces: Vec<FrameProgram> = Vec::with_capacity(roots.len());
        for ((level, frame), mut nodes) in roots {
            if level < top {
                nodes.sort_unstable();
            }
            let program = self.program(&nodes, &places);
            for (output, id) in nodes.iter().enumerate() {
                places.insert(*id, (pieces.len(), output));
            }
            pieces.push(FrameProgram { frame, program });
        }
        (pieces, places)
    }

    /// The program of some roots of one frame; `places` says where the inputs of reads are computed.
    fn program(&self, roots: &[NodeId], places: &HashMap<NodeId, (usize, usize)>) -> Program {
        let mut local = vec![false; self.graph.nodes().len()];
        let mut open = roots.to_vec();
        while let Some(id) = open.pop() {
            if !std::mem::replace(&mut local[id.index()], true) && !matches!(self.graph.node(id).op, Op::Read(_)) {
                open.extend(&self.graph.node(id).inputs);
            }
        }
        let mut inputs: Vec<Input> = Vec::new();
        let mut graph = Graph::default();
        let mut map: HashMap<NodeId, NodeId> = HashMap::new();
        for (i, node) in self.graph.nodes().iter().enumerate().filter(|(i, _)| local[*i]) {
            let input = node.op.facts().leaf().and_then(|leaf| match leaf {
                Leaf::Column(c) => Some(Input::Column(self.columns[usize::from(c)].clone())),
                Leaf::Label(l) => Some(Input::Label(self.labels[usize::from(l)].clone())),
                Leaf::Attribute(a) => Some(Input::Attribute(self.attributes[usize::from(a)].clone())),
                Leaf::HistoryMask => Some(Input::HistoryMask),
                Leaf::Begins(period) => Some(Input::Begins(period)),
                Leaf::Clock(clock) => Some(Input::Clock(clock)),
                Leaf::Cross(c) => Some(Input::Cross(c)),
                Leaf::Read(how) => {
                    let (piece, output) = places[&node.inputs[0]];
                    Some(Input::Read { piece, output, how })
                }
                Leaf::Constant(_) => None,
            });
            let (op, of) = match input {
                Some(input) => {
                    let at = inputs.iter().position(|known| *known == input).unwrap_or_else(|| {
                        inputs.push(input);
                        inputs.len() - 1
                    });
                    (Op::Column(at as u16), Vec::new())
                }
                None => (node.op, node.inputs.iter().map(|id| map[id]).collect()),
            };
            let id = graph.intern(Node { op, inputs: of, kind: node.kind, frame: FrameId::OWN });
            map.insert(NodeId(i as u32), id);
        }
        Program { inputs, outputs: roots.iter().map(|id| map[id]).collect(), graph: Arc::new(graph.built()) }
    }
}
