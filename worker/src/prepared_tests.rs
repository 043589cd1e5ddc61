//! Prepared scans by key and by document, their bounds, and scans that several requests ask for at once.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use trawl_kernels::{Engine, Precision};
use trawl_market::{Adjustment, Dataset, Store};
use trawl_plan::{ScanDocument, compile_scan};
use trawl_wire::ErrorKind;

use super::*;
use crate::ExecutablePlan;

fn dataset() -> Dataset {
    Store::new("/nonexistent/trawl-data".into()).open("us5").unwrap()
}

fn request(as_of_us: i64) -> pb::ShardRequest {
    pb::ShardRequest {
        document_json: "{}".to_owned(),
        dataset: "us5@1".to_owned(),
        as_of_us,
        plan_fingerprint: "p".to_owned(),
        adjustment: "none".to_owned(),
        execution_class: Some(crate::execution_class().into()),
        ..pb::ShardRequest::default()
    }
}

fn by_key(request: &pb::ShardRequest) -> pb::ShardRequest {
    pb::ShardRequest { document_json: String::new(), ..request.clone() }
}

fn prepare(request: &pb::ShardRequest, condition: &str) -> Prepared {
    let dataset = dataset();
    let document = ScanDocument { condition: condition.to_owned(), ..ScanDocument::default() };
    let plan = compile_scan(&document, &crate::schema_of(&dataset, request.as_of_us).unwrap()).unwrap();
    let source = ScanSource {
        executable: ExecutablePlan::new(Arc::new(plan), Precision::F64),
        as_of: dataset.manifest.symbols[0].last_time,
        dataset,
        adjustment: Adjustment::NONE,
        engine: Engine::Cpu,
        checkpoints: None,
        every_value: false,
        features: None,
    };
    Prepared::new(request, source).unwrap()
}

fn kept(scans: &PreparedScans, request: &pb::ShardRequest) -> Arc<Prepared> {
    scans.prepared(request, || Ok(prepare(request, "close > 1"))).unwrap()
}

#[test]
fn a_scan_is_known_by_its_key_or_by_its_document_and_no_other_is_taken_for_it() {
    let scans = PreparedScans::default();
    let asked = request(1);
    assert!(scans.known(&asked).is_none() && scans.known(&by_key(&asked)).is_none());
    let prepared = kept(&scans, &asked);
    for again in [asked.clone(), by_key(&asked), pb::ShardRequest { segments: vec![3], attempt: 9, ..by_key(&asked) }] {
        let known = scans.known(&again).expect("it was kept");
        assert!(Arc::ptr_eq(&known, &prepared), "the same one, not another one like it");
    }
    let changes: [fn(&mut pb::ShardRequest); 6] = [
        |r| r.plan_fingerprint = "q".to_owned(),
        |r| r.plan_fingerprint = String::new(),
        |r| r.dataset = "us5@2".to_owned(),
        |r| r.as_of_us += 1,
        |r| r.adjustment = String::new(),
        |r| r.execution_class = None,
    ];
    for change in changes {
        let mut other = asked.clone();
        change(&mut other);
        assert!(scans.known(&other).is_none() && scans.known(&by_key(&other)).is_none(), "{other:?}");
    }
    // Of a document nothing but the worker's own reading says which plan it is.
    assert!(scans.known(&pb::ShardRequest { document_json: "{ }".to_owned(), ..asked }).is_none());
}

#[test]
fn the_scan_that_was_not_asked_for_longest_goes_first() {
    let scans = PreparedScans::default();
    let most = i64::try_from(SCANS_MAX).unwrap();
    let first = kept(&scans, &request(0));
    (1..most).for_each(|number| drop(kept(&scans, &request(number))));
    assert!(Arc::ptr_eq(&kept(&scans, &request(0)), &first), "it is still here, and in use");
    kept(&scans, &request(most));
    assert!(scans.known(&by_key(&request(1))).is_none());
    assert!(scans.known(&by_key(&request(0))).is_some() && scans.known(&by_key(&request(most))).is_some());
}

#[test]
fn bars_of_references_count_and_the_newest_scan_stays_whatever_it_takes() {
    let reference = "close > ref('AAPL', close)";
    let with = prepare(&request(0), reference);
    let bars = &with.references["AAPL"];
    let more = with.bytes() - prepare(&request(0), "close > 1").bytes();
    assert!(more >= bars.times.len() * 16, "{more}");
    let one = prepare(&request(0), "close > 1").bytes() + dataset().manifest.symbols.len() * SYMBOL_BYTES;
    let scans = PreparedScans { bytes_max: 2 * one, ..PreparedScans::default() };
    // Large by its document: that is the simplest large scan.
    let large = |number| pb::ShardRequest { document_json: " ".repeat(2 * one), ..request(number) };
    kept(&scans, &request(1));
    kept(&scans, &large(2));
    assert!(scans.known(&by_key(&request(1))).is_none() && scans.known(&by_key(&request(2))).is_some());
    kept(&scans, &request(3));
    assert!(scans.known(&by_key(&request(2))).is_none() && scans.known(&by_key(&request(3))).is_some());
}

#[test]
fn requests_that_come_together_share_what_the_first_prepares() {
    const TOGETHER: usize = 4;
    let (scans, prepared, begin) = (PreparedScans::default(), AtomicUsize::new(0), Barrier::new(TOGETHER));
    let one = || {
        begin.wait();
        let prepare = || {
            prepared.fetch_add(1, Ordering::SeqCst);
            // Until the others wait, or have come too late to notice.
            (0..1000).for_each(|_| std::thread::yield_now());
            Ok(prepare(&request(1), "close > 1"))
        };
        scans.prepared(&request(1), prepare).unwrap()
    };
    let found: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..TOGETHER).map(|_| scope.spawn(one)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(prepared.load(Ordering::SeqCst), 1);
    assert!(found.iter().all(|scan| Arc::ptr_eq(scan, &found[0])));
}

#[test]
fn after_a_failure_or_a_panic_the_next_request_tries_again() {
    let scans = PreparedScans::default();
    let refused = scans.prepared(&request(1), || Err(Failure::new(ErrorKind::Damaged, "as configured")));
    assert_eq!(refused.unwrap_err().kind, ErrorKind::Damaged);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        drop(scans.prepared(&request(1), || panic!("as configured")));
    }));
    assert!(panicked.is_err() && scans.known(&request(1)).is_none());
    kept(&scans, &request(1));
    assert!(scans.known(&by_key(&request(1))).is_some());
}
