//! Checks that a result store can serve all registered coordinators.

/// A store that only one machine sees, with more than one coordinator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the result store {store} is a directory of one machine, and {coordinators} coordinators are registered: whoever \
     leads next would not find the results; give --results s3://BUCKET/PREFIX, or --results-shared if every coordinator \
     sees this very directory"
)]
pub struct PlacementError {
    /// Address of the store, as given.
    pub store: String,
    /// Number of registered coordinators, including this one.
    pub coordinators: usize,
}

/// Rejects a directory that is not declared shared if there is more than one coordinator.
///
/// `is_local`: the store is a directory ([`super::ResultStore::is_local`]); `coordinators`: the number of registered
/// coordinators, including this one.
///
/// # Errors
/// [`PlacementError`], whose message says what to do.
pub fn check_placement(
    store: &str,
    is_local: bool,
    declared_shared: bool,
    coordinators: usize,
) -> Result<(), PlacementError> {
    if is_local && !declared_shared && coordinators > 1 {
        return Err(PlacementError { store: store.to_owned(), coordinators });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_one_machine_is_refused_with_a_second_coordinator() {
        assert_eq!(check_placement("file:///r", true, false, 1), Ok(()));
        assert_eq!(check_placement("file:///r", true, true, 3), Ok(()));
        assert_eq!(check_placement("s3://b", false, false, 3), Ok(()));
        let message = check_placement("file:///r", true, false, 2).unwrap_err().to_string();
        for part in ["file:///r", "2 coordinators", "--results-shared", "s3://"] {
            assert!(message.contains(part), "{message}");
        }
    }
}
