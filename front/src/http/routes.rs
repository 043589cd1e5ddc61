//! The one table of paths: what each does, by whose rule, what it reads and gives. The router and OpenAPI are made from it.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::from_fn;
use axum::response::{IntoResponse as _, Response};
use axum::routing::on;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use trawl_telemetry::metrics::catalogue::coordinator::{HTTP_REFUSALS, HttpRefusal};

use super::App;
use super::bodies::{ChartBody, NearBody, PanelBody, SignalsBody, StudyBody, WhyBody};
use super::handlers;
use super::operation::{Operation, Reply, Route, SchemaOf, Verb};
use super::problem::{Kind, Problem};
use super::queries::{AnswerQuery, FormatQuery, InspectQuery, ListQuery};
use super::replies;
use super::request::{ExplainBody, ScanBody, SeriesBody};

const SCAN: Option<&str> = Some("/trawl.v1.Coordinator/Scan");
const WATCH: Option<&str> = Some("/trawl.v1.Coordinator/Watch");
const CANCEL: Option<&str> = Some("/trawl.v1.Coordinator/Cancel");
const LIST: Option<&str> = Some("/trawl.v1.Coordinator/ListScans");
const GET: Option<&str> = Some("/trawl.v1.Coordinator/GetScan");
const TRACE: Option<&str> = Some("/trawl.v1.Coordinator/Trace");
const WORKERS: Option<&str> = Some("/trawl.v1.Coordinator/ListWorkers");
const COORDINATORS: Option<&str> = Some("/trawl.v1.Coordinator/ListCoordinators");
const DATASETS: Option<&str> = Some("/trawl.v1.Coordinator/ListDatasets");
const INSPECT: Option<&str> = Some("/trawl.v1.Coordinator/InspectDataset");

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

const fn get(
    operation: Operation,
    path: &'static str,
    rule: Option<&'static str>,
    summary: &'static str,
    reply: Reply,
) -> Route {
    Route { operation, method: Verb::Get, path, rule, summary, body: None, query: None, status: 200, reply }
}

const fn post(
    operation: Operation,
    path: &'static str,
    rule: Option<&'static str>,
    summary: &'static str,
    body: SchemaOf,
    reply: Reply,
) -> Route {
    Route { operation, method: Verb::Post, path, rule, summary, body: Some(body), query: None, status: 200, reply }
}

impl Route {
    const fn with_query(mut self, query: SchemaOf) -> Self {
        self.query = Some(query);
        self
    }
}

use Operation as Op;

/// Every path of the interface.
pub(crate) static ROUTES: [Route; 27] = [
    Route {
        status: 202,
        ..post(
            Op::Submit,
            "/v1/scans",
            SCAN,
            "Submit a scan; it runs on by itself",
            schema::<ScanBody>,
            Reply::Json(schema::<crate::records::ScanLine<'static>>),
        )
    },
    post(
        Op::SubmitAndWait,
        "/v1/answers",
        SCAN,
        "Submit a scan and wait for its answer",
        schema::<ScanBody>,
        Reply::Answer,
    )
    .with_query(schema::<FormatQuery>),
    get(Op::List, "/v1/scans", LIST, "List scans, newest first", Reply::Json(schema::<replies::Scans>))
        .with_query(schema::<ListQuery>),
    get(
        Op::Status,
        "/v1/scans/{scan}",
        GET,
        "Show a scan's state",
        Reply::Json(schema::<crate::records::ScanLine<'static>>),
    ),
    Route {
        method: Verb::Delete,
        ..get(
            Op::Cancel,
            "/v1/scans/{scan}",
            CANCEL,
            "Cancel a scan; one that has ended is left as it is",
            Reply::Json(schema::<crate::records::ScanLine<'static>>),
        )
    },
    get(Op::Answer, "/v1/scans/{scan}/answer", WATCH, "Give a scan's answer", Reply::Answer)
        .with_query(schema::<AnswerQuery>),
    get(Op::Events, "/v1/scans/{scan}/events", WATCH, "Follow a scan's progress", Reply::Events),
    get(
        Op::Report,
        "/v1/scans/{scan}/report",
        TRACE,
        "Give the report of a scan's run",
        Reply::Json(schema::<replies::Report>),
    ),
    post(
        Op::Explain,
        "/v1/explain",
        INSPECT,
        "Say what a scan needs, reads and costs; nothing is run",
        schema::<ExplainBody>,
        Reply::Json(schema::<replies::Explained>),
    ),
    post(
        Op::Why,
        "/v1/why",
        SCAN,
        "Say why symbols are in a scan's answer or not",
        schema::<WhyBody>,
        Reply::Json(schema::<Vec<crate::why::WhyLine<'static>>>),
    ),
    post(
        Op::Near,
        "/v1/near",
        SCAN,
        "Say which symbols fail on few terms of a condition",
        schema::<NearBody>,
        Reply::Json(schema::<Vec<crate::why::MissLine<'static>>>),
    ),
    post(
        Op::Series,
        "/v1/series",
        SCAN,
        "Give columns along the bars of a symbol",
        schema::<SeriesBody>,
        Reply::Series,
    )
    .with_query(schema::<FormatQuery>),
    post(Op::Chart, "/v1/chart", SCAN, "Draw price and expressions of a symbol", schema::<ChartBody>, Reply::Picture)
        .with_query(schema::<FormatQuery>),
    post(
        Op::Panel,
        "/v1/panel",
        SCAN,
        "Give a scan's columns over history, a row for each symbol and bar",
        schema::<PanelBody>,
        Reply::Table,
    )
    .with_query(schema::<FormatQuery>),
    post(
        Op::Signals,
        "/v1/signals",
        SCAN,
        "Say where a scan matches over history",
        schema::<SignalsBody>,
        Reply::Table,
    )
    .with_query(schema::<FormatQuery>),
    post(
        Op::Features,
        "/v1/features",
        SCAN,
        "Give windows of a scan's columns over history, with labels, for models",
        schema::<PanelBody>,
        Reply::Tensors,
    )
    .with_query(schema::<FormatQuery>),
    post(
        Op::Study,
        "/v1/study",
        SCAN,
        "Say what followed the matches of a scan, against all symbols",
        schema::<StudyBody>,
        Reply::Json(schema::<Vec<trawl_coordinator::HorizonStudy>>),
    ),
    get(
        Op::Indicators,
        "/v1/indicators",
        DATASETS,
        "List the functions of the scan language",
        Reply::Json(schema::<Vec<crate::indicators::Entry>>),
    ),
    get(
        Op::Indicator,
        "/v1/indicators/{name}",
        DATASETS,
        "Describe a function",
        Reply::Json(schema::<crate::indicators::Entry>),
    ),
    get(
        Op::Datasets,
        "/v1/datasets",
        DATASETS,
        "List datasets",
        Reply::Json(schema::<Vec<trawl_market::DatasetSummary>>),
    ),
    get(
        Op::Dataset,
        "/v1/datasets/{dataset}",
        INSPECT,
        "Show what a dataset holds",
        Reply::Json(schema::<crate::datasets::InspectionDocument<'static>>),
    )
    .with_query(schema::<InspectQuery>),
    get(
        Op::Coverage,
        "/v1/datasets/{dataset}/coverage",
        INSPECT,
        "Count the symbols and bars of each day",
        Reply::Json(schema::<replies::Coverage>),
    ),
    get(Op::Workers, "/v1/workers", WORKERS, "List workers", Reply::Json(schema::<replies::Workers>)),
    get(
        Op::Coordinators,
        "/v1/coordinators",
        COORDINATORS,
        "List coordinators",
        Reply::Json(schema::<replies::Coordinators>),
    ),
    get(Op::Version, "/v1/version", None, "Say what answers here", Reply::Json(schema::<replies::Version>)),
    get(Op::OpenApi, "/openapi.json", None, "Give this description", Reply::Json(schema::<replies::Object>)),
    get(Op::Health, "/healthz", None, "Say whether the server answers", Reply::Text),
];

/// The router over all routes; whatever else is asked for is refused as JSON.
pub(crate) fn router(app: &Arc<App>) -> Router {
    let mut router = Router::new();
    for route in &ROUTES {
        let app = Arc::clone(app);
        let handler = move |request: Request| {
            let app = Arc::clone(&app);
            async move { handlers::answered(&app, route, request).await }
        };
        router = router.route(route.path, on(route.method.filter(), handler));
    }
    router.merge(page()).fallback(not_found).method_not_allowed_fallback(not_allowed)
}

/// The files of the page.
fn page() -> Router {
    crate::page::mounted(Router::new()).route_layer(from_fn(handlers::of_page))
}

async fn not_found(request: Request) -> Response {
    handlers::refused(&request, || {
        HTTP_REFUSALS.of(HttpRefusal::Path).inc();
        Problem::new(Kind::NotFound, "there is no such path").help("GET /openapi.json lists those that there are")
    })
    .into_response()
}

async fn not_allowed(request: Request) -> Response {
    handlers::refused(&request, || {
        HTTP_REFUSALS.of(HttpRefusal::Path).inc();
        Problem::new(Kind::Invalid, "this path does not take this method")
            .with_status(axum::http::StatusCode::METHOD_NOT_ALLOWED)
            .help("GET /openapi.json lists the methods of each path")
    })
    .into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::header;
    use tonic::codegen::Service as _;
    use trawl_security::{Peer, PeerIdentity};

    use super::*;

    #[tokio::test]
    async fn the_page_is_not_given_under_a_foreign_name_and_may_be_linked_to() {
        let mut page = page();
        let mut status = async |host: &str, site: &str| {
            let request = axum::http::Request::get("/app.js").header(header::HOST, host).header("sec-fetch-site", site);
            let mut request = request.body(Body::empty()).unwrap();
            let address = "127.0.0.1:5".parse().unwrap();
            request.extensions_mut().insert(Peer { address, identity: PeerIdentity::PlainText });
            page.call(request).await.unwrap().status().as_u16()
        };
        assert_eq!(status("127.0.0.1:7410", "none").await, 200);
        assert_eq!(status("localhost:7410", "cross-site").await, 200, "a link of another site");
        assert_eq!(status("evil.example:7410", "none").await, 403);
        assert_eq!(status("127.0.0.1:7410.evil.example", "none").await, 403);
    }
}
