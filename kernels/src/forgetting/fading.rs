//! The bar from which on a mean has the same bits, whatever it was.
//!
//! Real numbers that follow m + (x - m)*f from two beginnings come nearer by the factor 1 - f at each bar, and meet at no bar. Rounded
//! ones do: near each other they round to the same number. A rounded step does not keep the order of numbers, so that the two
//! outermost say nothing of those between them. Two bounds that are moved outwards by all that rounding can do hold them; once few
//! numbers are left between the bounds, each of them is followed.

use trawl_plan::graph::Op;

/// Half the distance from 1 to the next number.
const ROUNDING: f64 = f64::EPSILON / 2.0;
/// The smallest positive number, for what is rounded below it.
const TINIEST: f64 = f64::from_bits(1);
/// A mean, seeded or not, is of at most so many times the magnitude of what it is a mean of: a seed is a first value and a share of a
/// sum of differences to it.
pub(super) const SEED_SPAN: f64 = 4.0;
/// Values of at most this magnitude are followed, so that nothing overflows.
const LARGEST: f64 = 1e150;
/// How many numbers are followed at most, in units of 1/f: outwards rounding leaves up to 6.1, and [`FOLLOWED_BESIDE`].
const FOLLOWED: f64 = 8.0;
/// How many more.
const FOLLOWED_BESIDE: usize = 32;
/// Steps that it takes to follow them, in units of 1/f²: 4 to 15 were counted, of four means over twelve random walks each.
const FOLLOWING: f64 = 15.0;
/// Bars after which those that have become one are counted once.
const MERGED_EVERY: usize = 8;
/// How many steps those of one mean may take together, at most.
const STEPS_MAX: usize = 1 << 22;
/// Bars, in units of 1/f, after which a mean has forgotten. Of the same means it was shown after 39 to 51; where earlier values were
/// larger, it takes log 2 more for each bit that they were.
const FORGETS: f64 = 96.0;

/// A mean m + (x - m)*f.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fading {
    /// Number of defined values after which it has begun.
    seeds: usize,
    factor: f64,
}

impl Fading {
    /// That of a primitive, with the factor that its steps use (`Smoothed`).
    pub fn of(op: &Op) -> Option<Self> {
        // Any other is read as a whole.
        let (seeds, factor) = if let Op::Ema { p, delay } = *op {
            (p.saturating_add(delay), 2.0 / (f64::from(p) + 1.0))
        } else if let Op::EmaBy { p, delay, factor } = *op {
            (p.saturating_add(delay), factor.value())
        } else if let Op::Wilder(p) = *op {
            (p, 1.0 / f64::from(p))
        } else {
            return None;
        };
        (factor > 0.0 && factor <= 1.0 && seeds > 0).then_some(Self { seeds: seeds as usize, factor })
    }

    /// How many bars usually suffice.
    pub fn bars(&self) -> usize {
        self.seeds.saturating_add((FORGETS / self.factor) as usize)
    }

    /// How many steps it usually takes to show that it has forgotten.
    pub fn steps(&self) -> usize {
        (FOLLOWING / (self.factor * self.factor)) as usize
    }

    /// One bar, as the steps compute it.
    fn next(&self, m: f64, x: f64) -> f64 {
        m + (x - m) * self.factor
    }

    /// A bar of `x` from which on the mean does not depend on what it was before bar `from`; `None` where that is not shown.
    /// NA and infinite values are passed over. No value before or after is larger in magnitude than `largest`.
    pub fn forgotten(&self, x: &[f64], from: usize, largest: f64) -> Option<usize> {
        if largest.is_nan() || largest > LARGEST {
            return None;
        }
        let mut bars = x.iter().copied().enumerate().skip(from).filter(|(_, x)| x.is_finite());
        // Here it has begun at the latest.
        bars.nth(self.seeds - 1)?;
        let most = ((FOLLOWED / self.factor) as usize).saturating_add(FOLLOWED_BESIDE);
        // A mean comes nearer by half of what it is away, or less.
        let pause = (0.5 / self.factor) as usize + 1;
        let mut bounds = Bounds { low: -SEED_SPAN * largest, high: SEED_SPAN * largest };
        let mut numbers = loop {
            let mut gone = 0;
            for (_, x) in bars.by_ref().take(pause) {
                bounds = self.outwards(bounds, x);
                gone += 1;
            }
            if gone == 0 {
                return None;
            }
            if let Some(numbers) = bounds.numbers(most) {
                break numbers;
            }
        };
        let mut steps = 0;
        for (at, (bar, x)) in bars.enumerate() {
            numbers.iter_mut().for_each(|m| *m = self.next(*m, x));
            steps += numbers.len();
            if at % MERGED_EVERY == 0 {
                // Equal ones are neighbours, with few exceptions.
                numbers.dedup_by_key(|m| m.to_bits());
                if numbers.len() == 1 {
                    return Some(bar);
                }
                if steps > STEPS_MAX {
                    return None;
                }
            }
        }
        None
    }

    /// Bounds of what numbers between these become. A step that is not rounded keeps their order; x - m, its product and the sum are each
    /// rounded once.
    fn outwards(&self, bounds: Bounds, x: f64) -> Bounds {
        let (low, high) = (self.next(bounds.low, x), self.next(bounds.high, x));
        let before = bounds.low.abs().max(bounds.high.abs());
        let after = low.abs().max(high.abs());
        let rounded = ROUNDING * (1.02 * after + 2.02 * self.factor * (x.abs() + before)) + TINIEST;
        // Once for the bound itself, and once for the number that it bounds.
        let by = 2.02 * rounded;
        Bounds { low: (low - by).next_down(), high: (high + by).next_up() }
    }
}

/// Numbers that a mean can have, these two included.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    low: f64,
    high: f64,
}

impl Bounds {
    /// All numbers within them, ascending, if they are at most so many.
    fn numbers(self, most: usize) -> Option<Vec<f64>> {
        // Of zeros there are two.
        let low = if self.low == 0.0 { -0.0 } else { self.low };
        let high = if self.high == 0.0 { 0.0 } else { self.high };
        let (low, high) = (place(low), place(high));
        let count = usize::try_from(high.checked_sub(low)?).ok()?;
        (count < most).then(|| (low..=high).map(number).collect())
    }
}

/// The place of a number among all, ascending from the negative ones, as IEEE 754 orders them.
fn place(number: f64) -> i64 {
    let bits = number.to_bits().cast_signed();
    if bits < 0 { i64::MIN - bits - 1 } else { bits }
}

/// The number at a place.
fn number(place: i64) -> f64 {
    let bits = if place < 0 { i64::MIN - (place + 1) } else { place };
    f64::from_bits(bits.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A mean that has begun with `m` before the bars `x`; its value after each.
    fn run(fading: &Fading, mut m: f64, x: &[f64]) -> Vec<u64> {
        let after = x.iter().map(|x| {
            m = if x.is_finite() { fading.next(m, *x) } else { m };
            m.to_bits()
        });
        after.collect()
    }

    fn wilder(p: u32) -> Fading {
        Fading::of(&Op::Wilder(p)).unwrap()
    }

    /// Gains of a price that moves by so many ticks at a bar, and NA now and then.
    fn gains(seed: u64, bars: usize) -> Vec<f64> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        let mut price = 100.0 + next() as f64 / 1e7;
        let one = |_| {
            let before = price;
            price += (next() % 201) as f64 / 100.0 - 1.0;
            if next() % 97 == 0 { f64::NAN } else { f64::max(price - before, 0.0) }
        };
        (0..bars).map(one).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_beginning_has_become_the_same(
            seed in any::<u64>(),
            p in 1u32..60,
            beginnings in prop::collection::vec(-1.0f64..1.0, 40),
            scale in -9i32..9,
        ) {
            let fading = wilder(p);
            let x: Vec<f64> = gains(seed, 70 * p as usize + 100).iter().map(|x| x * 10f64.powi(scale)).collect();
            let largest = x.iter().copied().filter(|x| x.is_finite()).fold(0.0, f64::max);
            let found = fading.forgotten(&x, 0, largest).expect("70 p bars");
            let begun = x.iter().enumerate().filter(|(_, x)| x.is_finite()).nth(fading.seeds - 1).unwrap().0 + 1;
            // The ends, what seeds can be, and neighbours of one of them.
            let own = x[begun..].iter().copied().find(|x| x.is_finite()).unwrap();
            let spread = beginnings.iter().map(|b| b * SEED_SPAN * largest);
            let near = (-20i32..20).map(|at| own + f64::from(at) * own * f64::EPSILON);
            let ends = [-SEED_SPAN * largest, SEED_SPAN * largest, 0.0, -0.0];
            let runs: Vec<Vec<u64>> = spread.chain(near).chain(ends).map(|m| run(&fading, m, &x[begun..])).collect();
            for later in &runs {
                prop_assert_eq!(&later[found - begun..], &runs[0][found - begun..]);
            }
        }

        #[test]
        fn bounds_hold_what_is_between_them(
            m in prop::collection::vec(-1e3f64..1e3, 2..40),
            x in prop::collection::vec(-1e3f64..1e3, 1..60),
            p in 1u32..300,
            narrow in 0i32..60,
        ) {
            let fading = wilder(p);
            let m: Vec<f64> = m.iter().map(|v| m[0] + (v - m[0]) * 2f64.powi(-narrow)).collect();
            let least = m.iter().copied().fold(f64::INFINITY, f64::min);
            let most = m.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let (mut bounds, mut all) = (Bounds { low: least, high: most }, m);
            for x in x {
                bounds = fading.outwards(bounds, x);
                all.iter_mut().for_each(|m| *m = fading.next(*m, x));
                prop_assert!(all.iter().all(|m| (bounds.low..=bounds.high).contains(m)), "{:?} {:?}", bounds, all);
            }
        }
    }

    #[test]
    fn a_mean_is_remembered_by_what_never_moves_it_far_enough() {
        let fading = wilder(14);
        // Towards zero all numbers shrink alike.
        let zeros = [vec![1.0; 20], vec![0.0; 5000]].concat();
        assert_eq!(fading.forgotten(&zeros, 0, 1.0), None);
        let x = gains(7, 5000);
        let found = fading.forgotten(&x, 0, 1.0).unwrap();
        assert!((500..1400).contains(&found), "{found}");
        assert!(fading.forgotten(&x, 2000, 1.0).unwrap() > 2500, "counted from there");
        assert_eq!(fading.forgotten(&x[..400], 0, 1.0), None, "too few");
        assert_eq!(fading.forgotten(&[f64::NAN; 5000], 0, 1.0), None);
        for largest in [f64::NAN, f64::INFINITY, f64::MAX] {
            assert_eq!(fading.forgotten(&x, 0, largest), None, "{largest}");
        }
        // What was larger before takes longer to forget.
        assert!(fading.forgotten(&x, 0, 1e9).unwrap() > found + 14 * 15);
    }

    #[test]
    fn bars_that_usually_suffice_do() {
        for p in [1, 2, 3, 4, 5, 14, 50, 120] {
            let fading = Fading::of(&Op::Ema { p, delay: 0 }).unwrap();
            // Prices beside each other need more bounds where their digits are large.
            for level in [1.0, 66.0, 100.0, 120.0, 127.0, 1e6] {
                let prices = gains(u64::from(p), fading.bars()).into_iter().map(|gain| level + gain);
                let prices: Vec<f64> = prices.collect();
                assert!(fading.forgotten(&prices, 0, 2.0 * level + 2.0).is_some(), "{p}, {level}");
            }
            let fading = wilder(p);
            let found = (0..20).map(|seed| fading.forgotten(&gains(seed, fading.bars()), 0, 1000.0));
            assert!(
                found.clone().all(|bar| bar.is_some()),
                "{p}: {:?} of {}",
                found.collect::<Vec<_>>(),
                fading.bars()
            );
        }
    }

    #[test]
    fn numbers_between_bounds_are_all_of_them() {
        let of = |low: f64, high: f64| Bounds { low, high }.numbers(10);
        assert_eq!(of(1.0, 1.0f64.next_up().next_up()).unwrap(), [1.0, 1.0 + f64::EPSILON, 1.0 + 2.0 * f64::EPSILON]);
        assert_eq!(of(1.0, 1.1), None);
        let zeros: Vec<u64> = of(0.0, 0.0).unwrap().iter().map(|v| v.to_bits()).collect();
        assert_eq!(zeros, [(-0.0f64).to_bits(), 0]);
        let around: Vec<u64> = of(-TINIEST, TINIEST).unwrap().iter().map(|v| v.to_bits()).collect();
        assert_eq!(around, [(-TINIEST).to_bits(), (-0.0f64).to_bits(), 0, 1]);
        assert_eq!(of(-1.0, 1.0), None);
    }
}
