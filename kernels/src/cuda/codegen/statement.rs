//! The statements of the code of a bar.

use crate::cuda::codegen::step_abi::Division;

/// Placeholder in the code of a bar for the function that advances a step by one bar: the general one, or the one for
/// steps past their seed.
pub(crate) const NEXT: &str = "$next";

/// As [`NEXT`], for a window in blocks: the general function, or the one for bars that do not begin a block.
pub(crate) const INSIDE: &str = "$inside";

/// Placeholder in a condition for the number of bars processed side by side.
pub(crate) const TOGETHER: &str = "$together";

/// When a statement runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum When {
    /// At every bar.
    Every,
    /// From the first bar on at which finite windows are needed.
    Tail,
    /// At bars whose values are wanted: no later bar depends on it.
    Wanted,
}

/// A statement in the code of a bar.
#[derive(Debug, Clone)]
pub(crate) struct Statement {
    pub(super) text: String,
    /// Number of divisions on the path to its inputs.
    pub(super) stage: usize,
    pub(super) kind: Kind,
    /// Index of the history that it reads or writes: bars side by side need all of these in one stage.
    pub(super) history: Option<usize>,
}

#[derive(Debug, Clone)]
pub(super) enum Kind {
    /// Reads a column, or a series of another part.
    Load,
    Plain,
    /// Stores a series that other parts read.
    Store,
    /// A step that divides: its result is one stage after its inputs.
    Divided(Divided),
    /// A window in blocks that takes several bars at once where one of them begins a block.
    Window(Window),
    /// A function of the past that takes two bars at once.
    Pair(Pair),
    /// Runs bar by bar only.
    Fixed,
}

/// A window that has `next_begins`.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    pub step: usize,
    /// The value that it takes of a bar.
    pub input: String,
    /// What else it is given, the same at every bar.
    pub arguments: String,
}

/// A function of the past with another one, of two bars side by side, that reads once what both look at.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub step: usize,
    /// The function of one bar; that of two has an "s" behind its name.
    pub name: String,
    /// Index of the history that it looks back at.
    pub history: usize,
    /// The value that it takes of a bar.
    pub input: String,
    /// What else it is given, the same at every bar.
    pub arguments: String,
}

/// A step that divides.
#[derive(Debug, Clone)]
pub(crate) struct Divided {
    pub step: usize,
    /// What its functions are called on: its state, or a type.
    pub owner: String,
    pub arguments: String,
    pub division: Division,
}

impl Statement {
    /// The name of the value that it makes, if it makes one.
    pub(super) fn name(&self) -> Option<&str> {
        let (declaration, _) = self.text.strip_prefix("const ")?.split_once(" = ")?;
        declaration.split_once(' ').map(|(_, name)| name.trim_end_matches("[]"))
    }

    pub fn load(text: String) -> Self {
        Self { text, stage: 0, kind: Kind::Load, history: None }
    }

    pub fn of(stage: usize, text: String) -> Self {
        Self { text, stage, kind: Kind::Plain, history: None }
    }

    pub fn store(stage: usize, text: String) -> Self {
        Self { kind: Kind::Store, ..Self::of(stage, text) }
    }

    pub fn of_history(self, history: usize) -> Self {
        Self { history: Some(history), ..self }
    }

    pub fn window(stage: usize, window: Window, text: String) -> Self {
        Self { kind: Kind::Window(window), ..Self::of(stage, text) }
    }

    pub fn pair(stage: usize, pair: Pair, text: String) -> Self {
        Self { kind: Kind::Pair(pair), ..Self::of(stage, text) }
    }

    pub fn fixed(text: String) -> Self {
        Self { text, stage: 0, kind: Kind::Fixed, history: None }
    }

    pub fn divided(stage: usize, divided: Divided, text: String) -> Self {
        Self { kind: Kind::Divided(divided), ..Self::of(stage, text) }
    }
}
