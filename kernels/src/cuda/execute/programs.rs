//! Loaded kernels of programs: fused once compiled, kernels of single primitives until then.
//!
//! A fused kernel is compiled in the background by one thread; callers wait for it only on request. Kernels of single
//! primitives are few, shared by all programs, and compiled on demand.
//!
//! A program with families of averages has a third form, with their lengths as constants. It is compiled in the
//! background once the program runs a second time, so that a sweep over lengths compiles nothing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use trawl_plan::Program;
use twox_hash::XxHash3_64;

use crate::Executable;
use crate::cuda::codegen::lower::{Kernel, Lowered};
use crate::cuda::compile::cache::{Cache, Key};
use crate::cuda::device::{Device, Fault, Function};
use crate::cuda::execute::policy::Lowering;
use crate::cuda::execute::sequence::{Sequence, Uses, identity};

/// Maximum programs whose kernels are cached; beyond it the cache is cleared.
const PROGRAMS_MAX: usize = 256;
/// Maximum kernels with lengths as constants per process: each serves a single program.
const CONSTANT_KERNELS_MAX: usize = 64;
/// Maximum fused kernels waiting to be compiled; further ones are requested again when their program runs again.
const WAITING_MAX: usize = 64;
/// Maximum threads that compile kernels of single primitives on demand.
const COMPILERS_MAX: usize = 8;
/// Threads that compile them in advance; few, since requested programs take precedence.
const WARMING_THREADS: usize = 2;

/// Loaded kernels, in the order of their calls.
#[derive(Debug)]
pub(super) struct Ready {
    /// Hash of its functions: what runs the same kernels in the same order takes the same launch graphs.
    pub kernels: u64,
    pub sequence: Sequence,
    pub uses: Uses,
    /// One function per call.
    pub functions: Vec<Function>,
    /// Copies a series unchanged.
    pub identity: Option<(Lowered, Function)>,
    pub fused: bool,
    /// Whether its lengths are constants of the kernels.
    constant: bool,
}

/// A cached program.
struct Known {
    executable: Executable,
    lowering: Lowering,
    fused: Arc<Sequence>,
    /// The kernels in use.
    ready: Option<Arc<Ready>>,
}

/// A program's fused sequence, its kernels in use, and whether it has run before.
type Found = (Arc<Sequence>, Option<Arc<Ready>>, bool);

/// Compiles and loads kernels; shared with the background thread.
struct Loader {
    device: Arc<dyn Device>,
    cache: Arc<Cache>,
    functions: Mutex<HashMap<u128, Function>>,
    /// Kernels passed to the thread that are not loaded yet, or failed.
    asked: Mutex<HashSet<u128>>,
    /// Kernels with lengths as constants that programs use or wait for.
    constant: Mutex<HashSet<u128>>,
    /// Set when kernels are no longer needed.
    over: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Loader {
    fn key(&self, kernel: &Kernel) -> Key {
        let facts = self.device.facts();
        Key { fingerprint: kernel.fingerprint, architecture: facts.architecture(), compiler: facts.compiler }
    }

    /// The kernel, if it is loaded or can be loaded without compiling.
    fn at_hand(&self, kernel: &Kernel) -> Option<Function> {
        let loaded = locked(&self.functions).get(&kernel.fingerprint).copied();
        loaded.or_else(|| {
            let code = self.cache.known(self.key(kernel))?;
            self.load(kernel, &code).ok()
        })
    }

    fn get(&self, kernel: &Kernel) -> Result<Function, Fault> {
        if let Some(function) = locked(&self.functions).get(&kernel.fingerprint) {
            return Ok(*function);
        }
        let code = self.cache.code(self.key(kernel), || self.device.compile(kernel))?;
        self.load(kernel, &code)
    }

    fn load(&self, kernel: &Kernel, code: &[u8]) -> Result<Function, Fault> {
        let mut functions = locked(&self.functions);
        if let Some(function) = functions.get(&kernel.fingerprint) {
            return Ok(*function);
        }
        let function = self.device.load(kernel, code)?;
        functions.insert(kernel.fingerprint, function);
        Ok(function)
    }

    /// Loads the distinct kernels of a sequence, several at a time.
    fn get_all(&self, sequence: &Sequence) -> Result<Vec<Function>, Fault> {
        let kernels: BTreeMap<u128, &Kernel> =
            sequence.calls.iter().map(|c| (c.lowered.kernel.fingerprint, &c.lowered.kernel)).collect();
        let missing: Vec<&Kernel> = kernels.into_values().filter(|k| self.at_hand(k).is_none()).collect();
        let share = missing.len().div_ceil(COMPILERS_MAX).max(1);
        std::thread::scope(|scope| {
            // Errors occur again below, where they are reported.
            for kernels in missing.chunks(share) {
                scope.spawn(move || kernels.iter().for_each(|kernel| drop(self.get(kernel))));
            }
        });
        sequence.calls.iter().map(|call| self.get(&call.lowered.kernel)).collect()
    }

    /// Compiles and loads the single-primitive kernels of programs, until kernels are no longer needed.
    fn warm(&self, programs: &[Program], next: &AtomicUsize) {
        while let Some(program) = programs.get(next.fetch_add(1, Ordering::Relaxed)) {
            // Missing kernels and compile errors are reported when the program runs.
            let Ok(apart) = Sequence::apart(program) else { continue };
            for call in &apart.calls {
                if self.over.load(Ordering::Relaxed) {
                    return;
                }
                drop(self.get(&call.lowered.kernel));
            }
        }
    }

    fn compile_all(&self, kernels: &Receiver<Kernel>) {
        for kernel in kernels {
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            // A kernel that does not compile is not requested again: its programs stay with single-primitive kernels.
            if self.get(&kernel).is_ok() {
                locked(&self.asked).remove(&kernel.fingerprint);
            }
        }
    }
}

/// The kernels of all programs that have run.
pub(super) struct Programs {
    loader: Arc<Loader>,
    known: Mutex<HashMap<u64, Vec<Known>>>,
    /// Taken when the last handle is dropped.
    background: Option<SyncSender<Kernel>>,
    thread: Option<JoinHandle<()>>,
    /// Threads that compile in advance.
    warming: Mutex<Vec<JoinHandle<()>>>,
}

impl Drop for Programs {
    /// Waits for compilations in progress, at most one per thread: a process that exits during a compilation may crash.
    fn drop(&mut self) {
        self.loader.over.store(true, Ordering::Relaxed);
        drop(self.background.take());
        for thread in self.thread.take().into_iter().chain(locked(&self.warming).drain(..)) {
            // A panic of the thread has already been reported.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Programs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Programs").finish_non_exhaustive()
    }
}

impl Programs {
    /// Starts the compiling thread.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn new(device: Arc<dyn Device>, cache: Arc<Cache>) -> Result<Self, Fault> {
        let loader = Arc::new(Loader {
            device,
            cache,
            functions: Mutex::default(),
            asked: Mutex::default(),
            constant: Mutex::default(),
            over: AtomicBool::new(false),
        });
        let (background, kernels) = sync_channel(WAITING_MAX);
        let compiling = Arc::clone(&loader);
        let thread = std::thread::Builder::new().name("trawl-nvrtc".to_owned());
        let started = thread.spawn(move || compiling.compile_all(&kernels));
        let thread = started.map_err(|e| Fault::Failed(format!("the thread that compiles: {e}")))?;
        Ok(Self {
            loader,
            known: Mutex::default(),
            background: Some(background),
            thread: Some(thread),
            warming: Mutex::default(),
        })
    }

    /// Kernels for a program. With `wait`, the fused ones, however long compiling takes.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn ready(&self, program: &Executable, lowering: Lowering, wait: bool) -> Result<Arc<Ready>, Fault> {
        let hash = program.program_hash();
        let (fused, ready, again) = self.lowered(hash, program, lowering)?;
        if let Some(ready) = ready.as_ref().filter(|ready| ready.constant) {
            return Ok(Arc::clone(ready));
        }
        let constant = if wait || again { program.constant_sequence(lowering) } else { None };
        let constant = constant.filter(|constant| self.may_have(constant));
        // If it does not compile, the kernels with lengths as arguments are used.
        let faster = constant.as_ref().filter(|constant| wait || self.at_hand(constant));
        let faster = faster.and_then(|constant| Some((constant, self.loader.get_all(constant).ok()?)));
        if let (Some(constant), None) = (&constant, &faster) {
            self.ask_for(constant);
        }
        if faster.is_none()
            && let Some(ready) = ready.filter(|ready| ready.fused || !wait && !self.at_hand(&fused))
        {
            return Ok(ready);
        }
        let made = if let Some((constant, functions)) = faster {
            Ready { constant: true, ..self.made((**constant).clone(), functions, true)? }
        } else if wait || self.at_hand(&fused) {
            let functions = self.loader.get_all(&fused)?;
            self.made((*fused).clone(), functions, true)?
        } else {
            self.ask_for(&fused);
            let apart = lowering.apart(program, program.precision())?;
            let functions = self.loader.get_all(&apart)?;
            self.made(apart, functions, false)?
        };
        let made = Arc::new(made);
        let mut known = locked(&self.known);
        let found = known.get_mut(&hash).into_iter().flatten().find(|k| k.is(program, lowering));
        if let Some(known) = found {
            known.ready = Some(Arc::clone(&made));
        }
        Ok(made)
    }

    /// A kernel that belongs to no sequence, compiled if necessary.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn kernel(&self, kernel: &Kernel) -> Result<Function, Fault> {
        self.loader.get(kernel)
    }

    /// The same if it is compiled; otherwise it is compiled in the background.
    pub fn kernel_at_hand(&self, kernel: &Kernel) -> Option<Function> {
        let found = self.loader.at_hand(kernel);
        if found.is_none() {
            self.ask_for_kernel(kernel);
        }
        found
    }

    /// Starts compiling and loading the single-primitive kernels of `programs` in the background, in `f64`: those of `f32`
    /// are compiled on demand.
    pub fn warm(&self, programs: Vec<Program>) {
        let work = Arc::new((programs, AtomicUsize::new(0)));
        for number in 0..WARMING_THREADS {
            let (loader, work) = (Arc::clone(&self.loader), Arc::clone(&work));
            let thread = std::thread::Builder::new().name(format!("trawl-warm-{number}"));
            // Without a thread they are compiled on demand.
            locked(&self.warming).extend(thread.spawn(move || loader.warm(&work.0, &work.1)).ok());
        }
    }

    fn made(&self, sequence: Sequence, functions: Vec<Function>, fused: bool) -> Result<Ready, Fault> {
        let identity = if sequence.calls.len() > 1 {
            let lowered = identity(sequence.precision)?;
            let function = self.loader.get(&lowered.kernel)?;
            Some((lowered, function))
        } else {
            None
        };
        let all = functions.iter().chain(identity.as_ref().map(|(_, function)| function));
        let handles: Vec<u8> = all.flat_map(|function| function.handle().to_ne_bytes()).collect();
        let kernels = XxHash3_64::oneshot(&handles);
        Ok(Ready { kernels, uses: sequence.uses(), sequence, functions, identity, fused, constant: false })
    }

    fn at_hand(&self, sequence: &Sequence) -> bool {
        sequence.calls.iter().all(|call| self.loader.at_hand(&call.lowered.kernel).is_some())
    }

    /// Whether the process may compile kernels for a sequence with constants.
    fn may_have(&self, constant: &Sequence) -> bool {
        let mut known = locked(&self.loader.constant);
        let kernels = || constant.calls.iter().map(|call| call.lowered.kernel.fingerprint);
        let new = kernels().filter(|kernel| !known.contains(kernel)).count();
        let room = known.len() + new <= CONSTANT_KERNELS_MAX;
        if room {
            known.extend(kernels());
        }
        room
    }

    fn ask_for(&self, sequence: &Sequence) {
        sequence.calls.iter().for_each(|call| self.ask_for_kernel(&call.lowered.kernel));
    }

    fn ask_for_kernel(&self, kernel: &Kernel) {
        if locked(&self.loader.asked).insert(kernel.fingerprint)
            && self.background.as_ref().is_none_or(|thread| thread.try_send(kernel.clone()).is_err())
        {
            locked(&self.loader.asked).remove(&kernel.fingerprint);
        }
    }

    fn lowered(&self, hash: u64, program: &Executable, lowering: Lowering) -> Result<Found, Fault> {
        if let Some(found) = locked(&self.known).get(&hash).into_iter().flatten().find(|k| k.is(program, lowering)) {
            return Ok((Arc::clone(&found.fused), found.ready.clone(), true));
        }
        let fused = program.sequence(lowering)?;
        let mut known = locked(&self.known);
        if known.len() >= PROGRAMS_MAX {
            known.clear();
        }
        known.entry(hash).or_default().push(Known {
            executable: program.clone(),
            lowering,
            fused: Arc::clone(&fused),
            ready: None,
        });
        Ok((fused, None, false))
    }
}

impl Known {
    fn is(&self, program: &Executable, lowering: Lowering) -> bool {
        self.lowering == lowering && self.executable.runs_as(program)
    }
}
