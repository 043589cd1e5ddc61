//! Functions rounded once, by their series in pairs of `f64`: for tables, too slow for bars.

/// An unevaluated sum, the second part below half a unit in the last place of the first.
#[derive(Clone, Copy)]
struct Pair(f64, f64);

impl Pair {
    /// The exact sum of two numbers, the first not the smaller one.
    fn ordered(a: f64, b: f64) -> Self {
        let sum = a + b;
        Self(sum, b - (sum - a))
    }

    fn plus(self, other: Self) -> Self {
        let sum = self.0 + other.0;
        let part = sum - self.0;
        let error = (self.0 - (sum - part)) + (other.0 - part);
        Self::ordered(sum, error + self.1 + other.1)
    }

    fn times(self, x: f64) -> Self {
        let product = self.0 * x;
        Self::ordered(product, libm::fma(self.0, x, -product) + self.1 * x)
    }

    fn over(self, x: f64) -> Self {
        let quotient = self.0 / x;
        Self::ordered(quotient, (libm::fma(-quotient, x, self.0) + self.1) / x)
    }
}

/// Terms of the series that matter up to a whole circle.
const TERMS: u32 = 60;

/// Sine and cosine of an angle from 0 to a whole circle, in radians.
pub(crate) fn sin_cos(angle: f64) -> (f64, f64) {
    let mut term = Pair(1.0, 0.0);
    // Cosine and sine.
    let mut sums = [Pair(0.0, 0.0); 2];
    for n in 0..TERMS {
        let sign = if n % 4 < 2 { 1.0 } else { -1.0 };
        let sum = &mut sums[n as usize % 2];
        *sum = sum.plus(term.times(sign));
        term = term.times(angle).over(f64::from(n + 1));
    }
    (sums[1].0, sums[0].0)
}

#[cfg(test)]
mod tests {
    use super::sin_cos;

    #[test]
    fn agrees_with_the_library_to_its_last_bit() {
        for i in 0..=6283 {
            let angle = f64::from(i) / 1000.0;
            let (sin, cos) = sin_cos(angle);
            assert!((sin - libm::sin(angle)).abs() <= f64::EPSILON / 2.0, "sin {angle}");
            assert!((cos - libm::cos(angle)).abs() <= f64::EPSILON / 2.0, "cos {angle}");
        }
    }

    /// From a computation with 60 decimal places; the library has the neighbour of the second.
    #[test]
    fn rounds_once() {
        assert_eq!(sin_cos(1.0), (0.841_470_984_807_896_5, 0.540_302_305_868_139_8));
        assert_eq!(sin_cos(11.0 * std::f64::consts::TAU / 19.0).0, -0.475_947_393_037_073_06);
    }
}
