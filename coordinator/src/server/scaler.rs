//! The external scaler service of KEDA: how much work is ahead of the workers, and whether any worker is needed.
//!
//! A coordinator that leads samples its own load every second ([`watch`]); any other forwards the request. The numbers
//! are computed in [`crate::scaler`].

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Code, Request, Response, Status};
use trawl_wire::error::status_of;
use trawl_wire::keda::external_scaler_server::ExternalScaler;
use trawl_wire::{ErrorKind, keda};

use super::dispatcher::Capacity;
use super::proxy::Proxy;
use super::scans::Environment;
use super::service::{CoordinatorRole, CoordinatorService, Leader, of_address, of_leader};
use crate::scaler::{Demand, Goal, Reading, Sample};
use crate::worker_class::{BACKEND_COUNTERS, counter_of};

/// Of the whole cluster, then of each backend, as [`counter_of`] numbers them.
type Demands = [Demand; BACKEND_COUNTERS];

/// Name of the metric.
pub const METRIC: &str = "trawl-work-seconds";
/// Maximum bytes of a request.
pub const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Interval of sampling the load.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of streams notified of changes.
const STREAMS_MAX: usize = 64;
/// Interval of repeating the value on a stream, which detects broken streams.
const REPEAT_INTERVAL: Duration = Duration::from_secs(30);

/// The samples, and the task that collects them.
pub(crate) struct Watched {
    demand: Arc<Mutex<Demands>>,
    task: tokio::task::JoinHandle<()>,
}

impl Watched {
    pub fn demand(&self) -> Arc<Mutex<Demands>> {
        Arc::clone(&self.demand)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Samples the load until the returned value is dropped. A new term starts without samples.
pub(crate) fn watch(standing: watch::Receiver<CoordinatorRole>) -> Watched {
    let demand = Arc::new(Mutex::new(Demands::default()));
    let kept = Arc::clone(&demand);
    let task = tokio::spawn(async move {
        let started = Instant::now();
        let mut tick = tokio::time::interval(SAMPLE_INTERVAL);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let standing = standing.borrow().clone();
            let sample = match standing {
                CoordinatorRole::Leading(environment) | CoordinatorRole::Suspended(environment) => {
                    Some(sample(&environment).await)
                }
                CoordinatorRole::Following(_) => None,
            };
            let mut demand = kept.lock().unwrap_or_else(PoisonError::into_inner);
            match sample {
                Some(samples) => {
                    let now_s = started.elapsed().as_secs();
                    demand.iter_mut().zip(samples).for_each(|(demand, sample)| demand.note(now_s, sample));
                }
                None => *demand = Demands::default(),
            }
        }
    });
    Watched { demand, task }
}

/// A sample of the whole cluster, then one for each backend, as [`counter_of`] numbers them.
async fn sample(environment: &Environment) -> [Sample; BACKEND_COUNTERS] {
    let capacity = environment.dispatcher.capacity().await;
    let default = environment.default_backend.as_deref();
    let open = environment.scans.all().into_iter().filter(|scan| !scan.has_ended());
    let scans: Vec<usize> = open.map(|scan| counter_of(scan.backend(default).as_deref())).collect();
    std::array::from_fn(|counter| {
        let Capacity { workers, threads } = capacity[counter];
        Sample {
            work_s: environment.dispatcher.work().on(counter).as_secs_f64(),
            done_s: environment.dispatcher.computed(counter).as_secs_f64(),
            expected_s: environment.dispatcher.expected(counter).as_secs_f64(),
            // A scan that may run on any backend is one of each.
            scans: scans.iter().filter(|&&on| counter == 0 || on == 0 || on == counter).count(),
            workers,
            threads,
        }
    })
}

/// The service implementation for tonic.
pub(crate) struct Scaler {
    service: Arc<CoordinatorService>,
    demand: Arc<Mutex<Demands>>,
    streams: Arc<Semaphore>,
}

impl Scaler {
    pub fn new(service: Arc<CoordinatorService>, demand: Arc<Mutex<Demands>>) -> Self {
        Self { service, demand, streams: Arc::new(Semaphore::new(STREAMS_MAX)) }
    }

    fn reading(&self, goal: &Goal) -> Reading {
        reading(&self.demand, goal)
    }

    /// A client of the leader, if it is another coordinator.
    async fn elsewhere<T>(&self, request: &Request<T>) -> Result<Option<Client>, Status> {
        match self.service.reader(Proxy::is_passed_on(request.metadata())).await? {
            Leader::Here(_) => Ok(None),
            Leader::There(address) => self.service.proxy.scaler_at(&address).map(Some).map_err(of_address),
        }
    }
}

type Client = keda::external_scaler_client::ExternalScalerClient<tonic::transport::Channel>;
type ActiveStream = Pin<Box<dyn Stream<Item = Result<keda::IsActiveResponse, Status>> + Send>>;

fn reading(demand: &Mutex<Demands>, goal: &Goal) -> Reading {
    let counter = counter_of(goal.backend.as_deref());
    demand.lock().unwrap_or_else(PoisonError::into_inner)[counter].reading(goal)
}

fn goal_of(scaled: &keda::ScaledObjectRef) -> Result<Goal, Status> {
    Goal::of(scaled.scaler_metadata.iter().map(|(key, value)| (key.as_str(), value.as_str()))).map_err(|mistake| {
        let of = |text: &str| text.chars().filter(|c| !c.is_control()).take(128).collect::<String>();
        let message = format!("trigger of ScaledObject {}/{}: {mistake}", of(&scaled.namespace), of(&scaled.name));
        status_of(Code::InvalidArgument, ErrorKind::Invalid, &message)
    })
}

/// The request to forward to the leader.
fn pass_on<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    Proxy::mark(request.metadata_mut());
    request
}

/// Rounds up to a whole number.
fn whole(value: f64) -> i64 {
    // Saturates; never NaN.
    value.ceil() as i64
}

#[tonic::async_trait]
impl ExternalScaler for Scaler {
    type StreamIsActiveStream = ActiveStream;

    async fn is_active(
        &self,
        request: Request<keda::ScaledObjectRef>,
    ) -> Result<Response<keda::IsActiveResponse>, Status> {
        let leader = self.elsewhere(&request).await?;
        let scaled = request.into_inner();
        if let Some(mut leader) = leader {
            return leader.is_active(pass_on(scaled)).await.map_err(of_leader);
        }
        let result = self.reading(&goal_of(&scaled)?).active;
        Ok(Response::new(keda::IsActiveResponse { result }))
    }

    async fn stream_is_active(
        &self,
        request: Request<keda::ScaledObjectRef>,
    ) -> Result<Response<ActiveStream>, Status> {
        let leader = self.elsewhere(&request).await?;
        let scaled = request.into_inner();
        if let Some(mut leader) = leader {
            let stream = leader.stream_is_active(pass_on(scaled)).await.map_err(of_leader)?.into_inner();
            return Ok(Response::new(Box::pin(stream.map(|reply| reply.map_err(of_leader)))));
        }
        let goal = goal_of(&scaled)?;
        let permit = Arc::clone(&self.streams).try_acquire_owned().map_err(|_| {
            let message = format!("{STREAMS_MAX} streams are open already");
            status_of(Code::ResourceExhausted, ErrorKind::Retryable, &message)
        })?;
        let (sender, replies) = mpsc::channel(1);
        let (demand, mut standing) = (Arc::clone(&self.demand), self.service.standing());
        tokio::spawn(async move {
            let _permit = permit;
            let mut known: Option<(bool, Instant)> = None;
            // Ends when this coordinator stops leading; the listener then reconnects.
            while !matches!(&*standing.borrow_and_update(), CoordinatorRole::Following(_)) {
                let result = reading(&demand, &goal).active;
                if known.is_none_or(|(before, at)| before != result || at.elapsed() >= REPEAT_INTERVAL) {
                    if sender.send(Ok(keda::IsActiveResponse { result })).await.is_err() {
                        return;
                    }
                    known = Some((result, Instant::now()));
                }
                tokio::select! {
                    () = tokio::time::sleep(SAMPLE_INTERVAL) => {}
                    () = sender.closed() => return,
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(replies))))
    }

    async fn get_metric_spec(
        &self,
        request: Request<keda::ScaledObjectRef>,
    ) -> Result<Response<keda::GetMetricSpecResponse>, Status> {
        // Independent of the cluster's state: any coordinator may answer.
        let goal = goal_of(request.get_ref())?;
        let spec = keda::MetricSpec {
            metric_name: METRIC.to_owned(),
            target_size: whole(goal.target_s),
            target_size_float: goal.target_s,
        };
        Ok(Response::new(keda::GetMetricSpecResponse { metric_specs: vec![spec] }))
    }

    async fn get_metrics(
        &self,
        request: Request<keda::GetMetricsRequest>,
    ) -> Result<Response<keda::GetMetricsResponse>, Status> {
        let leader = self.elsewhere(&request).await?;
        let asked = request.into_inner();
        if let Some(mut leader) = leader {
            return leader.get_metrics(pass_on(asked)).await.map_err(of_leader);
        }
        let goal = goal_of(&asked.scaled_object_ref.unwrap_or_default())?;
        let work_s = self.reading(&goal).work_s;
        let value = keda::MetricValue {
            metric_name: METRIC.to_owned(),
            metric_value: whole(work_s),
            metric_value_float: work_s,
        };
        Ok(Response::new(keda::GetMetricsResponse { metric_values: vec![value] }))
    }
}
