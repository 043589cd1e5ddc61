//! Which nodes are run together: frequent groups, recognised by the shape of the graph.
//!
//! Siblings of a node (the other bands of a mean, the signal of a line) are found through an index built in one pass,
//! so fusing takes time linear in the number of nodes, however many settings a sweep has.
//!
//! A group reads the series at its boundary and writes its outputs; an intermediate value that another task needs is
//! computed again there.

use std::collections::HashMap;

use trawl_plan::Program;
use trawl_plan::ast::CompareOp;
use trawl_plan::graph::{Binary, Bits, Node, NodeId, Op, Unary};
use trawl_plan::scalar::TALIB_EPSILON;

use crate::cpu::lower::fused_op::FusedOp;
use crate::cpu::primitives::count::{COUNTED_BARS_MAX, Counted};
use crate::cpu::primitives::trend::{self, Pass, TrendMean};

/// A task's operation, with the nodes that it reads and writes.
#[derive(Debug, Clone)]
pub(crate) struct FusedTask {
    pub work: FusedOp,
    pub inputs: Vec<NodeId>,
    pub outputs: Vec<NodeId>,
}

/// Splits the program into fused tasks, in topological order.
pub(crate) fn fuse(program: &Program) -> Vec<FusedTask> {
    parts(program, &Shapes::of(program), Shapes::part)
}

/// Splits the program into tasks of one node each, in topological order.
#[cfg(test)]
pub(crate) fn separate(program: &Program) -> Vec<FusedTask> {
    parts(program, &Shapes::of(program), Shapes::alone)
}

fn parts<'p>(
    program: &'p Program,
    shapes: &Shapes<'p>,
    of: impl Fn(&Shapes<'p>, NodeId) -> FusedTask,
) -> Vec<FusedTask> {
    let mut made = vec![false; shapes.nodes.len()];
    let mut parts = Vec::new();
    // Depth first with an explicit stack: graphs can be deeper than a thread's stack.
    let mut open: Vec<(NodeId, Option<FusedTask>)> = program.outputs.iter().rev().map(|id| (*id, None)).collect();
    while let Some((id, part)) = open.pop() {
        if let Some(part) = part {
            if !made[part.outputs[0].index()] {
                part.outputs.iter().for_each(|id| made[id.index()] = true);
                parts.push(part);
            }
        } else if !made[id.index()] {
            let node = &shapes.nodes[id.index()];
            if let Op::Lag(_) = node.op {
                open.push((node.inputs[0], None));
            } else if !node.op.facts().is_leaf() {
                let part = of(shapes, id);
                let inputs = part.inputs.clone();
                open.push((id, Some(part)));
                open.extend(inputs.into_iter().rev().map(|id| (id, None)));
            }
        }
    }
    parts
}

/// A band's side, mean and deviation.
type Band = (Binary, [NodeId; 2]);

/// The node of an average, and the average.
type Mean = (NodeId, TrendMean);

/// The nodes of a program, indexed by operation and inputs. Of equal nodes the first one is indexed.
struct Shapes<'a> {
    nodes: &'a [Node],
    /// Per node: whether it is an output of the program.
    wanted: Vec<bool>,
    /// Gates and differences, by operation and inputs.
    pairs: HashMap<(Binary, [NodeId; 2]), NodeId>,
    flows: HashMap<[NodeId; 4], NodeId>,
    bands: HashMap<Band, NodeId>,
    /// Averages computed in one pass, and the index of each among them.
    means: HashMap<(Pass, &'a [NodeId]), Vec<Mean>>,
    place_of_mean: HashMap<NodeId, usize>,
    /// Number of node visits, for tests.
    #[cfg(test)]
    looks: std::cell::Cell<usize>,
}

impl<'a> Shapes<'a> {
    fn of(program: &'a Program) -> Self {
        let nodes = program.nodes();
        let mut shapes = Self {
            nodes,
            wanted: vec![false; nodes.len()],
            pairs: HashMap::new(),
            flows: HashMap::new(),
            bands: HashMap::new(),
            means: HashMap::new(),
            place_of_mean: HashMap::new(),
            #[cfg(test)]
            looks: std::cell::Cell::new(0),
        };
        program.outputs.iter().for_each(|id| shapes.wanted[id.index()] = true);
        for (id, node) in (0u32..).map(NodeId).zip(nodes) {
            if let Op::Binary(op @ (Binary::MaskUndefined | Binary::Subtract)) = node.op
                && let Ok(of) = <[NodeId; 2]>::try_from(node.inputs.as_slice())
            {
                shapes.pairs.entry((op, of)).or_insert(id);
            }
            if let Some(flow) = shapes.flow(id) {
                shapes.flows.entry(flow).or_insert(id);
            }
            for side in [Binary::Add, Binary::Subtract] {
                if let Some((base, _)) = shapes.band(id, side) {
                    shapes.bands.entry((side, base)).or_insert(id);
                }
            }
            if let Op::TrendMean { family, len } = node.op {
                let means = shapes.means.entry((trend::pass_of(family), node.inputs.as_slice())).or_default();
                shapes.place_of_mean.insert(id, means.len());
                means.push((id, TrendMean { family, len }));
            }
        }
        shapes
    }

    /// The largest group that computes `id`, or a task of the node alone.
    fn part(&self, id: NodeId) -> FusedTask {
        let group = |(work, inputs): (FusedOp, Vec<NodeId>)| FusedTask { work, inputs, outputs: vec![id] };
        let one = || {
            self.strength(id)
                .or_else(|| self.directional(id))
                .or_else(|| self.weighed(id))
                .or_else(|| self.average_range(id))
                .or_else(|| self.true_range(id))
                .or_else(|| self.within(id))
                .or_else(|| self.standing(id))
                .or_else(|| self.share(id))
                .or_else(|| self.apart(id))
                .or_else(|| self.count(id))
                .or_else(|| self.sum_over(id))
                .or_else(|| self.scaled(id))
        };
        self.convergence(id)
            .or_else(|| self.trend_means(id))
            .or_else(|| self.flows(id))
            .or_else(|| self.bands(id))
            .or_else(|| one().map(group))
            .unwrap_or_else(|| self.alone(id))
    }

    fn alone(&self, id: NodeId) -> FusedTask {
        FusedTask { work: FusedOp::Op(self.op(id)), inputs: self.nodes[id.index()].inputs.clone(), outputs: vec![id] }
    }

    fn op(&self, id: NodeId) -> Op {
        self.look();
        self.nodes[id.index()].op
    }

    /// Counts a node visit in tests.
    fn look(&self) {
        #[cfg(test)]
        self.looks.set(self.looks.get() + 1);
    }

    fn constant(&self, id: NodeId) -> Option<Bits> {
        if let Op::Constant(bits) = self.op(id) { Some(bits) } else { None }
    }

    /// The inputs of node `id` if its operation is `op` and it has `K` inputs.
    fn inputs<const K: usize>(&self, id: NodeId, op: Op) -> Option<[NodeId; K]> {
        self.look();
        let node = &self.nodes[id.index()];
        if node.op == op { <[NodeId; K]>::try_from(node.inputs.as_slice()).ok() } else { None }
    }

    fn two(&self, id: NodeId, op: Binary) -> Option<[NodeId; 2]> {
        self.inputs(id, Op::Binary(op))
    }

    /// The node that applies `op` to `of`.
    fn pair(&self, op: Binary, of: [NodeId; 2]) -> Option<NodeId> {
        self.pairs.get(&(op, of)).copied()
    }

    fn greater(&self, id: NodeId) -> Option<[NodeId; 2]> {
        self.inputs(id, Op::Compare(CompareOp::Greater))
    }

    /// The input of `id` if it is a lag by one bar.
    fn before(&self, id: NodeId) -> Option<NodeId> {
        self.inputs::<1>(id, Op::Lag(1)).map(|[of]| of)
    }

    fn is(&self, id: NodeId, value: f64) -> Option<()> {
        (self.constant(id)? == Bits::from(value)).then_some(())
    }

    /// A constant divisor other than 0, so that the quotient is NA only where the dividend is.
    fn divisor(&self, id: NodeId) -> Option<Bits> {
        self.constant(id).filter(|bits| bits.value() != 0.0)
    }

    /// The other operand of a product with the constant `factor`.
    fn times(&self, id: NodeId, factor: f64) -> Option<NodeId> {
        let [x, constant] = self.two(id, Binary::Multiply)?;
        self.is(constant, factor).map(|()| x)
    }

    /// Condition and value of a selection that is 0 where the condition does not hold.
    fn or_zero(&self, id: NodeId) -> Option<[NodeId; 2]> {
        let [condition, x, zero] = self.inputs(id, Op::Select)?;
        self.is(zero, 0.0).map(|()| [condition, x])
    }

    /// A difference that exceeds the rounding of two values, and the values.
    fn beyond_rounding(&self, id: NodeId) -> Option<[NodeId; 3]> {
        let [difference, least] = self.greater(id)?;
        let [a, b] = self.two(self.times(least, TALIB_EPSILON)?, Binary::Add)?;
        let magnitude = |id| self.inputs::<1>(id, Op::Unary(Unary::Abs)).map(|[x]| x);
        Some([difference, magnitude(a)?, magnitude(b)?])
    }

    fn distance(&self, id: NodeId) -> Option<[NodeId; 2]> {
        let [inner] = self.inputs(id, Op::Unary(Unary::Abs))?;
        self.two(inner, Binary::Subtract)
    }

    fn apart(&self, id: NodeId) -> Option<(FusedOp, Vec<NodeId>)> {
        Some((FusedOp::Apart, self.distance(id)?.to_vec()))
    }

    /// The two series of a comparison that is counted. Other conditions are summed as any series is.
    fn count(&self, id: NodeId) -> Option<(FusedOp, Vec<NodeId>)> {
        let Op::Sum(p) = self.op(id) else { return None };
        let [condition] = self.inputs(id, Op::Sum(p))?;
        let op = self.op(condition);
        let of = if let Op::Compare(comparison) = op {
            Counted::Compare(comparison)
        } else if op == Op::CrossesAbove {
            Counted::CrossesAbove
        } else if op == Op::CrossesBelow {
            Counted::CrossesBelow
        } else {
            return None;
        };
        let compared: [NodeId; 2] = self.inputs(condition, op)?;
        (p < COUNTED_BARS_MAX).then(|| (FusedOp::Count { of, p }, compared.to_vec()))
    }

    /// high, low, and the close one bar ago.
    fn true_range(&self, id: NodeId) -> Option<(FusedOp, Vec<NodeId>)> {
        let [upper, down] = self.two(id, Binary::Maximum)?;
        let [range, up] = self.two(upper, Binary::Maximum)?;
        let [high, low] = self.two(range, Binary::Subtract)?;
        let ([up_from, before], [down_from, down_to]) = (self.distance(up)?, self.distance(down)?);
        let fits = up_from == high && down_from == low && before == down_to;
        fits.then(|| (FusedOp::TrueRange, vec![high, low, before]))
    }

    fn average_range(&self, id: NodeId) -> Option<(FusedOp, Vec<NodeId>)> {
        let Op::Wilder(p) = self.op(id) else { return None };
        let [range] = self.inputs(id, Op::Wilder(p))?;
        Some((FusedOp::AverageRange(p), self.true_range(range)?.1))
    }

    fn sum_over(&self, id: NodeId) -> Option<(FusedOp, Vec<NodeId>)> {
        let [sum, divisor] = self.two(id, Binary::Divide)?;
        let divisor = self.divisor(divisor)?;
        let [ab, c] = self.two(sum, Binary::Add)?;
        match self.two(ab, Binary::Add) {
            Some([a, b]) => Some((FusedOp::SumOver(divisor), vec![a, b, c])),
            None => Some((FusedOp::PairOver(divisor), vec![ab, c])),
        }
    }

    fn scaled(&self, id: NodeId) -> Option<(FusedOp, Vec<NodeId>)> {
        let (plus, minus) = (self.two(id, Binary::Add), self.two(id, Binary::Subtract));
        let [a, scaled] = plus.or(minus)?;
        let [b, factor] = self.two(scaled, Binary::Multiply)?;
        let factor = self.constant(factor)?;
        let work = if plus.is_some() { FusedOp::PlusScaled(factor) } else { FusedOp::MinusScaled(factor) };
        Some((work, vec![a, b]))
    }

    /// x, lowest, highest.
    fn within(&self, id: NodeId) -> Option<(FusedOp, Vec<NodeId>)> {
        let [above, range] = self.two(self.times(id, 100.0)?, Binary::RatioOrZero)?;
        let [varies, range] = self.or_zero(range)?;
        let ([highest, lowest], [x, from]) = (self.two(range, Binary::Subtract)?, self.two(above, Binary::Subtract)?);
        let fits = from == lowest && self.beyond_rounding(varies)? == [range, highest, lowest];
        fits.then(|| (FusedOp::Within, vec![x, lowest, highest]))
    }

    /// x, mean, deviation.
    fn standing(&self, id: NodeId) -> Option<(FusedOp, Vec<NodeId>)> {
        let [varies, score] = self.or_zero(id)?;
        let [apart, scaled] = self.two(score, Binary::RatioOrZero)?;
        let [deviation, factor] = self.two(scaled, Binary::Multiply)?;
        let [x, mean] = self.two(apart, Binary::Subtract)?;
        let [also_deviation, least] = self.greater(varies)?;
        let [size] = self.inputs(self.times(least, TALIB_EPSILON)?, Op::Unary(Unary::Abs))?;
        let fits = size == mean && also_deviation == deviation;
        fits.then_some((FusedOp::ZScore(self.constant(factor)?), vec![x, mean, deviation]))
    }

    /// The flow of one direction: the price a that is above b where the flow counts, the price, the volume.
    fn flow(&self, id: NodeId) -> Option<[NodeId; 4]> {
        let [part, flow] = self.two(id, Binary::MaskUndefined)?;
        let [counts, taken] = self.or_zero(part)?;
        let [moved, now, before] = self.beyond_rounding(counts)?;
        let ([a, b], [price, volume]) = (self.two(moved, Binary::Subtract)?, self.two(flow, Binary::Multiply)?);
        let fits = taken == flow && now == price && ([a, b] == [now, before] || [b, a] == [now, before]);
        fits.then_some([a, b, price, volume])
    }

    fn flows(&self, id: NodeId) -> Option<FusedTask> {
        let [a, b, price, volume] = self.flow(id)?;
        let before = if a == price { b } else { a };
        let find = |a, b| self.flows.get(&[a, b, price, volume]).copied();
        let outputs = vec![find(price, before)?, find(before, price)?];
        let fits = outputs.contains(&id) && price != before;
        fits.then(|| FusedTask { work: FusedOp::Flows, inputs: vec![price, before, volume], outputs })
    }

    /// Mean, deviation and factor of a band.
    fn band(&self, id: NodeId, side: Binary) -> Option<([NodeId; 2], Bits)> {
        let [mean, scaled] = self.two(id, side)?;
        let [deviation, factor] = self.two(scaled, Binary::Multiply)?;
        Some(([mean, deviation], self.constant(factor)?))
    }

    fn bands(&self, id: NodeId) -> Option<FusedTask> {
        let gated = self.two(id, Binary::MaskUndefined);
        let (base, _) = match gated {
            Some([_, upper]) => self.band(upper, Binary::Add)?,
            None => self.band(id, Binary::Add).or_else(|| self.band(id, Binary::Subtract))?,
        };
        let find = |side| self.bands.get(&(side, base)).copied();
        let (upper, lower) = (find(Binary::Add)?, find(Binary::Subtract)?);
        let middle = self.pair(Binary::MaskUndefined, [base[0], upper])?;
        let ((_, up), (_, down)) = (self.band(upper, Binary::Add)?, self.band(lower, Binary::Subtract)?);
        let outputs = vec![upper, middle, lower];
        let fits = outputs.contains(&id);
        fits.then(|| FusedTask { work: FusedOp::Bands { up, down }, inputs: base.to_vec(), outputs })
    }

    /// The task that computes `id` with the other averages of the same series and pass, at most `TOGETHER_MAX` at a
    /// time.
    fn trend_means(&self, id: NodeId) -> Option<FusedTask> {
        let Op::TrendMean { family, .. } = self.op(id) else { return None };
        let inputs = &self.nodes[id.index()].inputs;
        let all = self.means.get(&(trend::pass_of(family), inputs.as_slice()))?;
        let first = self.place_of_mean.get(&id)? / trend::TOGETHER_MAX * trend::TOGETHER_MAX;
        let chunk = &all[first..all.len().min(first + trend::TOGETHER_MAX)];
        let (outputs, means): (Vec<NodeId>, Vec<TrendMean>) = chunk.iter().copied().unzip();
        Some(FusedTask { work: FusedOp::TrendMeans(means.into()), inputs: inputs.clone(), outputs })
    }

    /// Two parts of a whole.
    fn share(&self, id: NodeId) -> Option<(FusedOp, Vec<NodeId>)> {
        let [part, whole] = self.two(self.times(id, 100.0)?, Binary::RatioOrZero)?;
        let [of, rest] = self.two(whole, Binary::Add)?;
        (of == part).then(|| (FusedOp::Share, vec![part, rest]))
    }

    /// x and x one bar ago.
    fn strength(&self, id: NodeId) -> Option<(FusedOp, Vec<NodeId>)> {
        let [gain, total] = self.two(self.times(id, 100.0)?, Binary::RatioOrZero)?;
        let [of, loss] = self.two(total, Binary::Add)?;
        let Op::Wilder(p) = self.op(gain) else { return None };
        let ([up], [down]) = (self.inputs(gain, Op::Wilder(p))?, self.inputs(loss, Op::Wilder(p))?);
        let ([change, zero], [fall, also_zero]) = (self.two(up, Binary::Maximum)?, self.two(down, Binary::Maximum)?);
        let [negated] = self.inputs(fall, Op::Unary(Unary::Negate))?;
        let [raw, by] = self.two(change, Binary::MaskUndefined)?;
        let [x, before] = self.two(raw, Binary::Subtract)?;
        self.is(zero, 0.0).and(self.is(also_zero, 0.0))?;
        let fits = of == gain && negated == change && raw == by;
        fits.then(|| (FusedOp::Strength(p), vec![x, before]))
    }

    fn convergence(&self, id: NodeId) -> Option<FusedTask> {
        let gated = self.two(id, Binary::MaskUndefined).map(|[_, signal]| signal);
        let hist = self.two(id, Binary::Subtract).map(|[_, signal]| signal);
        let signal = gated.or(hist).unwrap_or(id);
        let exponential = |id: NodeId| {
            let Op::Ema { p, delay } = self.op(id) else { return None };
            Some((p, delay, self.nodes[id.index()].inputs[0]))
        };
        let (signal_bars, 0, line) = exponential(signal)? else { return None };
        let [fast, slow] = self.two(line, Binary::Subtract)?;
        let ((fast, delay, x), (slow, 0, also_x)) = (exponential(fast)?, exponential(slow)?) else { return None };
        let [gated, hist] = [Binary::MaskUndefined, Binary::Subtract].map(|op| self.pair(op, [line, signal]));
        let (gated, hist) = (gated?, hist?);
        // A node that needs the ungated line computes it separately.
        let outputs = vec![gated, signal, hist];
        let fits = x == also_x && outputs.contains(&id) && !self.wanted[line.index()];
        let work = FusedOp::Convergence { fast, delay, slow, signal: signal_bars };
        fits.then(|| FusedTask { work, inputs: vec![x], outputs })
    }

    /// high, low, both one bar ago, and the close one bar ago.
    fn directional(&self, id: NodeId) -> Option<(FusedOp, Vec<NodeId>)> {
        let Op::WilderRatio(p) = self.op(id) else { return None };
        let [apart, total] = self.inputs(id, Op::WilderRatio(p))?;
        let [minus_sum, plus_sum] = self.distance(apart)?;
        let [ranged, total] = self.or_zero(total)?;
        let ([range_sum, zero], also) = (self.greater(ranged)?, self.two(total, Binary::Add)?);
        self.is(zero, 0.0)?;
        let gated = |id| self.inputs(id, Op::WilderSum(p)).and_then(|[x]| self.two(x, Binary::MaskUndefined));
        let ([fall, a], [rise, b], [range, c]) = (gated(minus_sum)?, gated(plus_sum)?, gated(range_sum)?);
        let (_, edge) = self.true_range(range)?;
        let [high, low, before] = edge[..] else { return None };
        let [moved, also_extent] = self.two(a, Binary::Add)?;
        let [up, down] = self.two(moved, Binary::Add)?;
        let ([up_to, high_before], [low_before, down_to]) =
            (self.two(up, Binary::Subtract)?, self.two(down, Binary::Subtract)?);
        let lags = self.before(high_before)? == high && self.before(low_before)? == low;
        let fits = also == [minus_sum, plus_sum]
            && a == b
            && b == c
            && also_extent == range
            && up_to == high
            && down_to == low
            && self.movement(rise)? == [up, down]
            && self.movement(fall)? == [down, up];
        (fits && lags).then(|| (FusedOp::Directional(p), vec![high, low, high_before, low_before, before]))
    }

    /// `this` where it is positive and exceeds `other`, else 0.
    fn movement(&self, id: NodeId) -> Option<[NodeId; 2]> {
        let [both, this] = self.or_zero(id)?;
        let [positive, larger] = self.inputs(both, Op::And)?;
        let ([a, zero], [b, other]) = (self.greater(positive)?, self.greater(larger)?);
        self.is(zero, 0.0)?;
        (a == this && b == this).then_some([this, other])
    }

    /// Price and volume.
    fn weighed(&self, id: NodeId) -> Option<(FusedOp, Vec<NodeId>)> {
        let [value, volume] = self.two(id, Binary::RatioOrZero)?;
        let ([value], [volume]) = (self.inputs(value, Op::Cumulative)?, self.inputs(volume, Op::Cumulative)?);
        let ([raw, by], [of, gate]) =
            (self.two(value, Binary::MaskUndefined)?, self.two(volume, Binary::MaskUndefined)?);
        let [price, weight] = self.two(raw, Binary::Multiply)?;
        (raw == by && gate == value && weight == of).then(|| (FusedOp::Weighed, vec![price, of]))
    }
}

#[cfg(test)]
mod tests {
    use trawl_plan::catalogue::{functions, sample};
    use trawl_plan::{ScanDocument, Schema, compile_expressions, compile_scan};

    use super::*;

    /// Visits per node when a sweep of `settings` settings is fused.
    fn looks_a_node(condition: &str, settings: usize) -> f64 {
        let text = format!("where = '{condition}'\n[sweep]\nn = {{ from = 2, to = {} }}\n", settings + 1);
        let document = ScanDocument::from_toml(&text).expect("a document");
        let schema = Schema::of_columns(["high", "low", "close", "volume"].map(str::to_owned).to_vec());
        let plan = compile_scan(&document, &schema).expect("a plan");
        let shapes = Shapes::of(plan.program());
        assert!(shapes.nodes.len() > settings, "{condition}: a node for each setting");
        parts(plan.program(), &shapes, Shapes::part);
        shapes.looks.get() as f64 / shapes.nodes.len() as f64
    }

    #[test]
    fn fusing_looks_at_each_node_as_often_however_many_there_are() {
        for condition in [
            "close > bbands(close, n).upper",
            "close > bbands(close, 20, n).lower",
            "mfi(n) > 50",
            "macd(close, n, 2 * n, 9).hist > 0",
            "atc(close, n + 6).signal > 0",
        ] {
            let [few, many] = [40, 320].map(|settings| looks_a_node(condition, settings));
            assert!(
                many < 1.5 * few + 10.0,
                "{condition}: {few} looks a node, and {many} in a sweep eight times as wide"
            );
        }
    }

    #[test]
    fn every_function_is_run_in_the_groups_that_its_declaration_names() {
        let schema = Schema::of_columns(["open", "high", "low", "close", "volume"].map(str::to_owned).to_vec());
        let mut wrong = Vec::new();
        for function in functions() {
            let plan = compile_expressions(&sample(function), "test", &schema).expect("legal");
            let mut found: Vec<_> = fuse(plan.program()).iter().filter_map(|task| task.work.group()).collect();
            let mut named = function.fused.to_vec();
            found.sort_unstable();
            found.dedup();
            named.sort_unstable();
            if found != named {
                wrong.push(format!("{}: found {found:?}, named {named:?}", function.name));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
