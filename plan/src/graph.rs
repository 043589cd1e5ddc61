//! The plan's graph: hash-consed nodes, each one step primitive over earlier nodes.
//!
//! Every series is `f64`, one value a bar: NaN is NA; a bool is 1, 0 or NA. Nodes are stored in an order
//! in which inputs come before their users, so evaluating by index is evaluating in order.
//!
//! What each primitive computes is said at [`Op`], once for every back end. "Defined" means finite: an infinity
//! that reaches a window, a recurrence, a cross-section or a comparison counts as NA there.
//!
//! Every node but a constant lives on one frame (see `frame`); only `Read` has its input on another.

use std::collections::HashMap;

use crate::ast::CompareOp;
use crate::frame::{CrossSection, FrameId, Read};

/// Index of a node inside its [`Graph`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl NodeId {
    /// As an index into [`Graph::nodes`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a node's value means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A number, NaN = NA.
    Num,
    /// 1, 0 or NaN = NA.
    Bool,
}

/// An `f64` by its bits, so that plans can be compared and hashed. Zero has one sign, NaN one payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bits(u64);

impl From<f64> for Bits {
    fn from(value: f64) -> Self {
        let canonical = if value.is_nan() { f64::NAN } else { value + 0.0 };
        Self(canonical.to_bits())
    }
}

impl Bits {
    /// The value.
    pub fn value(self) -> f64 {
        f64::from_bits(self.0)
    }
}

/// Element-wise functions of one value. NA in, NA out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Unary {
    Negate,
    Abs,
    Sqrt,
    /// NA for 0 and below (the helper `log`).
    Log,
    Exp,
    /// -1, 0 or 1.
    Sign,
    /// Half to even.
    Round,
}

/// Element-wise functions of two values. NA in, NA out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Binary {
    Add,
    Subtract,
    Multiply,
    /// NA when the divisor is 0.
    Divide,
    /// Floored remainder, the divisor's sign; NA when the divisor is 0.
    Remainder,
    Maximum,
    Minimum,
    /// NA where the power is undefined.
    Power,
    /// TA-Lib's quotient: 0 when the divisor is exactly 0.
    RatioOrZero,
    /// TA-Lib's quotient: 0 when |divisor| < 1e-14.
    RatioOrZeroEpsilon,
    /// The first value where the second is defined (finite), else NA: aligns outputs that TA-Lib starts together, and
    /// makes the parts of an indicator skip the same bars.
    Gate,
    /// The first value unless it is NA, then the second.
    OrElse,
    /// 1 where |a - b| <= 1e-9 * max(1, |a|, |b|), else 0; NA when a side is NA or infinite.
    Near,
}

/// Step primitives. `p` is a number of bars; windows include the current bar.
///
/// Windows: NA until `p` consecutive defined values stand in the window. Recurrences: start at the first defined
/// value; at an undefined one they emit NA, hold their state and resume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// In a plan: column `plan.columns[i]` of the bar. In a program: its input i.
    Column(u16),
    Constant(Bits),
    /// Test `plan.labels[i]` of the symbol at the bar's time.
    Label(u16),
    /// 1 on the bars of the scan's `history`, NA before them.
    Window,
    /// What cross-section `plan.crosses[i]` gives the frame's subject at the bar's time.
    Cross(u16),
    /// A series of another frame.
    Read(Read),
    Unary(Unary),
    Binary(Binary),
    /// NA when a side is NA or infinite.
    Compare(CompareOp),
    /// Kleene.
    And,
    /// Kleene.
    Or,
    Not,
    /// Inputs condition, a, b: `a` where true, `b` where false, NA where NA.
    Select,
    /// The value `p` own bars earlier, NA before the first bar.
    Lag(u32),

    /// Window sum.
    Sum(u32),
    /// Window mean.
    Mean(u32),
    /// Linearly weighted mean, weight `p` on the current bar.
    WeightedMean(u32),
    /// Window maximum.
    Max(u32),
    /// Window minimum.
    Min(u32),
    /// Population standard deviation; 0 when the variance is below TA-Lib's 1e-14.
    Deviation(u32),
    /// Inputs x, m: mean of |x_j - m_t| over the window.
    MeanDeviation(u32),
    /// 100 * (how many of the window's values are at most the current one, not counting itself) / (p - 1).
    PercentRank(u32),
    /// Inputs x, y: Pearson's correlation of the window; TA-Lib's 0 where a variance vanishes.
    Correlation(u32),

    /// Exponential mean, factor 2/(p+1), seeded with the mean of `p` values after skipping `delay` defined ones.
    Exponential {
        p: u32,
        delay: u32,
    },
    /// Wilder's mean: seeded with the mean of `p` values, then (m*(p-1) + x)/p.
    Wilder(u32),
    /// Wilder's sum: the sum of `p-1` values, then s - s/p + x from the p-th value on.
    WilderSum(u32),
    /// Inputs num, den: Wilder's mean of 100*num/den; where |den| < 1e-14 the seed adds 0 and later the state holds.
    WilderRatio(u32),
    /// Inputs x, x one bar ago, x p bars ago, sum of |changes| over p: Kaufman's adaptive mean as TA-Lib has it.
    Kaufman,
    /// Running sum of the defined values.
    Cumulative,
    /// Inputs close, volume: on-balance volume, starting with the first bar's volume.
    OnBalance,

    /// Inputs a, b: a > b now and a <= b one bar ago; NA when one of the four is NA or infinite.
    CrossesAbove,
    /// Mirrored.
    CrossesBelow,
    /// Kleene or over the last `p` bars; bars before the first are NA.
    Within(u32),
    /// Kleene and over the last `p` bars; bars before the first are NA.
    Streak(u32),
    /// Bars since the input was last true; NA if never, or if an NA comes first.
    Since,
    /// Inputs c, x: x at the bar where c was last true; NA if never, or if an NA of c comes first.
    ValueWhen,
    /// 1 from the first true on, before it 0; NA counts as false.
    Ever,
    /// Inputs c, e: whether e was true on a bar from the last true c on (from the first bar if never); NA counts as
    /// false.
    EverSince,
}

impl Op {
    /// Name and parameters, canonical: part of the fingerprint and of `--explain`.
    pub fn canonical(&self) -> String {
        match self {
            Self::Column(i) => format!("column({i})"),
            Self::Label(i) => format!("label({i})"),
            Self::Cross(i) => format!("cross({i})"),
            Self::Read(read) => format!("read {read:?}").to_lowercase(),
            Self::Constant(bits) => format!("constant({:?})", bits.value()),
            Self::Unary(u) => format!("{u:?}").to_lowercase(),
            Self::Binary(b) => format!("{b:?}").to_lowercase(),
            Self::Compare(c) => c.symbol().to_owned(),
            other => format!("{other:?}").to_lowercase(),
        }
    }

    /// Bars that this primitive needs before the current one, given its inputs are defined: 0 for element-wise ones.
    pub fn look_back(&self) -> usize {
        match *self {
            Self::Lag(p) => p as usize,
            Self::Sum(p)
            | Self::Mean(p)
            | Self::WeightedMean(p)
            | Self::Max(p)
            | Self::Min(p)
            | Self::Deviation(p)
            | Self::MeanDeviation(p)
            | Self::PercentRank(p)
            | Self::Correlation(p)
            | Self::Wilder(p)
            | Self::WilderSum(p)
            | Self::WilderRatio(p)
            | Self::Within(p)
            | Self::Streak(p) => p as usize - 1,
            Self::Exponential { p, delay } => (p + delay) as usize - 1,
            Self::CrossesAbove | Self::CrossesBelow => 1,
            _ => 0,
        }
    }

    /// [`Self::look_back`] into one input: of a second input that is read at the current bar only, none.
    pub fn look_back_into(&self, input: usize) -> usize {
        if matches!(self, Self::MeanDeviation(_)) && input == 1 { 0 } else { self.look_back() }
    }

    /// Whether the value depends on the whole history: such nodes run from the first bar.
    pub fn is_recursive(&self) -> bool {
        matches!(
            self,
            Self::Exponential { .. }
                | Self::Wilder(_)
                | Self::WilderSum(_)
                | Self::WilderRatio(_)
                | Self::Kaufman
                | Self::Cumulative
                | Self::OnBalance
                | Self::Since
                | Self::ValueWhen
                | Self::Ever
                | Self::EverSince
        )
    }

    /// Whether the value never forgets where the history began, so that no warm-up is long enough.
    pub fn is_unbounded(&self) -> bool {
        matches!(self, Self::Kaufman | Self::Cumulative | Self::OnBalance | Self::Since | Self::ValueWhen)
    }

    /// Bars that this primitive wants before the current one under a limited history: its look-back, and for filters
    /// that forget exponentially their warm-up.
    pub fn reach(&self) -> usize {
        match *self {
            Self::Exponential { p, .. } | Self::Wilder(p) | Self::WilderSum(p) | Self::WilderRatio(p) => {
                self.look_back() + WARM_UP_PERIODS * p as usize
            }
            _ => self.look_back(),
        }
    }

    /// Estimated nanoseconds of one core per bar and symbol, for the cost model; measured once on the portable path.
    pub fn cost_ns(&self) -> f64 {
        match *self {
            Self::Column(_) | Self::Constant(_) | Self::Label(_) | Self::Window | Self::Cross(_) => 0.0,
            Self::Read(_) => 2.0,
            Self::PercentRank(p) => 0.3 + 0.05 * f64::from(p),
            Self::Correlation(p) => 1.0 + 0.3 * f64::from(p),
            Self::Unary(Unary::Log | Unary::Exp) | Self::Binary(Binary::Power) => 10.0,
            Self::Binary(Binary::Divide | Binary::Remainder | Binary::RatioOrZero | Binary::RatioOrZeroEpsilon) => 0.5,
            Self::Sum(_) | Self::Mean(_) | Self::Max(_) | Self::Min(_) => 1.0,
            Self::WeightedMean(_) => 2.0,
            Self::Deviation(_) => 1.5,
            Self::MeanDeviation(p) => 0.3 + 0.07 * f64::from(p),
            Self::Exponential { .. } | Self::Wilder(_) | Self::WilderSum(_) | Self::WilderRatio(_) | Self::Kaufman => {
                0.8
            }
            _ => 0.3,
        }
    }
}

/// Periods of warm-up of exponential and Wilder filters under a limited history. At 12 an RSI(14) of real stocks was off
/// by at most 0.002 points, at 5 by 0.83.
pub const WARM_UP_PERIODS: usize = 12;

/// A primitive applied to earlier nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    pub op: Op,
    pub inputs: Vec<NodeId>,
    pub kind: Kind,
    /// Whose bars it runs along.
    pub frame: FrameId,
}

/// Nodes with equal primitive and inputs are one node.
#[derive(Debug, Clone)]
pub struct Graph {
    nodes: Vec<Node>,
    known: HashMap<Node, NodeId>,
    /// Where steps over constants alone live.
    frame: FrameId,
}

impl Default for Graph {
    fn default() -> Self {
        Self { nodes: Vec::new(), known: HashMap::new(), frame: FrameId::OWN }
    }
}

impl Graph {
    /// All nodes, inputs before users.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// One node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The value of a constant node.
    pub fn constant(&self, id: NodeId) -> Option<f64> {
        match self.node(id).op {
            Op::Constant(bits) => Some(bits.value()),
            _ => None,
        }
    }

    /// Sets the frame that new leaves and steps over constants live on; gives the one before.
    pub(crate) fn enter(&mut self, frame: FrameId) -> FrameId {
        std::mem::replace(&mut self.frame, frame)
    }

    /// Adds a node or finds the equal one. Element-wise functions of constants are computed here.
    pub fn add(&mut self, op: Op, inputs: &[NodeId], kind: Kind) -> NodeId {
        if let Some(value) = self.fold(op, inputs) {
            return self.literal(value, kind);
        }
        let on = inputs.iter().map(|i| self.node(*i).frame).find(|f| *f != FrameId::ANY);
        let frame = on.unwrap_or(self.frame);
        self.intern(Node { op, inputs: inputs.to_vec(), kind, frame })
    }

    /// A series of another frame, read on the frame that was entered.
    pub(crate) fn read(&mut self, how: Read, of: NodeId) -> NodeId {
        let kind = self.node(of).kind;
        self.intern(Node { op: Op::Read(how), inputs: vec![of], kind, frame: self.frame })
    }

    pub(crate) fn intern(&mut self, node: Node) -> NodeId {
        if let Some(&id) = self.known.get(&node) {
            return id;
        }
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(node.clone());
        self.known.insert(node, id);
        id
    }

    fn fold(&self, op: Op, inputs: &[NodeId]) -> Option<f64> {
        let value = |i: usize| self.constant(*inputs.get(i)?);
        match op {
            Op::Unary(u) => Some(crate::scalar::unary(u, value(0)?)),
            Op::Binary(b) => Some(crate::scalar::binary(b, value(0)?, value(1)?)),
            Op::Compare(c) => Some(crate::scalar::compare(c, value(0)?, value(1)?)),
            Op::And => Some(crate::scalar::and(value(0)?, value(1)?)),
            Op::Or => Some(crate::scalar::or(value(0)?, value(1)?)),
            Op::Not => Some(crate::scalar::not(value(0)?)),
            Op::Select => Some(crate::scalar::select(value(0)?, value(1)?, value(2)?)),
            _ => None,
        }
    }

    fn literal(&mut self, value: f64, kind: Kind) -> NodeId {
        self.intern(Node { op: Op::Constant(value.into()), inputs: Vec::new(), kind, frame: FrameId::ANY })
    }

    /// A number.
    pub fn num(&mut self, value: f64) -> NodeId {
        self.literal(value, Kind::Num)
    }

    /// A truth value.
    pub fn truth(&mut self, value: bool) -> NodeId {
        self.literal(f64::from(u8::from(value)), Kind::Bool)
    }

    /// Keeps only what `roots` need, in an order that depends on them alone (depth first, inputs in order), with the
    /// cross-sections in the order of their first use, and returns the roots' new ids. So plans that compute the same
    /// are equal whatever was tried on the way.
    pub(crate) fn prune(&self, roots: &[NodeId], crosses: &[CrossSection]) -> (Graph, Vec<NodeId>, Vec<CrossSection>) {
        let mut map: Vec<Option<NodeId>> = vec![None; self.nodes.len()];
        let mut cross_map: Vec<Option<u16>> = vec![None; crosses.len()];
        let mut kept: Vec<CrossSection> = Vec::new();
        let mut out = Graph::default();
        for &root in roots {
            // An explicit stack: graphs built from many lets can be deeper than any thread's stack.
            let mut stack = vec![root];
            while let Some(&id) = stack.last() {
                if map[id.index()].is_some() {
                    stack.pop();
                    continue;
                }
                let node = self.node(id);
                let pending: Vec<NodeId> = needs(node, crosses).filter(|i| map[i.index()].is_none()).collect();
                if !pending.is_empty() {
                    stack.extend(pending.into_iter().rev());
                    continue;
                }
                let op = match node.op {
                    Op::Cross(i) => Op::Cross(*cross_map[usize::from(i)].get_or_insert_with(|| {
                        let cross = &crosses[usize::from(i)];
                        let value = map[cross.value.index()].unwrap_or(cross.value);
                        kept.push(CrossSection { value, ..cross.clone() });
                        (kept.len() - 1) as u16
                    })),
                    op => op,
                };
                let inputs = node.inputs.iter().filter_map(|i| map[i.index()]).collect();
                map[id.index()] = Some(out.intern(Node { op, inputs, kind: node.kind, frame: node.frame }));
                stack.pop();
            }
        }
        let roots = roots.iter().filter_map(|r| map[r.index()]).collect();
        (out, roots, kept)
    }

    /// The same graph with leaves and frames renumbered.
    pub(crate) fn map_leaves(
        &self,
        mut leaf: impl FnMut(Op) -> Op,
        mut frame: impl FnMut(FrameId) -> FrameId,
    ) -> Graph {
        let mut out = Graph::default();
        for node in &self.nodes {
            let frame = if node.frame == FrameId::ANY { FrameId::ANY } else { frame(node.frame) };
            out.intern(Node { op: leaf(node.op), inputs: node.inputs.clone(), kind: node.kind, frame });
        }
        out
    }

    /// Bars before the first at which each node can be defined, counted along its own frame: what another frame or a
    /// cross-section gives counts as there.
    pub fn look_backs(&self) -> Vec<usize> {
        self.sums(|node, input| node.op.look_back_into(input))
    }

    /// As [`Self::look_backs`], with the warm-up of filters.
    pub fn reaches(&self) -> Vec<usize> {
        self.sums(|node, _| node.op.reach())
    }

    fn sums(&self, step: impl Fn(&Node, usize) -> usize) -> Vec<usize> {
        let mut sums: Vec<usize> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let input = |(at, id): (usize, &NodeId)| sums[id.index()].saturating_add(step(node, at));
            let whole = node.inputs.iter().enumerate().map(input).max().unwrap_or(0);
            sums.push(if matches!(node.op, Op::Read(_)) { 0 } else { whole });
        }
        sums
    }
}

/// Nodes that must be there before `node`: its inputs, and what its cross-section is made of.
pub(crate) fn needs<'a>(node: &'a Node, crosses: &'a [CrossSection]) -> impl Iterator<Item = NodeId> + 'a {
    let cross = match node.op {
        Op::Cross(i) => Some(crosses[usize::from(i)].value),
        _ => None,
    };
    node.inputs.iter().copied().chain(cross)
}
