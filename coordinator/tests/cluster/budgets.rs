//! What does not fit into memory is kept on disk, what fits nowhere is refused, and no answer depends on it.

use std::time::Duration;

use trawl_coordinator::client::{ClientError, ScanCall, scan};
use trawl_coordinator::server::{ScanLimits, ServerError};
use trawl_coordinator::{NoProgress, ShardSpec, answer_digest};
use trawl_plan::ScanDocument;
use trawl_wire::limits::{PROTOCOL_VERSION, SEGMENTS_MAX};
use trawl_wire::{ErrorKind, pb};

use crate::world::{BOUND, World};

/// A scan whose segments are large enough for the spool.
fn wide() -> ScanDocument {
    ScanDocument {
        condition: "close > 0".to_owned(),
        select: (1..40).map(|n| format!("close * {n} as c{n}")).collect(),
        ..World::document()
    }
}

async fn submit(world: &World, document: ScanDocument, ephemeral: bool) -> Result<String, ClientError> {
    let call = ScanCall { document, ephemeral, fresh: true, shards: ShardSpec::PerSegment, ..ScanCall::default() };
    let scanned = tokio::time::timeout(BOUND, scan(&world.url, &call, &NoProgress)).await.expect("it ends in time")?;
    Ok(answer_digest(&scanned.answer))
}

/// A coordinator that keeps no results in memory, and `spool` bytes on disk.
async fn small(spool: u64) -> World {
    let mut world = World::with(|options| {
        options.scans = ScanLimits { results_memory_bytes: 0, ..ScanLimits::default() };
        options.spool.1 = spool;
    })
    .await;
    world.real_worker("w").await;
    world.wait_for(&["w"]).await;
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_the_same_if_no_result_fits_into_memory() {
    let mut roomy = World::new().await;
    roomy.real_worker("w").await;
    roomy.wait_for(&["w"]).await;
    let cross = ScanDocument { condition: "xs_pct(roc(close, 5)) > 0.5".to_owned(), ..wide() };
    let world = small(1 << 30).await;
    for document in [wide(), cross, World::document()] {
        let expected = submit(&roomy, document.clone(), false).await.unwrap();
        for ephemeral in [false, true] {
            assert_eq!(submit(&world, document.clone(), ephemeral).await.unwrap(), expected, "{}", document.condition);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_whose_results_fit_nowhere_fails_and_others_go_on() {
    let world = small(10_000).await;
    for ephemeral in [false, true] {
        let error = submit(&world, wide(), ephemeral).await.unwrap_err();
        let ClientError::Refused(failure) = &error else { panic!("{error:?}") };
        assert_eq!(failure.kind, ErrorKind::Retryable);
        assert!(failure.message.contains("bytes on disk, at most 10000 are kept"), "{failure}");
    }
    // The failed scans have given their bytes back: results of segments below the spool's smallest fit anyhow.
    assert_eq!(submit(&world, World::document(), false).await.unwrap(), world.expected());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ephemeral_scan_whose_client_leaves_gives_its_bytes_back() {
    let request = || pb::ScanRequest {
        protocol_version: PROTOCOL_VERSION,
        fresh: true,
        ephemeral: true,
        document_json: wide().to_json(),
        shards: Some(pb::ShardSpec { spec: Some(pb::shard_spec::Spec::PerSegment(true)) }),
        columns: true,
        ..pb::ScanRequest::default()
    };
    let roomy = small(1 << 30).await;
    let mut stream = roomy.client().await.scan(request()).await.unwrap().into_inner();
    let mut answer_bytes = 0;
    while let Some(event) = stream.message().await.unwrap() {
        if let Some(pb::scan_event::Event::SegmentDone(done)) = event.event {
            answer_bytes += done.result.unwrap().payload.len() as u64;
        }
    }
    // Room for one answer, not for two.
    let world = small(answer_bytes * 3 / 2).await;
    let endpoint =
        tonic::transport::Endpoint::from_shared(world.url.clone()).unwrap().initial_stream_window_size(1_000);
    let mut client = pb::coordinator_client::CoordinatorClient::new(endpoint.connect().await.unwrap());
    let mut stream = client.scan(request()).await.unwrap().into_inner();
    assert!(stream.message().await.unwrap().is_some());
    let done = || pb::ListScansRequest { states: vec![pb::ScanState::Done.into()], ..Default::default() };
    let until = async |is_there: bool| {
        while world.client().await.list_scans(done()).await.unwrap().into_inner().scans.is_empty() == is_there {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(BOUND, until(true)).await.expect("the scan ends, though nobody reads it");
    drop((stream, client));
    tokio::time::timeout(BOUND, until(false)).await.expect("it is forgotten once its client is gone");
    submit(&world, wide(), true).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_cannot_take_results_is_refused_at_the_start() {
    let world = World::new().await;
    let error = world.try_coordinator("c2", |options| options.spool.0 = "/nowhere".into()).await.unwrap_err();
    assert!(matches!(error, ServerError::Spool(_)), "{error}");
    assert!(error.to_string().starts_with("cannot use /nowhere for results that do not fit into memory"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_cannot_claim_more_segments_than_there_are() {
    let world = World::new().await;
    let mut client = world.client().await;
    let request = pb::WatchRequest {
        protocol_version: PROTOCOL_VERSION,
        scan_id: "x-1".to_owned(),
        have: vec![0; SEGMENTS_MAX + 1],
        ..pb::WatchRequest::default()
    };
    let status = client.watch(request).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_see_the_datasets_of_the_coordinator() {
    let world = World::new().await;
    let mut client = world.client().await;
    let list = client.list_datasets(pb::ListDatasetsRequest {}).await.unwrap().into_inner().datasets_json;
    let list: Vec<trawl_market::DatasetSummary> = serde_json::from_str(&list).unwrap();
    assert_eq!(list, world.store.list().unwrap());
    let inspect = |dataset: &str, symbol: &str| pb::InspectDatasetRequest {
        dataset: dataset.to_owned(),
        symbol: symbol.to_owned(),
    };
    let found = client.inspect_dataset(inspect("market", "")).await.unwrap().into_inner();
    let symbols: Vec<trawl_market::SymbolEntry> = serde_json::from_str(&found.symbols_json).unwrap();
    assert_eq!(symbols, world.store.open("market").unwrap().manifest.symbols);
    let one = client.inspect_dataset(inspect("market", &symbols[7].symbol)).await.unwrap().into_inner();
    let one: trawl_market::Inspection = serde_json::from_str(&one.inspection_json).unwrap();
    assert_eq!(one.symbol.unwrap().entry, symbols[7]);
    let status = client.inspect_dataset(inspect("merket", "")).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::NotFound);
    assert!(status.message().contains("did you mean 'market'"), "{}", status.message());
}

/// The two scans of a list that fit its filters, of the three that there are.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_filtered_by_the_coordinator() {
    let mut world = World::new().await;
    world.real_worker("w").await;
    world.wait_for(&["w"]).await;
    for _ in 0..2 {
        world.scan(ShardSpec::Automatic).await.unwrap();
    }
    let wrong = ScanDocument { dataset: Some("us5".to_owned()), ..World::document() };
    submit(&world, wrong, false).await.unwrap();
    let mut client = world.client().await;
    let mut count =
        async |request: pb::ListScansRequest| client.list_scans(request).await.unwrap().into_inner().scans.len();
    assert_eq!(count(pb::ListScansRequest::default()).await, 3);
    assert_eq!(count(pb::ListScansRequest { dataset: "market".to_owned(), ..Default::default() }).await, 2);
    assert_eq!(count(pb::ListScansRequest { owner: "nobody".to_owned(), ..Default::default() }).await, 0);
    let done = vec![pb::ScanState::Done.into()];
    assert_eq!(count(pb::ListScansRequest { states: done, limit: 2, ..Default::default() }).await, 2);
    assert_eq!(count(pb::ListScansRequest { submitted_from_us: Some(i64::MAX), ..Default::default() }).await, 0);
}
