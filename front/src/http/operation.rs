//! What a path does, reads and gives.

use axum::routing::MethodFilter;
use schemars::{Schema, SchemaGenerator};

/// What a path does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Submit,
    SubmitAndWait,
    List,
    Status,
    Cancel,
    Answer,
    Events,
    Report,
    Explain,
    Why,
    Near,
    Series,
    Chart,
    Panel,
    Signals,
    Features,
    Study,
    Indicators,
    Indicator,
    Datasets,
    Dataset,
    Coverage,
    Workers,
    Coordinators,
    Version,
    OpenApi,
    Health,
}

impl Operation {
    /// Whether a coordinator's door answers it from its own data root, without a call of the coordinator's service.
    pub fn is_answered_at_the_door(self) -> bool {
        match self {
            Self::Submit
            | Self::SubmitAndWait
            | Self::List
            | Self::Status
            | Self::Cancel
            | Self::Answer
            | Self::Events
            | Self::Report
            | Self::Workers
            | Self::Coordinators => false,
            Self::Explain
            | Self::Why
            | Self::Near
            | Self::Series
            | Self::Chart
            | Self::Panel
            | Self::Signals
            | Self::Features
            | Self::Study
            | Self::Indicators
            | Self::Indicator
            | Self::Datasets
            | Self::Dataset
            | Self::Coverage
            | Self::Version
            | Self::OpenApi
            | Self::Health => true,
        }
    }
}

/// Makes the schema of a type.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// What a successful reply contains.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reply {
    /// JSON of this schema.
    Json(SchemaOf),
    /// An answer, in any of its formats.
    Answer,
    /// Series, in any of their formats.
    Series,
    /// A table, in any of the formats of tables.
    Table,
    /// Windows of features as a table.
    Tensors,
    /// A picture.
    Picture,
    /// Server-sent events.
    Events,
    /// A word.
    Text,
}

/// A method of HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Post,
    Delete,
}

impl Verb {
    /// In lower case, as OpenAPI names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
            Self::Delete => "delete",
        }
    }

    /// For the router.
    pub fn filter(self) -> MethodFilter {
        match self {
            Self::Get => MethodFilter::GET,
            Self::Post => MethodFilter::POST,
            Self::Delete => MethodFilter::DELETE,
        }
    }
}

/// One path and method.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Route {
    pub operation: Operation,
    pub method: Verb,
    pub path: &'static str,
    /// The RPC whose rule of access it has; `None` for what everybody may read.
    pub rule: Option<&'static str>,
    pub summary: &'static str,
    pub body: Option<SchemaOf>,
    pub query: Option<SchemaOf>,
    pub status: u16,
    pub reply: Reply,
}
