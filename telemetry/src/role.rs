//! What kind of process this is.

/// What the process is; decides the service name of its spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A command run by a person.
    Command,
    /// `trawl coordinator`.
    Coordinator,
    /// `trawl worker`.
    Worker,
}
