//! What each path does: the checks before it, in order, and the call of the door.

use std::sync::Arc;
use std::time::Duration;

use axum::RequestExt as _;
use axum::body::Body;
use axum::extract::{RawPathParams, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;
use trawl_coordinator::RunReport;
use trawl_coordinator::profile::Profile;
use trawl_security::{Peer, PeerIdentity, Subject};
use trawl_telemetry::AUDIT_TARGET;
use trawl_telemetry::metrics::catalogue::coordinator::{HTTP_REFUSALS, HTTP_REQUESTS, HttpRefusal};
use trawl_wire::pb;

use super::answer::{self, Encoding, TURN_WAIT};
use super::bodies::{AboutWhat, ChartBody, NearBody, PanelBody, SignalsBody, StudyBody, WhyBody};
use super::door::{Call, MODE_EMBEDDED, has_ended, until_ended};
use super::history::Table;
use super::negotiation::{Offered as _, chosen};
use super::operation::{Operation, Route};
use super::picture::Picture;
use super::problem::{Kind, Problem};
use super::queries::{AnswerQuery, FormatQuery, InspectQuery, ListQuery, NoQuery, WAIT_S_MAX};
use super::read;
use super::refusals;
use super::replies::{Coordinators, Coverage, Explained, Scans, Version, Workers};
use super::request;
use super::until_true;
use super::{API_VERSION, App, events, guard};
use crate::datasets::InspectionDocument;
use crate::indicators;
use crate::records::{CoordinatorLine, ScanLine, WorkerLine, state_name};

/// Longest name in a path.
const NAME_BYTES_MAX: usize = 256;
/// How long a request for a stream of events waits while there are too many.
const STREAM_WAIT: Duration = Duration::from_millis(100);
/// Longest wait of `POST /v1/answers` for a scan without a deadline.
const SUBMITTED_WAIT: Duration = Duration::from_secs(24 * 3600);

/// The other end of a request's connection.
fn peer_of(request: &Request) -> Peer {
    // Set by the listener; without it nobody is known.
    request.extensions().get::<Peer>().cloned().unwrap_or_else(|| Peer {
        address: ([0, 0, 0, 0], 0).into(),
        identity: PeerIdentity::Certificate(Err("the connection is not known".to_owned())),
    })
}

/// The refusal of a request without a route, if it is not refused before for where it comes from. It is logged.
pub(crate) fn refused(request: &Request, otherwise: impl FnOnce() -> Problem) -> Problem {
    HTTP_REQUESTS.inc();
    let peer = peer_of(request);
    let problem = match guard::check(&peer, request.uri(), request.headers()) {
        Ok(()) => otherwise(),
        Err(problem) => problem,
    };
    refusals::log(peer.address, request.uri().path(), None, &problem);
    problem
}

/// Passes a request for a file of the page on, unless a foreign name was made to lead here. Links of other sites may lead to the page: it
/// has no data, and what its scripts ask for is checked for itself.
pub(crate) async fn of_page(request: Request, next: Next) -> Response {
    HTTP_REQUESTS.inc();
    let peer = peer_of(&request);
    match guard::check_host(&peer, request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => {
            refusals::log(peer.address, request.uri().path(), None, &problem);
            problem.into_response()
        }
    }
}

/// Answers a request of a route. Each is in the audit log: refused before its caller was known and allowed to make it, done, or failed.
pub(crate) async fn answered(app: &Arc<App>, route: &'static Route, mut request: Request) -> Response {
    HTTP_REQUESTS.inc();
    let (peer, action) = (peer_of(&request).address, route.path);
    let call = match admitted(app, route, &mut request) {
        Ok(call) => call,
        Err(problem) => return problem.into_response(),
    };
    let Some(call) = call else {
        let refused = |problem: Problem| {
            refusals::log(peer, action, None, &problem);
            problem.into_response()
        };
        return open(app, route, &request).unwrap_or_else(refused);
    };
    let caller = call.caller.name.clone();
    let outcome = of_caller(app, route, call, request).await;
    // What a coordinator's own service is asked is in the log by its guard.
    let is_logged_here = app.door.mode() == MODE_EMBEDDED || route.operation.is_answered_at_the_door();
    match outcome {
        Ok(reply) => {
            let subject = reply.extensions().get::<Subject>().map(|subject| subject.0.as_str());
            if is_logged_here
                && matches!(route.operation, Operation::Submit | Operation::SubmitAndWait | Operation::Cancel)
            {
                tracing::info!(target: AUDIT_TARGET, caller, action, subject, %peer, outcome = "done", "request");
            } else if is_logged_here {
                tracing::debug!(target: AUDIT_TARGET, caller, action, subject, %peer, outcome = "done", "request");
            }
            reply
        }
        Err(problem) => {
            let (status, why) = (problem.status.as_u16(), &problem.error.message);
            if problem.error.kind == Kind::Internal {
                tracing::error!(action, why, "a request of HTTP failed");
            }
            if refusals::is_refusal(&problem) {
                refusals::log(peer, action, Some(&caller), &problem);
            } else {
                tracing::info!(target: AUDIT_TARGET, caller, action, %peer, outcome = "failed", status, why, "request");
            }
            problem.into_response()
        }
    }
}

/// Who makes a request, if that matters, and may make it. Decided before the body is read: a stranger costs no more than a head. A refusal
/// is logged.
fn admitted(app: &App, route: &Route, request: &mut Request) -> Result<Option<Call>, Problem> {
    let peer = peer_of(request);
    let action = route.path;
    guard::check(&peer, request.uri(), request.headers())
        .inspect_err(|problem| refusals::log(peer.address, action, None, problem))?;
    let Some(rule) = route.rule else { return Ok(None) };
    let caller = app.access.admit(rule, request.headers(), &peer).map_err(|status| {
        let problem = Problem::of_status(&status);
        refusals::log_ruled(peer.address, action, &problem);
        problem
    })?;
    // A removed header cannot be logged.
    let authorization = request.headers_mut().remove(header::AUTHORIZATION);
    Ok(Some(Call { caller, peer, authorization }))
}

/// The reply to a caller that may make the request.
async fn of_caller(app: &Arc<App>, route: &Route, call: Call, mut request: Request) -> Result<Response, Problem> {
    let names = request.extract_parts::<RawPathParams>().await;
    let names = names.map_err(|_| malformed("the path is not UTF-8 text"))?;
    let name = names.iter().next().map(|(_, name)| name.to_owned()).unwrap_or_default();
    let illegal = |c: char| c.is_control() || c == '/' || c == '\\';
    if name.len() > NAME_BYTES_MAX || name.contains(illegal) || name == "." || name == ".." {
        return Err(malformed("the name in the path is empty, too long, or has characters that no name has"));
    }
    let (parts, body) = request.into_parts();
    let asked = Asked { app, call, name: &name, query: parts.uri.query(), headers: &parts.headers };
    let reply = asked.answered(route, body).await?;
    Ok(if name.is_empty() { reply } else { about(reply, name) })
}

/// A reply with what it is about, for the audit log.
fn about(mut reply: Response, subject: impl Into<String>) -> Response {
    reply.extensions_mut().insert(Subject(subject.into()));
    reply
}

fn malformed(why: &str) -> Problem {
    HTTP_REFUSALS.of(HttpRefusal::Malformed).inc();
    Problem::malformed(why)
}

/// What everybody may read.
fn open(app: &App, route: &Route, request: &Request) -> Result<Response, Problem> {
    read::query::<NoQuery>(request.uri().query())?;
    match route.operation {
        Operation::Version => json(&Version {
            version: env!("CARGO_PKG_VERSION"),
            numerics: trawl_worker::execution_class().numerics,
            api: API_VERSION,
            mode: app.door.mode(),
        }),
        Operation::OpenApi => Ok(of_bytes(app.openapi.clone().into())),
        _ => Ok("ok\n".into_response()),
    }
}

fn of_bytes(bytes: Body) -> Response {
    let mut reply = Response::new(bytes);
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

fn json(value: &impl Serialize) -> Result<Response, Problem> {
    let bytes = serde_json::to_vec(value).map_err(|error| Problem::of_error(&error.into()))?;
    Ok(of_bytes(bytes.into()))
}

/// The reply with a picture. One that a browser shows by itself runs nothing and loads nothing.
fn of_picture(picture: Picture) -> Response {
    let mut reply = Response::new(Body::from(picture.bytes));
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(picture.format.media_type()));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox"));
    if let Some(warnings) = picture.warnings.and_then(|text| HeaderValue::from_str(&text).ok()) {
        headers.insert("trawl-warnings", warnings);
    }
    reply
}

/// A report with its profile, which says what was late and why, as `trawl scans trace --json` prints it.
fn with_profile(mut report: serde_json::Value) -> serde_json::Value {
    // That of another release may lack a field: then there is no profile.
    if let Ok(read) = serde_json::from_value::<RunReport>(report.clone())
        && let Ok(profile) = serde_json::to_value(Profile::of(&read))
    {
        report["profile"] = profile;
    }
    report
}

/// The reply to a submission.
fn accepted(info: &pb::ScanInfo) -> Result<Response, Problem> {
    let mut reply = json(&ScanLine::of(info))?;
    *reply.status_mut() = StatusCode::ACCEPTED;
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/scans/{}", info.scan_id)) {
        reply.headers_mut().insert(header::LOCATION, location);
    }
    Ok(about(reply, &info.scan_id))
}

/// That a scan has ended and was not cancelled.
fn check_has_answer(info: &pb::ScanInfo) -> Result<(), Problem> {
    let scan = &info.scan_id;
    if !has_ended(info) {
        let message = format!("scan {scan} is {} and has no answer yet", state_name(info.state()));
        let help = "ask again, with ?wait_s=60 or after the event 'ended' of GET /v1/scans/ID/events";
        return Err(Problem::new(Kind::Conflict, message).help(help));
    }
    if info.state() == pb::ScanState::Cancelled {
        return Err(Problem::new(Kind::Cancelled, format!("scan {scan} was cancelled")));
    }
    Ok(())
}

/// A request whose caller is known.
struct Asked<'a> {
    app: &'a Arc<App>,
    call: Call,
    /// The name in the path, if it has one.
    name: &'a str,
    query: Option<&'a str>,
    headers: &'a HeaderMap,
}

impl Asked<'_> {
    async fn answered(&self, route: &Route, body: Body) -> Result<Response, Problem> {
        let operation = route.operation;
        let of_body = match route.body {
            Some(_) => Some(answer::turn(&self.app.bodies, TURN_WAIT).await?),
            None => None,
        };
        let (door, call, name, headers) = (&self.app.door, &self.call, self.name, self.headers);
        let no_query = || read::query::<NoQuery>(self.query);
        match operation {
            Operation::Submit => {
                no_query()?;
                let submission = read::body::<request::ScanBody>(headers, body).await?.submission(headers)?;
                if submission.ephemeral {
                    let problem = Problem::new(Kind::Invalid, "an ephemeral scan ends with its request");
                    return Err(problem.help("send it to POST /v1/answers, or leave out 'ephemeral'"));
                }
                accepted(&door.submit(call, submission).await?)
            }
            Operation::SubmitAndWait => self.submitted_and_waited_for(body, of_body).await,
            Operation::List => {
                let wanted = read::query::<ListQuery>(self.query)?.wanted()?;
                let scans = door.list(call, wanted).await?;
                json(&Scans { scans: scans.iter().map(ScanLine::of).collect() })
            }
            Operation::Status => {
                no_query()?;
                json(&ScanLine::of(&door.status(call, name).await?))
            }
            Operation::Cancel => {
                no_query()?;
                json(&ScanLine::of(&door.cancel(call, name).await?))
            }
            Operation::Answer => {
                let AnswerQuery { format, wait_s } = read::query(self.query)?;
                let encoding = Encoding::of(format.as_deref(), headers)?;
                if wait_s.is_some_and(|seconds| seconds > WAIT_S_MAX) {
                    let message = format!("wait_s: at most {WAIT_S_MAX} seconds are waited");
                    return Err(Problem::new(Kind::Invalid, message));
                }
                self.answer(name, Duration::from_secs(wait_s.unwrap_or(0).into()), encoding).await
            }
            Operation::Events => {
                no_query()?;
                let permit = answer::turn(&self.app.streams, STREAM_WAIT).await?;
                let watched = door.watch(call, name).await?;
                Ok(events::reply(watched, self.app.stopping.clone(), permit))
            }
            Operation::Report => {
                no_query()?;
                json(&with_profile(door.report(call, name).await?))
            }
            Operation::Explain => {
                no_query()?;
                let asked = read::body::<request::ExplainBody>(headers, body).await?.asked()?;
                let dataset = asked.document.dataset.clone().unwrap_or_default();
                let (explanation, plan_steps) = door.questions().explain(&call.caller, asked).await?;
                Ok(about(json(&Explained { explanation, plan_steps })?, dataset))
            }
            Operation::Why => {
                no_query()?;
                let (about_what, symbols) = read::body::<WhyBody>(headers, body).await?.asked()?;
                let asked = self.asked_of(about_what).await?;
                let dataset = asked.document.dataset.clone().unwrap_or_default();
                Ok(about(json(&door.questions().why(&call.caller, asked, symbols).await?)?, dataset))
            }
            Operation::Near => {
                no_query()?;
                let (about_what, most) = read::body::<NearBody>(headers, body).await?.asked()?;
                let asked = self.asked_of(about_what).await?;
                let dataset = asked.document.dataset.clone().unwrap_or_default();
                Ok(about(of_bytes(door.questions().near(&call.caller, asked, most).await?.into()), dataset))
            }
            Operation::Series => {
                let FormatQuery { format } = read::query(self.query)?;
                let encoding = Encoding::of(format.as_deref(), headers)?;
                let question = read::body::<request::SeriesBody>(headers, body).await?.question()?;
                let _permit = answer::turn(&self.app.answers, TURN_WAIT).await?;
                let dataset = question.dataset.clone();
                Ok(about(answer::series(&door.questions().series(&call.caller, question).await?, encoding)?, dataset))
            }
            Operation::Chart => {
                let FormatQuery { format } = read::query(self.query)?;
                let question = read::body::<ChartBody>(headers, body).await?.question(format.as_deref(), headers)?;
                let dataset = question.wanted.dataset.clone();
                Ok(about(of_picture(door.questions().chart(&call.caller, question).await?), dataset))
            }
            Operation::Panel | Operation::Features | Operation::Signals => self.table(operation, body, of_body).await,
            Operation::Study => {
                no_query()?;
                let (asked, wanted) = read::body::<StudyBody>(headers, body).await?.question()?;
                let dataset = asked.document.dataset.clone().unwrap_or_default();
                Ok(about(json(&door.questions().study(&call.caller, asked, wanted).await?)?, dataset))
            }
            Operation::Indicators => {
                no_query()?;
                json(&indicators::all())
            }
            Operation::Indicator => {
                no_query()?;
                let found = indicators::find(name).map_err(|mistake| {
                    let problem = Problem::of_mistake(&mistake);
                    let help = problem.error.help.unwrap_or_default();
                    Problem::new(Kind::NotFound, problem.error.message).help(help)
                })?;
                json(&found.entry())
            }
            Operation::Datasets => {
                no_query()?;
                json(&door.datasets(call).await?)
            }
            Operation::Dataset => {
                let InspectQuery { symbol, all } = read::query(self.query)?;
                let (found, symbols) = door.inspect(call, name, symbol).await?;
                json(&InspectionDocument { found: &found, entries: all.then_some(&symbols) })
            }
            Operation::Coverage => {
                no_query()?;
                json(&Coverage { days: door.questions().coverage(&call.caller, name.to_owned()).await? })
            }
            Operation::Workers => {
                no_query()?;
                let workers = door.workers(call).await?;
                json(&Workers { workers: workers.iter().map(WorkerLine::of).collect() })
            }
            Operation::Coordinators => {
                no_query()?;
                let coordinators = door.coordinators(call).await?;
                json(&Coordinators { coordinators: coordinators.iter().map(CoordinatorLine::of).collect() })
            }
            // Answered before the caller is known.
            Operation::Version | Operation::OpenApi | Operation::Health => Err(malformed("this path has no caller")),
        }
    }

    /// The scan that a question is about: as it is described, or that of an answer.
    async fn asked_of(&self, what: AboutWhat) -> Result<super::asked::Asked, Problem> {
        let scan = match what {
            AboutWhat::Scan(asked) => return Ok(*asked),
            AboutWhat::Answer(scan) => scan,
        };
        let door = &self.app.door;
        check_has_answer(&door.status(&self.call, &scan).await?)?;
        let _permit = answer::turn(&self.app.answers, TURN_WAIT).await?;
        super::asked::Asked::of_answer(&*door.answer(&self.call, &scan).await?)
    }

    /// A table over history.
    async fn table(
        &self,
        operation: Operation,
        body: Body,
        of_body: Option<OwnedSemaphorePermit>,
    ) -> Result<Response, Problem> {
        let (headers, FormatQuery { format }) = (self.headers, read::query(self.query)?);
        let tables = || chosen(&Encoding::TABLES, format.as_deref(), headers);
        let (encoding, table) = match operation {
            Operation::Features => (chosen(&Encoding::TENSORS, format.as_deref(), headers)?, Table::Tensors),
            _ => (tables()?, Table::Panel),
        };
        let question = match operation {
            Operation::Signals => read::body::<SignalsBody>(headers, body).await?.question(encoding)?,
            _ => read::body::<PanelBody>(headers, body).await?.question(table, encoding)?,
        };
        drop(of_body);
        let dataset = question.asked.document.dataset.clone().unwrap_or_default();
        let made = self.app.door.questions().history(&self.call.caller, question).await?;
        let described = made.headers.clone();
        let mut reply = Response::new(Body::from_stream(made.bytes()));
        reply.headers_mut().extend(described);
        reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(encoding.media_type()));
        Ok(about(reply, dataset))
    }

    /// `POST /v1/answers`.
    async fn submitted_and_waited_for(
        &self,
        body: Body,
        of_body: Option<OwnedSemaphorePermit>,
    ) -> Result<Response, Problem> {
        let FormatQuery { format } = read::query(self.query)?;
        let encoding = Encoding::of(format.as_deref(), self.headers)?;
        let submission = read::body::<request::ScanBody>(self.headers, body).await?.submission(self.headers)?;
        if submission.ephemeral && submission.idempotency_key.is_some() {
            let problem = Problem::new(Kind::Invalid, "an ephemeral scan has no idempotency key");
            return Err(problem.help("leave out one of them: an ephemeral scan ends with its request"));
        }
        if submission.ephemeral {
            let scanned = {
                let _waiting = answer::turn(&self.app.waiting, STREAM_WAIT).await?;
                self.app.door.run_ephemeral(&self.call, submission).await?
            };
            let permit = answer::turn(&self.app.answers, TURN_WAIT).await?;
            return Ok(answer::reply(Arc::new(scanned), encoding, permit));
        }
        let info = self.app.door.submit(&self.call, submission).await?;
        drop(of_body);
        Ok(about(self.answer(&info.scan_id, SUBMITTED_WAIT, encoding).await?, &info.scan_id))
    }

    /// The answer of a scan, if it ends within `wait`.
    async fn answer(&self, scan: &str, wait: Duration, encoding: Encoding) -> Result<Response, Problem> {
        let door = &self.app.door;
        let mut info = door.status(&self.call, scan).await?;
        if !has_ended(&info) && !wait.is_zero() {
            let _waiting = answer::turn(&self.app.waiting, STREAM_WAIT).await?;
            let watched = door.watch(&self.call, scan).await?;
            let mut stopping = self.app.stopping.clone();
            let ended = tokio::select! {
                biased;
                ended = until_ended(watched, wait) => ended,
                () = until_true(&mut stopping) => None,
            };
            info = ended.unwrap_or(info);
        }
        if !has_ended(&info) && *self.app.stopping.borrow() {
            let problem = Problem::new(Kind::Unavailable, "this server is ending before the scan has");
            return Err(problem.help(format!("ask again, or another server, for scan {scan}")));
        }
        check_has_answer(&info)?;
        let permit = answer::turn(&self.app.answers, TURN_WAIT).await?;
        let answered = door.answer(&self.call, scan).await?;
        Ok(answer::reply(answered, encoding, permit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_its_profile() {
        let report = with_profile(serde_json::to_value(RunReport::default()).unwrap());
        assert_eq!(report["profile"]["shards"], serde_json::json!([]));
        let other = serde_json::json!({ "of": "another release" });
        assert_eq!(with_profile(other.clone()), other);
    }
}
