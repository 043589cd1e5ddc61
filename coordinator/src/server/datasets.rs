//! What clients ask about datasets; answered from this coordinator's own data root, whether it leads or not.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tonic::{Code, Status};
use trawl_market::{InspectOptions, MarketError, MarketErrorKind, Store, inspect};
use trawl_security::Caller;
use trawl_wire::error::{status_of, text_of};
use trawl_wire::{ErrorKind, pb};

/// Maximum questions that read the data root at once.
const READING_MAX: usize = 2;

/// The datasets of a coordinator.
pub(super) struct Datasets {
    store: Store,
    reading: Arc<Semaphore>,
}

impl Datasets {
    pub fn new(store: Store) -> Self {
        Self { store, reading: Arc::new(Semaphore::new(READING_MAX)) }
    }

    /// The datasets that a caller may scan, as JSON.
    pub async fn list(&self, caller: &Caller) -> Result<String, Status> {
        let allowance = caller.allowance.clone();
        self.read(move |store| {
            let mut list = store.list()?;
            list.retain(|found| allowance.admits_dataset(&found.name));
            Ok(serde_json::to_string(&list).unwrap_or_default())
        })
        .await
    }

    /// What one of them contains.
    pub async fn inspect(
        &self,
        caller: &Caller,
        request: pb::InspectDatasetRequest,
    ) -> Result<pb::InspectDatasetReply, Status> {
        let name = request.dataset.split('@').next().unwrap_or_default();
        if !caller.allowance.admits_dataset(name) {
            let granted = caller.allowance.datasets.join(", ");
            let message = format!("dataset '{name}' is not granted to {}: {granted}", caller.name);
            return Err(status_of(Code::PermissionDenied, ErrorKind::Invalid, &message));
        }
        self.read(move |store| {
            let dataset = store.open(&request.dataset)?;
            let symbol = Some(request.symbol.as_str()).filter(|symbol| !symbol.is_empty());
            let found = inspect(&dataset, InspectOptions { symbol, ..InspectOptions::default() })?;
            Ok(pb::InspectDatasetReply {
                inspection_json: serde_json::to_string(&found).unwrap_or_default(),
                symbols_json: serde_json::to_string(&dataset.manifest.symbols).unwrap_or_default(),
            })
        })
        .await
    }

    async fn read<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Store) -> Result<T, MarketError> + Send + 'static,
    ) -> Result<T, Status> {
        let permit = Arc::clone(&self.reading).acquire_owned().await;
        let store = self.store.clone();
        let answered = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            question(&store)
        });
        let internal = |_| status_of(Code::Internal, ErrorKind::Permanent, "internal error while datasets were read");
        answered.await.map_err(internal)?.map_err(|error| {
            let (code, kind) = match error.kind() {
                MarketErrorKind::Invalid => (Code::NotFound, ErrorKind::Invalid),
                MarketErrorKind::Permanent => (Code::DataLoss, ErrorKind::Permanent),
                MarketErrorKind::Retryable => (Code::Unavailable, ErrorKind::Retryable),
            };
            status_of(code, kind, &text_of(&error))
        })
    }
}
