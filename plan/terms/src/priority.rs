//! The priority of a scan.

use crate::suggest;

/// Share of the workers' time that a scan gets while scans compete for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Priority {
    /// A quarter of the share of a normal scan.
    Low,
    /// The default.
    #[default]
    Normal,
    /// Four times the share of a normal scan.
    High,
}

impl Priority {
    /// All variants, lowest first.
    pub const ALL: [Self; 3] = [Self::Low, Self::Normal, Self::High];

    /// The name of this variant on command lines, in requests and in files of tokens.
    pub fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Normal => "normal",
            Self::High => "high",
        }
    }

    /// The inverse of [`Self::name`].
    ///
    /// # Errors
    /// The names that are legal, and the nearest of them.
    pub fn parse(text: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Self::name);
        Self::ALL.into_iter().find(|priority| priority.name() == text).ok_or_else(|| {
            let near = suggest(text, names).map_or_else(String::new, |near| format!("; did you mean '{near}'?"));
            format!("one of {} is expected{near}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_others_are_refused_with_the_nearest() {
        for priority in Priority::ALL {
            assert_eq!(Priority::parse(priority.name()), Ok(priority));
        }
        assert_eq!(Priority::parse("hihg").unwrap_err(), "one of low, normal, high is expected; did you mean 'high'?");
    }
}
