//! The GPUs of this machine, as the command line and Python open them.

use std::path::Path;
use std::sync::Arc;

use trawl_kernels::cuda::{
    self, Cache, Device as _, DeviceName, Executor, ExecutorOptions, Facts, Fault, Fleet, Gpu, Search,
};

/// Opens devices, all at the same time, with the options for each.
///
/// # Errors
/// Why one of them cannot be used.
pub fn open_all(
    gpus: &[Gpu],
    cache: &Arc<Cache>,
    options: impl Fn(&Facts) -> ExecutorOptions + Sync,
) -> Result<Fleet, String> {
    let open = |gpu: &Gpu| {
        let device = cuda::Cuda::open(gpu)?;
        let options = options(device.facts());
        Executor::new(Arc::new(device), Arc::clone(cache), options)
    };
    let opened: Result<Vec<Executor>, String> = std::thread::scope(|scope| {
        let opening: Vec<_> = gpus.iter().map(|gpu| scope.spawn(|| open(gpu))).collect();
        let opened = opening.into_iter().zip(gpus).map(|(opening, gpu)| {
            let opened = opening.join().unwrap_or_else(|_| Err(Fault::Failed("a panic".to_owned())));
            opened.map_err(|fault| format!("device {}, {}: {fault}", gpu.ordinal, gpu.name))
        });
        opened.collect()
    });
    Fleet::new(opened?).ok_or_else(|| "no device".to_owned())
}

/// The GPUs to use here: those of these names, or by default. One that must not be used, because its memory errs for instance, is
/// left out by default.
///
/// # Errors
/// Why there is none, or why one of them cannot be used.
pub fn gpus(wanted: Option<&[DeviceName]>) -> Result<Vec<Gpu>, String> {
    let search = Search::of_environment();
    let found = cuda::gpus(&search, wanted).map_err(|why| why.to_string())?;
    let states = cuda::look_at_health(&search, found.iter().map(|gpu| (gpu.uuid.as_str(), gpu.slice.is_some())));
    let states = states.unwrap_or_else(|why| {
        tracing::debug!("{why}");
        Vec::new()
    });
    let refusals = states.iter().zip(&found).map(|(state, gpu)| {
        let refusal = state.as_ref().ok()?.refusal(gpu.slice.is_some())?;
        Some(format!("device {}, {}: {refusal}", gpu.ordinal, gpu.name))
    });
    let mut refusals: Vec<Option<String>> = refusals.collect();
    refusals.resize(found.len(), None);
    let refused: Vec<String> = refusals.iter().flatten().cloned().collect();
    if let Some(first) = refused.first().filter(|_| wanted.is_some() || refused.len() == found.len()) {
        return Err(first.clone());
    }
    refused.iter().for_each(|why| tracing::warn!("not used: {why}"));
    Ok(found.into_iter().zip(refusals).filter(|(_, refusal)| refusal.is_none()).map(|(gpu, _)| gpu).collect())
}

/// The cache of compiled kernels: in memory, or in a folder that only this user can write, where processes share it.
pub fn kernel_cache(folder: Option<&Path>) -> Cache {
    let Some(folder) = folder else { return Cache::in_memory() };
    Cache::in_folder(folder).unwrap_or_else(|error| {
        tracing::warn!(%error, "compiled kernels are not cached: every process compiles them again");
        Cache::in_memory()
    })
}
