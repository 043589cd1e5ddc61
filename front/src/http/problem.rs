//! Every error of the interface, as one JSON object.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use tonic::{Code, Status};
use trawl_coordinator::local::LocalError;
use trawl_coordinator::server::in_process::CallError;
use trawl_market::{MarketError, MarketErrorKind};
use trawl_plan::Diagnostic;
use trawl_security::RETRY_AFTER_METADATA_KEY;
use trawl_wire::{ErrorKind, Failure};

use crate::mistake::{UserMistake, chain_text, drawn};

/// Seconds after which a request that found a server without a leader, or busy, may succeed.
const RETRY_AFTER_S: u64 = 1;

/// What went wrong, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The request, or the scan in it, is wrong; the same request fails again.
    Invalid,
    /// No token or certificate, or one that is not known.
    Unauthenticated,
    /// The caller may not do this.
    Denied,
    /// There is no such path, scan, dataset or function.
    NotFound,
    /// The scan's state, or an idempotency key that was used for another request.
    Conflict,
    /// More bytes or work than this server takes in one request.
    TooLarge,
    /// A limit of this server or of the caller: the same request may succeed later.
    TooMany,
    /// The server cannot answer at present: the same request may succeed later.
    Unavailable,
    /// The scan was cancelled.
    Cancelled,
    /// The scan's deadline has passed.
    DeadlineExceeded,
    /// An error that only the operator can correct.
    Internal,
}

impl Kind {
    fn status(self) -> StatusCode {
        match self {
            Self::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Denied => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Conflict | Self::Cancelled => StatusCode::CONFLICT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooMany => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// A mistake with its place in a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Mistake {
    /// What is wrong.
    pub message: String,
    /// Which clause the text is: `where`, `select[2]`, `document`.
    pub source: String,
    /// The whole text.
    pub text: String,
    /// First character of the place, counted from 0 in characters of the text.
    pub start: usize,
    /// The character behind the place.
    pub end: usize,
    /// What was expected there, or what is there.
    pub expected: String,
    /// What to do.
    pub help: Option<String>,
}

impl Mistake {
    fn of(diagnostic: &Diagnostic) -> Self {
        let characters = |bytes: usize| diagnostic.text.get(..bytes).map_or(0, |text| text.chars().count());
        Self {
            message: diagnostic.message.clone(),
            source: diagnostic.clause.clone(),
            start: characters(diagnostic.span.start),
            end: characters(diagnostic.span.end),
            text: diagnostic.text.clone(),
            expected: diagnostic.label.clone(),
            help: diagnostic.help.clone(),
        }
    }
}

/// An error of a request.
#[derive(Debug, Clone)]
pub struct Problem {
    /// The status of the reply.
    pub status: StatusCode,
    /// What the body says.
    pub error: ErrorObject,
}

/// An error as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ErrorObject {
    /// What went wrong, for programs.
    pub kind: Kind,
    /// What went wrong, in one sentence.
    pub message: String,
    /// What to do.
    pub help: Option<String>,
    /// Mistakes in the texts of a scan, each with its place.
    pub mistakes: Vec<Mistake>,
    /// Seconds after which the same request may succeed.
    pub retry_after_s: Option<u64>,
}

/// The body of every reply that is no success.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorObject,
}

impl Problem {
    /// An error with the status of its kind.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        let retry_after_s = matches!(kind, Kind::TooMany | Kind::Unavailable).then_some(RETRY_AFTER_S);
        let error = ErrorObject { kind, message: message.into(), help: None, mistakes: Vec::new(), retry_after_s };
        Self { status: kind.status(), error }
    }

    /// The same with a line of advice.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.error.help = Some(help.into());
        self
    }

    /// The same with another status.
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// A body, a query or a header that cannot be read.
    pub fn malformed(message: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, message).with_status(StatusCode::BAD_REQUEST)
    }

    /// A user's mistake.
    pub fn of_mistake(mistake: &UserMistake) -> Self {
        match mistake {
            UserMistake::Plain { message, help } => {
                let problem = Self::new(Kind::Invalid, message.clone());
                Self { error: ErrorObject { help: help.clone(), ..problem.error }, ..problem }
            }
            UserMistake::Drawn(diagnostics) => {
                let mut problem = Self::new(Kind::Invalid, mistake.to_string());
                problem.error.help = diagnostics.first().and_then(|first| first.help.clone());
                problem.error.mistakes = diagnostics.iter().map(Mistake::of).collect();
                problem
            }
        }
    }

    /// The failure with which a scan ended.
    pub fn of_failure(failure: &Failure) -> Self {
        let kind = match failure.kind {
            ErrorKind::Invalid => Kind::Invalid,
            ErrorKind::Retryable => Kind::Unavailable,
            ErrorKind::Cancelled => Kind::Cancelled,
            ErrorKind::DeadlineExceeded => Kind::DeadlineExceeded,
            ErrorKind::Permanent | ErrorKind::Poisoned | ErrorKind::OutOfMemory | ErrorKind::Damaged => Kind::Internal,
        };
        Self::new(kind, failure.message.clone())
    }

    /// The status of a call of gRPC.
    pub fn of_status(status: &Status) -> Self {
        let failure = Failure::from_status(status);
        let invalid = failure.as_ref().is_some_and(|failure| failure.kind == ErrorKind::Invalid);
        let kind = match status.code() {
            Code::InvalidArgument | Code::OutOfRange => Kind::Invalid,
            Code::NotFound => Kind::NotFound,
            Code::AlreadyExists => Kind::Conflict,
            Code::PermissionDenied => Kind::Denied,
            Code::Unauthenticated => Kind::Unauthenticated,
            Code::ResourceExhausted if invalid => Kind::TooLarge,
            Code::ResourceExhausted => Kind::TooMany,
            Code::FailedPrecondition if invalid => Kind::Conflict,
            Code::Unavailable | Code::Aborted => Kind::Unavailable,
            Code::DeadlineExceeded => Kind::DeadlineExceeded,
            Code::Cancelled => Kind::Cancelled,
            _ => Kind::Internal,
        };
        let mut problem = Self::new(kind, status.message());
        let after = status.metadata().get(RETRY_AFTER_METADATA_KEY).and_then(|value| value.to_str().ok()?.parse().ok());
        problem.error.retry_after_s = after.or(problem.error.retry_after_s);
        problem
    }

    /// Whatever stopped a run in this process.
    pub fn of_error(error: &anyhow::Error) -> Self {
        for cause in error.chain() {
            if let Some(mistake) = cause.downcast_ref::<UserMistake>() {
                let mut problem = Self::of_mistake(mistake);
                if problem.error.mistakes.is_empty() {
                    problem.error.message = chain_text(error);
                }
                return problem;
            }
            let kind = match cause.downcast_ref::<LocalError>() {
                Some(LocalError::DeadlineExceeded(_)) => Some(Kind::DeadlineExceeded),
                Some(LocalError::Cancelled) => Some(Kind::Cancelled),
                Some(LocalError::DevicesLost(_)) => Some(Kind::Unavailable),
                Some(LocalError::Incomplete(failure)) => return Self::of_failure(failure),
                Some(_) => Some(Kind::Internal),
                None => cause.downcast_ref::<MarketError>().map(|error| match error.kind() {
                    MarketErrorKind::Invalid => Kind::Invalid,
                    MarketErrorKind::Permanent => Kind::Internal,
                    MarketErrorKind::Retryable => Kind::Unavailable,
                }),
            };
            if let Some(kind) = kind {
                return Self::new(kind, chain_text(error));
            }
        }
        Self::new(Kind::Internal, chain_text(error))
    }
}

impl From<CallError> for Problem {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Status(status) => Self::of_status(&status),
            CallError::Refused(failure) => Self::of_failure(&failure),
            CallError::Mistakes(mistakes) => Self::of_mistake(&drawn(mistakes)),
            CallError::Protocol(what) => Self::new(Kind::Internal, format!("no answer was made of the scan: {what}")),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (status, retry_after) = (self.status, self.error.retry_after_s);
        let body = serde_json::to_vec(&ErrorBody { error: self.error }).unwrap_or_default();
        let mut reply = Response::new(Body::from(body));
        *reply.status_mut() = status;
        let headers = reply.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trawl_wire::error::status_of;

    #[test]
    fn every_status_of_grpc_has_its_status_of_http() {
        let of = |code, kind| {
            let problem = Problem::of_status(&status_of(code, kind, "why"));
            assert_eq!(problem.error.message, "why");
            (problem.status.as_u16(), problem.error.kind)
        };
        use ErrorKind::{Invalid, Permanent, Retryable};
        for (code, kind, wanted) in [
            (Code::InvalidArgument, Invalid, (422, Kind::Invalid)),
            (Code::NotFound, Invalid, (404, Kind::NotFound)),
            (Code::AlreadyExists, Invalid, (409, Kind::Conflict)),
            (Code::PermissionDenied, Invalid, (403, Kind::Denied)),
            (Code::Unauthenticated, Invalid, (401, Kind::Unauthenticated)),
            (Code::ResourceExhausted, Invalid, (413, Kind::TooLarge)),
            (Code::ResourceExhausted, Retryable, (429, Kind::TooMany)),
            (Code::Unavailable, Retryable, (503, Kind::Unavailable)),
            (Code::DeadlineExceeded, Retryable, (504, Kind::DeadlineExceeded)),
            (Code::DataLoss, Permanent, (500, Kind::Internal)),
        ] {
            assert_eq!(of(code, kind), wanted, "{code:?}");
        }
    }

    #[test]
    fn a_limit_says_when_to_come_again() {
        let mut status = status_of(Code::ResourceExhausted, ErrorKind::Retryable, "full");
        status.metadata_mut().insert(RETRY_AFTER_METADATA_KEY, 7.into());
        let reply = Problem::of_status(&status).into_response();
        assert_eq!(reply.headers()[header::RETRY_AFTER], "7");
    }

    #[test]
    fn places_are_counted_in_characters() {
        let diagnostic = Diagnostic {
            message: "unknown".to_owned(),
            clause: "where".to_owned(),
            text: "é + clse".to_owned(),
            span: 5..9,
            label: "here".to_owned(),
            help: Some("did you mean 'close'?".to_owned()),
        };
        let problem = Problem::of_mistake(&UserMistake::Drawn(vec![diagnostic]));
        let mistake = &problem.error.mistakes[0];
        assert_eq!((mistake.start, mistake.end), (4, 8));
        assert_eq!(problem.status.as_u16(), 422);
    }

    #[test]
    fn each_cause_of_a_stopped_run_has_its_kind() {
        let kind = |error: anyhow::Error| Problem::of_error(&error).error.kind;
        assert_eq!(kind(LocalError::Cancelled.into()), Kind::Cancelled);
        assert_eq!(kind(UserMistake::plain("no").into()), Kind::Invalid);
        assert_eq!(kind(anyhow::anyhow!("disk")), Kind::Internal);
        let retryable = LocalError::Incomplete(Failure::new(ErrorKind::Retryable, "later"));
        assert_eq!(kind(anyhow::Error::from(retryable).context("while it ran")), Kind::Unavailable);
    }
}
