//! Random numbers of synthetic markets: the same seed gives the same bars on every machine.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Random numbers of one symbol.
pub(crate) struct Draws(ChaCha8Rng);

impl Draws {
    pub(crate) fn new(seed: u64, symbol: u32) -> Self {
        let mut key = [0u8; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        let mut rng = ChaCha8Rng::from_seed(key);
        rng.set_stream(u64::from(symbol));
        Self(rng)
    }

    /// In [0, 1), 53 bits.
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Approximately normal, mean 0, variance 1: the sum of eight 16-bit uniforms, scaled (its tails end at 4.9).
    pub(crate) fn normal(&mut self) -> f64 {
        let mut sum = 0u64;
        for _ in 0..2 {
            let bits = self.0.next_u64();
            sum += (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
        }
        // Eight uniforms have mean 4 and variance 8/12.
        (sum as f64 / 65_536.0 - 4.0) * (1.5f64).sqrt()
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.uniform() * n as f64) as usize
    }
}

/// Approximately exp(x) for |x| < 8: (1 + x/16)^16 by squaring.
pub(crate) fn growth(x: f64) -> f64 {
    let mut y = 1.0 + x.clamp(-8.0, 8.0) / 16.0;
    for _ in 0..4 {
        y *= y;
    }
    y
}

pub(crate) fn cents(price: f64) -> f64 {
    ((price * 100.0 + 0.5).floor() / 100.0).max(0.01)
}
