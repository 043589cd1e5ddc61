//! The number type of the arithmetic.

/// The number type of the arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Precision {
    /// Agreement with the references is guaranteed in this precision.
    #[default]
    F64,
    /// Bars and values of half the size. Running totals are unevaluated sums of two; the rarer steps run in `f64`
    /// between series of `f32`. The error is published, not guaranteed: docs/precision.md.
    F32,
}

impl Precision {
    /// All variants, the default first.
    pub const ALL: [Self; 2] = [Self::F64, Self::F32];

    /// The precision of this name, or `None`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.name() == name)
    }

    /// The name of this variant, as documents and the identity of an answer have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_precision_is_found_by_its_name() {
        assert_eq!(Precision::ALL.map(|p| Precision::named(p.name())), Precision::ALL.map(Some));
        assert_eq!(Precision::named("F64"), None);
    }
}
