//! What a caller may do.

/// A right granted by a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Right {
    /// To run scans.
    Submit,
    /// To see one's own scans, and the cluster's workers.
    Read,
    /// To see all scans.
    ReadAll,
    /// All rights.
    Admin,
}

impl Right {
    /// All variants.
    pub const ALL: [Self; 4] = [Self::Submit, Self::Read, Self::ReadAll, Self::Admin];

    /// The name of this variant in a token file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Read => "read",
            Self::ReadAll => "read-all",
            Self::Admin => "admin",
        }
    }

    /// Whether this right includes `wanted`.
    pub fn covers(self, wanted: Self) -> bool {
        self == wanted || self == Self::Admin || (self == Self::ReadAll && wanted == Self::Read)
    }
}

/// Parses names of rights separated by commas; returns them sorted, without duplicates.
///
/// # Errors
/// The unknown name, and the known ones.
pub fn parse_rights(text: &str) -> Result<Vec<Right>, String> {
    let mut rights = Vec::new();
    for word in text.split(',') {
        let right = Right::ALL.into_iter().find(|r| r.name() == word);
        rights.push(right.ok_or_else(|| format!("'{word}' is no role; there are submit, read, read-all and admin"))?);
    }
    rights.sort_unstable();
    rights.dedup();
    Ok(rights)
}

/// Formats rights for [`parse_rights`].
pub fn rights_text(rights: &[Right]) -> String {
    rights.iter().map(|r| r.name()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_cover_what_they_say() {
        let covered = |right: Right| Right::ALL.into_iter().filter(|w| right.covers(*w)).collect::<Vec<_>>();
        assert_eq!(covered(Right::Submit), [Right::Submit]);
        assert_eq!(covered(Right::Read), [Right::Read]);
        assert_eq!(covered(Right::ReadAll), [Right::Read, Right::ReadAll]);
        assert_eq!(covered(Right::Admin), Right::ALL);
        assert_eq!(parse_rights("read,submit,read").unwrap(), [Right::Submit, Right::Read]);
        assert!(parse_rights("").unwrap_err().contains("submit, read"));
    }
}
