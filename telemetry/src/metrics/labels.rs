//! Labels with a fixed set of values: a metric has one cell for each value, and can have no others.

/// A label of a metric; its values are those of an enumeration.
pub trait Label: Copy + 'static {
    /// The label with its values, in the order of the enumeration; none for a metric without a label.
    const LABELS: &'static [(&'static str, &'static [&'static str])];
    /// How many cells a metric with this label has.
    const COUNT: usize;

    /// The index of the value, below [`Self::COUNT`].
    fn index(self) -> usize;
}

impl Label for () {
    const LABELS: &'static [(&'static str, &'static [&'static str])] = &[];
    const COUNT: usize = 1;

    fn index(self) -> usize {
        0
    }
}

/// Declares a label: `pub enum NAME("label") { Variant = "value", ... }`.
macro_rules! label {
    ($(#[$doc:meta])+ pub enum $name:ident($label:literal) { $($(#[$variant_doc:meta])* $variant:ident = $value:literal),+ $(,)? }) => {
        $(#[$doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$variant_doc])* #[doc = concat!("`", $value, "`")] $variant),+
        }

        impl $name {
            /// How many values there are.
            pub const COUNT: usize = [$($value),+].len();

            /// As it is shown.
            pub const fn value(self) -> &'static str {
                match self { $(Self::$variant => $value),+ }
            }

            /// The value with this name.
            pub fn named(value: &str) -> Option<Self> {
                match value { $($value => Some(Self::$variant),)+ _ => None }
            }
        }

        impl $crate::metrics::Label for $name {
            const LABELS: &'static [(&'static str, &'static [&'static str])] = &[($label, &[$($value),+])];
            const COUNT: usize = Self::COUNT;

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

pub(crate) use label;
