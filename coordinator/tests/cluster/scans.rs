//! Scans as clients see them: they outlive streams and coordinators, wait for admission, and are listed.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tonic::Code;
use trawl_cluster_store::ControlStore as _;
use trawl_coordinator::client::{Manager, ScanCall};
use trawl_coordinator::server::ScanLimits;
use trawl_coordinator::{NoProgress, ShardSpec, answer_digest, client};
use trawl_plan::ScanDocument;
use trawl_security::ClientSecurity;
use trawl_terms::Priority;
use trawl_wire::limits::PROTOCOL_VERSION;
use trawl_wire::pb::scan_event::Event;
use trawl_wire::pb::worker_client::WorkerClient;
use trawl_wire::{ErrorKind, Failure, envelope, pb};

use crate::world::{BOUND, Oddity, World};

fn request() -> pb::ScanRequest {
    pb::ScanRequest {
        protocol_version: PROTOCOL_VERSION,
        fresh: true,
        document_json: World::document().to_json(),
        shards: Some(pb::ShardSpec { spec: Some(pb::shard_spec::Spec::PerSegment(true)) }),
        ..pb::ScanRequest::default()
    }
}

fn watch(scan_id: &str, have: Vec<u32>) -> pb::WatchRequest {
    pb::WatchRequest {
        protocol_version: PROTOCOL_VERSION,
        scan_id: scan_id.to_owned(),
        generation: 0,
        have,
        gathers: false,
        columns: false,
        kinds: false,
    }
}

/// Reads a stream to its end: the header, segments, the summary.
async fn read(
    mut events: tonic::Streaming<pb::ScanEvent>,
) -> (Option<pb::Accepted>, BTreeSet<u32>, Option<pb::Summary>) {
    let (mut header, mut segments, mut summary) = (None, BTreeSet::new(), None);
    let reading = async {
        while let Some(event) = events.message().await.unwrap() {
            match event.event.unwrap() {
                Event::Accepted(accepted) => header = Some(accepted),
                Event::SegmentDone(done) => assert!(segments.insert(done.segment), "reported twice"),
                Event::Summary(last) => summary = Some(last),
                other => panic!("{other:?}"),
            }
        }
    };
    tokio::time::timeout(BOUND, reading).await.expect("in time");
    (header, segments, summary)
}

/// Waits until a scan is reported in this state.
async fn wait_for_state(world: &World, scan: &str, state: pb::ScanState) -> pb::ScanInfo {
    let security = ClientSecurity::default();
    let mut manager = Manager::connect(&world.url, &security).await.unwrap();
    let reached = async {
        loop {
            let info = manager.status(scan).await.unwrap();
            if info.state() == state {
                return info;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(BOUND, reached).await.expect("in time")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_goes_on_without_its_client_and_is_reported_again() {
    let mut world = World::new().await;
    world.slow_worker("w", Duration::from_millis(40)).await;
    world.wait_for(&["w"]).await;
    let mut client = world.client().await;
    let mut events = client.scan(request()).await.unwrap().into_inner();
    let Some(Event::Accepted(header)) = events.message().await.unwrap().unwrap().event else { panic!("no header") };
    drop(events);
    let info = wait_for_state(&world, &header.scan_id, pb::ScanState::Done).await;
    assert_eq!((info.answer_digest.as_str(), info.durable), (world.expected_tree().as_str(), true));
    // A client that reconnects with a part of the segments receives the rest.
    let have: Vec<u32> = world.prepared().segments.iter().copied().take(2).collect();
    let events = client.watch(watch(&header.scan_id, have.clone())).await.unwrap().into_inner();
    let (again, rest, summary) = read(events).await;
    assert_eq!(again.unwrap().scan_id, header.scan_id);
    let all: BTreeSet<u32> = world.prepared().segments.iter().copied().collect();
    assert_eq!(rest, &all - &have.into_iter().collect());
    assert_eq!(summary.unwrap().answer_digest, world.expected());
    let scanned = tokio::task::spawn_blocking({
        let (url, scan) = (world.url.clone(), header.scan_id.clone());
        move || client::watch_blocking(&url, &ClientSecurity::default(), &scan, &NoProgress).unwrap()
    });
    assert_eq!(answer_digest(&scanned.await.unwrap().answer), world.expected());
}

/// Clients of earlier releases would show places in a list of texts as numbers.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_cannot_read_columns_of_texts_is_refused_them_and_nothing_else() {
    let mut world = World::new().await;
    world.real_worker("w").await;
    world.wait_for(&["w"]).await;
    let mut client = world.client().await;
    for (select, kinds, is_refused) in [("sector", false, true), ("sector", true, false), ("close", false, false)] {
        let dataset = Some(trawl_market::DEMO.to_owned());
        let document = ScanDocument { dataset, select: vec![select.to_owned()], ..World::document() };
        let request = pb::ScanRequest { document_json: document.to_json(), kinds, ..request() };
        let mut events = client.scan(request).await.unwrap().into_inner();
        let first = tokio::time::timeout(BOUND, events.message()).await.expect("in time");
        match (first, is_refused) {
            (Ok(Some(event)), false) => assert!(matches!(event.event, Some(Event::Accepted(_)))),
            (Err(status), true) => {
                assert_eq!(Failure::from_status(&status).unwrap().kind, ErrorKind::Invalid);
                assert!(status.message().contains("columns of labels or dates"), "{status}");
            }
            (other, _) => panic!("{select}, {kinds}: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ephemeral_scan_gives_the_same_answer_and_leaves_no_record() {
    let mut world = World::new().await;
    world.real_worker("w").await;
    world.wait_for(&["w"]).await;
    let scanned = world.call(ScanCall { ephemeral: true, ..ScanCall::default() }).await.unwrap();
    assert_eq!(answer_digest(&scanned.answer), world.expected());
    assert!(world.records().await.is_empty(), "{:?}", world.records().await);
    world.scan(ShardSpec::Automatic).await.unwrap();
    let records = world.records().await;
    assert!(records.len() == 1 && records[0].contains("/ended/"), "{records:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_recording_failed_may_be_made_again_under_its_key() {
    let mut world = World::new().await;
    world.real_worker("w").await;
    world.wait_for(&["w"]).await;
    let call = || ScanCall { idempotency_key: Some("mine".to_owned()), ..ScanCall::default() };
    world.control.set_away(true);
    let error = world.call(call()).await.unwrap_err();
    world.control.set_away(false);
    assert!(error.to_string().contains("cannot be recorded"), "{error}");
    let scanned = world.call(call()).await.unwrap();
    assert_eq!(answer_digest(&scanned.answer), world.expected());
    // From now on the key is taken: the same request is the same scan, whatever its priority this time.
    let again = world.call(ScanCall { priority: Priority::High, ..call() }).await.unwrap();
    assert_eq!(again.report.scan, scanned.report.scan);
}

/// As kept by 0.1.0 by default: 1,000 ended scans, with documents of 10 KB in their headers.
#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_coordinator_leads_however_much_is_recorded() {
    let mut world = World::new().await;
    world.real_worker("w").await;
    world.wait_for(&["w"]).await;
    world.scan(ShardSpec::Automatic).await.unwrap();
    let key = world.records().await.remove(0);
    let closed: serde_json::Value = serde_json::from_slice(&world.control.peek(&key).unwrap().value).unwrap();
    for number in 0..1_000 {
        let scan = format!("old-{number}");
        let (mut header, mut end) = (closed["header"].clone(), closed["end"].clone());
        (header["scan"], header["version"], end["version"]) = (scan.clone().into(), 1.into(), 1.into());
        header["document"] = serde_json::json!({ "inline": format!("{:10000}", World::document().to_json()) });
        for (part, record) in [("header", header), ("end", end)] {
            let key = format!("test/scans/{scan}/{part}");
            world.control.put(&key, record.to_string().into_bytes(), None).await.unwrap();
        }
    }
    let second = world.coordinator("c2", |_| {}).await;
    world.stop_coordinator();
    let security = ClientSecurity::default();
    let known = async {
        // Until then it forwards calls to the first one, which has not read those records.
        while !world.control.peek("test/leader").is_some_and(|key| key.value.windows(4).any(|id| id == b"\"c2\"")) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        loop {
            if let Ok(mut manager) = Manager::connect(&second, &security).await
                && let Ok(list) = manager.list(pb::ListScansRequest::default()).await
            {
                return list;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let list = tokio::time::timeout(BOUND, known).await.expect("it leads");
    assert_eq!(list.scans.len(), 1_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_coordinator_goes_on_with_what_was_accepted() {
    let mut world = World::new().await;
    world.slow_worker("w", Duration::from_millis(150)).await;
    world.wait_for(&["w"]).await;
    let second = world.coordinator("c2", |_| {}).await;
    let call = ScanCall { document: World::document(), shards: ShardSpec::PerSegment, ..ScanCall::default() };
    let urls = format!("{},{second}", world.url);
    let scan = tokio::spawn(async move { client::scan(&urls, &call, &NoProgress).await });
    // In its middle, with some segments stored.
    let mut leader = world.client().await;
    let running = async {
        loop {
            let scans = leader.list_scans(pb::ListScansRequest::default()).await.unwrap().into_inner().scans;
            if scans.iter().any(|scan| scan.segments_ended > 0) {
                return scans;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let scans = tokio::time::timeout(BOUND, running).await.expect("it runs");
    // While the first leads, the second forwards calls to it.
    let security = ClientSecurity::default();
    let mut manager = Manager::connect(&second, &security).await.unwrap();
    assert_eq!(manager.status(&scans[0].scan_id).await.unwrap().scan_id, scans[0].scan_id);
    world.stop_coordinator();
    let scanned = tokio::time::timeout(BOUND, scan).await.expect("in time").unwrap().unwrap();
    assert_eq!(answer_digest(&scanned.answer), world.expected());
    let info = manager.status(&scans[0].scan_id).await.unwrap();
    assert_eq!((info.state(), info.answer_digest), (pb::ScanState::Done, world.expected_tree()));
    let again = manager.list(pb::ListScansRequest::default()).await.unwrap();
    assert_eq!(again.scans.len(), 1, "one scan, whoever ran it: {again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_request_twice_is_one_scan_and_another_under_its_key_is_refused() {
    let mut world = World::new().await;
    world.real_worker("w").await;
    world.wait_for(&["w"]).await;
    let mut client = world.client().await;
    let keyed = |document_json: String| pb::ScanRequest { document_json, idempotency_key: "k".to_owned(), ..request() };
    let document = World::document().to_json();
    let (first, _, _) = read(client.scan(keyed(document.clone())).await.unwrap().into_inner()).await;
    // Which of its stages are traced is no other request.
    let again = pb::ScanRequest { profile: true, ..keyed(document.clone()) };
    let (second, segments, summary) = read(client.scan(again).await.unwrap().into_inner()).await;
    assert_eq!(first.unwrap().scan_id, second.unwrap().scan_id);
    assert_eq!((segments.len(), summary.unwrap().answer_digest), (world.prepared().segments.len(), world.expected()));
    let status = client.scan(keyed(document.replace("20", "21"))).await.unwrap_err();
    assert_eq!((status.code(), kind(&status)), (Code::AlreadyExists, ErrorKind::Invalid));
}

fn kind(status: &tonic::Status) -> ErrorKind {
    Failure::from_status(status).expect("a failure in the status").kind
}

#[tokio::test(flavor = "multi_thread")]
async fn scans_wait_for_their_turn_and_none_is_lost() {
    let mut world =
        World::with(|options| options.scans = ScanLimits { running: 1, waiting: 50, ..ScanLimits::default() }).await;
    world.slow_worker("w", Duration::from_millis(20)).await;
    world.wait_for(&["w"]).await;
    let mut client = world.client().await;
    let mut streams = Vec::new();
    for _ in 0..8 {
        streams.push(client.scan(request()).await.unwrap().into_inner());
    }
    let queued = async {
        loop {
            let list = client
                .list_scans(pb::ListScansRequest { active: true, ..Default::default() })
                .await
                .unwrap()
                .into_inner();
            let count = |state| list.scans.iter().filter(|scan| scan.state() == state).count();
            assert!(count(pb::ScanState::Running) <= 1, "{list:?}");
            if count(pb::ScanState::Queued) > 3 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(BOUND, queued).await.expect("some wait");
    for events in streams {
        let (_, _, summary) = read(events).await;
        assert_eq!(summary.unwrap().answer_digest, world.expected());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_nothing_holds_up_nobody() {
    let mut world = World::new().await;
    world.real_worker("w").await;
    world.wait_for(&["w"]).await;
    let mut client = world.client().await;
    let asleep = client.scan(request()).await.unwrap().into_inner();
    let (_, _, summary) = read(client.scan(request()).await.unwrap().into_inner()).await;
    assert_eq!(summary.unwrap().answer_digest, world.expected());
    let scans = client.list_scans(pb::ListScansRequest::default()).await.unwrap().into_inner().scans;
    for scan in scans {
        wait_for_state(&world, &scan.scan_id, pb::ScanState::Done).await;
    }
    let (_, segments, summary) = read(asleep).await;
    assert_eq!((segments.len(), summary.unwrap().answer_digest), (world.prepared().segments.len(), world.expected()));
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelling_reaches_the_workers_and_unknown_scans_are_reported_as_such() {
    let mut world = World::new().await;
    let seen = world.odd_worker("odd", Oddity::Hangs, |_| {}).await;
    world.wait_for(&["odd"]).await;
    let mut client = world.client().await;
    let mut events = client.scan(request()).await.unwrap().into_inner();
    let Some(Event::Accepted(header)) = events.message().await.unwrap().unwrap().event else { panic!("no header") };
    client.cancel(pb::CancelRequest { scan_id: header.scan_id.clone() }).await.unwrap();
    let info = wait_for_state(&world, &header.scan_id, pb::ScanState::Cancelled).await;
    assert_eq!(info.failure.unwrap().kind(), pb::ErrorKind::Cancelled);
    let notified = async {
        while seen.dropped.load(Ordering::SeqCst) < seen.shards.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(BOUND, notified).await.expect("the worker is notified");
    let refused = |status: tonic::Status| (status.code(), kind(&status));
    let unknown = (Code::NotFound, ErrorKind::Invalid);
    let name = || "nobody-1".to_owned();
    assert_eq!(refused(client.get_scan(pb::GetScanRequest { scan_id: name() }).await.unwrap_err()), unknown);
    assert_eq!(refused(client.cancel(pb::CancelRequest { scan_id: name() }).await.unwrap_err()), unknown);
    assert_eq!(refused(client.watch(watch("nobody-1", Vec::new())).await.unwrap_err()), unknown);
    assert_eq!(refused(client.drain_worker(pb::DrainWorkerRequest { worker: name() }).await.unwrap_err()), unknown);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_refuses_a_leader_that_another_has_followed() {
    let mut world = World::new().await;
    let address = world.real_worker("real").await;
    world.wait_for(&["real"]).await;
    let scan = world.prepared();
    let mut client = WorkerClient::connect(format!("http://{address}")).await.unwrap();
    let ask = |epoch| pb::ShardRequest {
        protocol_version: PROTOCOL_VERSION,
        document_json: scan.document.to_json(),
        dataset: scan.dataset_reference(),
        as_of_us: scan.as_of,
        plan_fingerprint: scan.identity.plan.clone(),
        execution_class: Some(trawl_worker::execution_class().into()),
        segments: vec![scan.segments[0]],
        epoch,
        ..pb::ShardRequest::default()
    };
    client.execute(ask(9_000)).await.unwrap();
    let status = client.execute(ask(8_999)).await.unwrap_err();
    assert_eq!((status.code(), kind(&status)), (Code::FailedPrecondition, ErrorKind::Retryable));
    assert!(status.message().contains("epoch 8999 is over"), "{}", status.message());
    let status = client.drain(pb::DrainRequest { epoch: 1 }).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
}

#[tokio::test(flavor = "multi_thread")]
async fn small_results_share_messages_with_those_who_take_them() {
    let mut world = World::new().await;
    world.real_worker("w").await;
    world.wait_for(&["w"]).await;
    let scanned = world.scan(ShardSpec::Automatic).await.unwrap();
    let mut client = world.client().await;
    let mut read = async |gathers| {
        let request = pb::WatchRequest { gathers, ..watch(&scanned.report.scan, vec![]) };
        let mut events = client.watch(request).await.unwrap().into_inner();
        let (mut messages, mut all) = (0, Vec::new());
        while let Some(mut message) = events.message().await.unwrap() {
            messages += 1;
            let more = std::mem::take(&mut message.more);
            all.push(message);
            all.extend(more);
        }
        (messages, all)
    };
    let (one_each, plain) = read(false).await;
    let (fewer, gathered) = read(true).await;
    assert_eq!(one_each, plain.len());
    assert_eq!(fewer, 3, "the head, all results, the summary");
    assert_eq!(plain, gathered);
}

/// The same events, for a client of this release and for one before there were columns.
#[tokio::test(flavor = "multi_thread")]
async fn columns_and_trees_are_for_clients_that_read_them_and_both_describe_one_answer() {
    let mut world = World::new().await;
    world.real_worker("w").await;
    world.wait_for(&["w"]).await;
    let scanned = world.scan(ShardSpec::Automatic).await.unwrap();
    assert_eq!(scanned.answer.digest, world.expected_tree());
    let mut client = world.client().await;
    for columns in [false, true] {
        let request = pb::WatchRequest { columns, ..watch(&scanned.report.scan, vec![]) };
        let mut events = client.watch(request).await.unwrap().into_inner();
        let (mut segments, mut summary) = (0, None);
        while let Some(event) = events.message().await.unwrap() {
            match event.event.unwrap() {
                Event::SegmentDone(done) => {
                    let envelope = done.result.unwrap();
                    let version = if columns { envelope::SEGMENT_COLUMNS_V3 } else { envelope::SEGMENT_RESULT_V2 };
                    assert_eq!(envelope.version, version);
                    envelope::read_checked(&envelope, &done.digest).unwrap();
                    segments += 1;
                }
                Event::Summary(last) => summary = Some(last),
                _ => {}
            }
        }
        let summary = summary.unwrap();
        assert_eq!((segments, summary.tree), (world.prepared().segments.len(), columns));
        let expected = if columns { world.expected_tree() } else { world.expected() };
        assert_eq!(summary.answer_digest, expected);
    }
}

/// A worker of the release before sends rows, whatever is asked for.
#[tokio::test(flavor = "multi_thread")]
async fn the_digest_does_not_depend_on_the_form_in_which_workers_send_rows() {
    let mut world = World::new().await;
    let rows = world.odd_worker("rows", Oddity::SendsRows, |_| {}).await;
    world.slow_worker("columns", Duration::from_millis(30)).await;
    world.wait_for(&["columns", "rows"]).await;
    let scanned = world.scan(ShardSpec::PerSegment).await.unwrap();
    assert_eq!((answer_digest(&scanned.answer), scanned.answer.digest), (world.expected(), world.expected_tree()));
    assert!(rows.shards.load(Ordering::SeqCst) > 0);
    let workers: BTreeSet<&str> = scanned.report.segment_runs.iter().map(|run| run.worker.as_str()).collect();
    assert_eq!(workers, BTreeSet::from(["columns", "rows"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_of_the_next_release_is_asked_in_this_ones_protocol() {
    let mut world = World::new().await;
    let next = world
        .odd_worker("next", Oddity::SpeaksV1, |record| {
            (record.protocol_version, record.protocol_oldest) = (PROTOCOL_VERSION + 1, PROTOCOL_VERSION);
            record.result_schema = "0".repeat(16);
            record.result_schemas_earlier = vec![format!("{:016x}", envelope::schema_fingerprint_v1())];
        })
        .await;
    world.wait_for(&["next"]).await;
    let scanned = world.scan(ShardSpec::PerSegment).await.unwrap();
    assert_eq!(answer_digest(&scanned.answer), world.expected());
    assert!(next.shards.load(Ordering::SeqCst) > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_of_the_version_before_work_beside_those_of_this_one() {
    let mut world = World::new().await;
    let old = world
        .odd_worker("old", Oddity::SpeaksV1, |record| {
            record.protocol_version = PROTOCOL_VERSION - 1;
            record.result_schema = format!("{:016x}", envelope::schema_fingerprint_v1());
        })
        .await;
    world.slow_worker("new", Duration::from_millis(30)).await;
    world.wait_for(&["new", "old"]).await;
    let scanned = world.scan(ShardSpec::PerSegment).await.unwrap();
    assert_eq!(answer_digest(&scanned.answer), world.expected());
    assert!(old.shards.load(Ordering::SeqCst) > 0, "the old one had its share");
    let workers: BTreeSet<&str> = scanned.report.segment_runs.iter().map(|run| run.worker.as_str()).collect();
    assert_eq!(workers, BTreeSet::from(["new", "old"]));
    // A client of the previous version is served in its own protocol: its as-of is the start of a bar.
    let mut client = world.client().await;
    let as_of_us = Some(world.prepared().as_of);
    let before = pb::ScanRequest { protocol_version: PROTOCOL_VERSION - 1, as_of_us, ..request() };
    let (header, _, summary) = read(client.scan(before).await.unwrap().into_inner()).await;
    assert_eq!((header.unwrap().durable, summary.unwrap().answer_digest), (true, world.expected()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_others_do_not_see_is_refused_with_a_second_coordinator() {
    let world = World::new().await;
    let error = world.try_coordinator("c2", |options| options.results_shared = false).await.unwrap_err().to_string();
    assert!(error.contains("2 coordinators") && error.contains("--results-shared"), "{error}");
}

/// Results are pure: what was deleted of them is computed again, and is the same answer.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_whose_objects_are_lost_is_computed_again() {
    let mut world = World::new().await;
    world.real_worker("w").await;
    world.wait_for(&["w"]).await;
    // Its deadline is long over when it is asked for again, which concerns the scan, not its readers.
    let deadline = Some(Duration::from_secs(4));
    let call = ScanCall { shards: ShardSpec::PerSegment, deadline, ..ScanCall::default() };
    let first = world.call(call).await.unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    let results = world.data.path().join(".results/scans").join(&first.report.scan);
    let groups = |results: &std::path::Path| {
        let mut found = Vec::new();
        let mut folders = vec![results.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if entry.is_dir() {
                    folders.push(entry);
                } else if entry.extension().is_some_and(|extension| extension == "group") {
                    found.push(entry);
                }
            }
        }
        found
    };
    let mut ended_us = None;
    // The first time all groups are lost, then all are damaged.
    for damage in [false, true] {
        for group in groups(&results) {
            if damage {
                std::fs::write(group, b"rotten").unwrap();
            } else {
                std::fs::remove_file(group).unwrap();
            }
        }
        // The next coordinator has nothing in memory.
        if damage {
            world.stop_the_last();
        } else {
            world.stop_coordinator();
        }
        let url = world.coordinator(if damage { "c3" } else { "c2" }, |_| {}).await;
        let (scan, asked) = (first.report.scan.clone(), url.clone());
        let again = tokio::task::spawn_blocking(move || {
            client::watch_blocking(&url, &ClientSecurity::default(), &scan, &NoProgress)
        });
        let again = tokio::time::timeout(BOUND, again).await.expect("it answers in time").unwrap().unwrap();
        assert_eq!(answer_digest(&again.answer), world.expected());
        assert!(!groups(&results).is_empty(), "it is stored again");
        let mut client = pb::coordinator_client::CoordinatorClient::connect(asked).await.unwrap();
        let request = pb::GetScanRequest { scan_id: first.report.scan.clone() };
        let info = client.get_scan(request).await.unwrap().into_inner();
        assert_eq!((info.state(), info.answer_digest), (pb::ScanState::Done, world.expected_tree()));
        assert!(*ended_us.get_or_insert(info.ended_us) == info.ended_us, "it ended when it did");
    }
}
