//! The plan's graph: hash-consed nodes, each one step primitive over earlier nodes.
//!
//! Every series is `f64`, one value a bar: NaN is NA; a bool is 1, 0 or NA. Nodes are stored in an order
//! in which inputs come before their users, so evaluating by index is evaluating in order.
//!
//! What each primitive computes is said at [`Op`], once for every back end. "Defined" means finite: an infinity
//! that reaches a window, a recurrence or a comparison counts as NA there.

use std::collections::HashMap;

use crate::ast::CompareOp;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
}

/// Step primitives. `p` is a number of bars; windows include the current bar.
///
/// Windows: NA until `p` consecutive defined values stand in the window. Recurrences: start at the first defined
/// value; at an undefined one they emit NA, hold their state and resume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    /// Column `plan.columns[i]` of the bar.
    Column(u16),
    Constant(Bits),
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
}

impl Op {
    /// Name and parameters, canonical: part of the fingerprint and of `--explain`.
    pub fn canonical(&self) -> String {
        match self {
            Self::Column(i) => format!("column({i})"),
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
        )
    }

    /// Estimated nanoseconds of one core per bar and symbol, for the cost model; measured once on the portable path.
    pub fn cost_ns(&self) -> f64 {
        match *self {
            Self::Column(_) | Self::Constant(_) => 0.0,
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

/// A primitive applied to earlier nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    pub op: Op,
    pub inputs: Vec<NodeId>,
    pub kind: Kind,
}

/// Nodes with equal primitive and inputs are one node.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    nodes: Vec<Node>,
    known: HashMap<Node, NodeId>,
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

    /// Adds a node or finds the equal one. Element-wise functions of constants are computed here.
    pub fn add(&mut self, op: Op, inputs: &[NodeId], kind: Kind) -> NodeId {
        if let Some(value) = self.fold(op, inputs) {
            return self.intern(Node { op: Op::Constant(value.into()), inputs: Vec::new(), kind });
        }
        self.intern(Node { op, inputs: inputs.to_vec(), kind })
    }

    fn intern(&mut self, node: Node) -> NodeId {
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

    /// A number.
    pub fn num(&mut self, value: f64) -> NodeId {
        self.intern(Node { op: Op::Constant(value.into()), inputs: Vec::new(), kind: Kind::Num })
    }

    /// A truth value.
    pub fn truth(&mut self, value: bool) -> NodeId {
        self.intern(Node { op: Op::Constant(f64::from(u8::from(value)).into()), inputs: Vec::new(), kind: Kind::Bool })
    }

    /// Keeps only what `roots` need, in an order that depends on them alone (depth first, inputs in order), and
    /// returns the roots' new ids. So plans that compute the same are equal whatever was tried on the way.
    pub fn prune(&self, roots: &[NodeId]) -> (Graph, Vec<NodeId>) {
        let mut map: Vec<Option<NodeId>> = vec![None; self.nodes.len()];
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
                let pending: Vec<NodeId> = node.inputs.iter().copied().filter(|i| map[i.index()].is_none()).collect();
                if pending.is_empty() {
                    let inputs = node.inputs.iter().filter_map(|i| map[i.index()]).collect();
                    map[id.index()] = Some(out.intern(Node { op: node.op, inputs, kind: node.kind }));
                    stack.pop();
                } else {
                    stack.extend(pending.into_iter().rev());
                }
            }
        }
        let roots = roots.iter().filter_map(|r| map[r.index()]).collect();
        (out, roots)
    }

    /// The same graph with every column renumbered.
    pub(crate) fn map_columns(&self, mut map: impl FnMut(u16) -> u16) -> Graph {
        let mut out = Graph::default();
        for node in &self.nodes {
            let op = match node.op {
                Op::Column(i) => Op::Column(map(i)),
                op => op,
            };
            out.intern(Node { op, inputs: node.inputs.clone(), kind: node.kind });
        }
        out
    }

    /// Bars before the first at which each node can be defined.
    pub fn look_backs(&self) -> Vec<usize> {
        let mut look_backs: Vec<usize> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let input = |(at, id): (usize, &NodeId)| look_backs[id.index()].saturating_add(node.op.look_back_into(at));
            look_backs.push(node.inputs.iter().enumerate().map(input).max().unwrap_or(0));
        }
        look_backs
    }
}
