//! Replies to an autoscaler, with the requests of KEDA.

use std::collections::HashMap;
use std::time::Duration;

use tokio_stream::StreamExt as _;
use tonic::transport::Channel;
use tonic::{Code, Request};
use trawl_coordinator::client::ScanCall;
use trawl_coordinator::{NoProgress, ShardSpec};
use trawl_wire::keda;
use trawl_wire::keda::external_scaler_client::ExternalScalerClient;

use crate::classes::done;
use crate::world::{BOUND, World};

async fn keda_of(url: &str) -> ExternalScalerClient<Channel> {
    ExternalScalerClient::connect(url.to_owned()).await.unwrap()
}

fn scaled(metadata: &[(&str, &str)]) -> keda::ScaledObjectRef {
    let scaler_metadata: HashMap<String, String> =
        metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    keda::ScaledObjectRef { name: "trawl-worker".to_owned(), namespace: "market".to_owned(), scaler_metadata }
}

async fn work_seconds(keda: &mut ExternalScalerClient<Channel>) -> f64 {
    let asked = keda::GetMetricsRequest {
        scaled_object_ref: Some(scaled(&[("holdSeconds", "0")])),
        metric_name: "trawl-work-seconds".to_owned(),
    };
    let metrics = keda.get_metrics(asked).await.unwrap().into_inner().metric_values;
    assert_eq!(metrics.len(), 1);
    assert!(metrics[0].metric_value as f64 >= metrics[0].metric_value_float, "{metrics:?}");
    assert_eq!(metrics[0].metric_name, "trawl-work-seconds");
    metrics[0].metric_value_float
}

/// Waits until the reply on whether workers are needed is `expected`.
async fn until_active(keda: &mut ExternalScalerClient<Channel>, expected: bool) {
    let asked = async {
        loop {
            let reply = keda.is_active(scaled(&[("holdSeconds", "0")])).await.unwrap().into_inner();
            if reply.result == expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(BOUND, asked).await.unwrap_or_else(|_| panic!("never became {expected}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_wakes_a_cluster_without_workers_and_leaves_it_idle() {
    let mut world = World::with(|options| options.no_worker_timeout = BOUND).await;
    let standby = world.coordinator("c2", |options| options.no_worker_timeout = BOUND).await;
    let (mut leader, mut other) = (keda_of(&world.url).await, keda_of(&standby).await);
    until_active(&mut leader, false).await;
    assert_eq!(work_seconds(&mut leader).await, 0.0);
    let mut stream = other.stream_is_active(scaled(&[("holdSeconds", "0")])).await.unwrap().into_inner();
    let mut next = async || tokio::time::timeout(BOUND, stream.next()).await.unwrap().unwrap().unwrap().result;
    assert!(!next().await, "reported at once");

    let (url, document) = (world.url.clone(), World::document());
    let scan = tokio::spawn(async move {
        let call = ScanCall { document, shards: ShardSpec::PerSegment, ..ScanCall::default() };
        trawl_coordinator::client::scan(&url, &call, &NoProgress).await
    });
    until_active(&mut leader, true).await;
    assert!(next().await, "reported when it changes, through a coordinator that does not lead");
    assert!(work_seconds(&mut leader).await > 0.0, "accepted work counts before any worker is there");
    assert!(work_seconds(&mut other).await > 0.0);

    world.slow_worker("w1", Duration::ZERO).await;
    tokio::time::timeout(BOUND, scan).await.expect("in time").unwrap().unwrap();
    until_active(&mut leader, false).await;
    assert!(!next().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_backend_is_scaled_for_the_work_that_it_may_do() {
    let mut world = World::with(|options| options.no_worker_timeout = BOUND).await;
    let mut keda = keda_of(&world.url).await;
    let on = |backend| scaled(&[("holdSeconds", "0"), ("backend", backend)]);
    let mut active = async |backend| keda.is_active(on(backend)).await.unwrap().into_inner().result;
    let call = |backend: Option<&str>| ScanCall {
        document: World::document(),
        backend: backend.map(str::to_owned),
        ..ScanCall::default()
    };
    let for_device = world.submit(call(Some("cuda")));
    let device_only = async {
        while !active("cuda").await || active("cpu").await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(BOUND, device_only).await.expect("it waits for a device");
    let for_any = world.submit(call(None));
    let both = async {
        while !(active("cuda").await && active("cpu").await) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(BOUND, both).await.expect("any backend would do");
    world.real_worker("w").await;
    done(for_any).await;
    let settled = async {
        while active("cpu").await || !active("cuda").await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(BOUND, settled).await.expect("only the device is missing");
    for_device.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_each_worker_should_have_before_it_is_the_triggers_own() {
    let world = World::new().await;
    let mut keda = keda_of(&world.url).await;
    let spec =
        keda.get_metric_spec(scaled(&[("targetSecondsPerWorker", "12.5")])).await.unwrap().into_inner().metric_specs;
    assert_eq!(spec.len(), 1);
    assert_eq!((spec[0].target_size, spec[0].target_size_float), (13, 12.5));

    let refused = keda.get_metric_spec(scaled(&[("targetSecondsPerWorker", "soon")])).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(
        refused.message().contains(
            "trigger of ScaledObject market/trawl-worker: targetSecondsPerWorker is 'soon': a number from 0.1 to 3600 is expected"
        ),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_kedas_newer_versions_try_first_is_unknown_and_not_an_error_of_access() {
    let world = World::new().await;
    let channel = Channel::from_shared(world.url.clone()).unwrap().connect().await.unwrap();
    let mut raw = tonic::client::Grpc::new(channel);
    raw.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<keda::ScaledObjectRef, keda::GetMetricSpecResponse>::default();
    let path = "/externalscaler.ExternalScaler/StreamMetricSpec".parse().unwrap();
    let refused = raw.unary(Request::new(scaled(&[])), path, codec).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
}
