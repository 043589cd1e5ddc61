//! NCCL, NVIDIA's library for collectives. cudarc's bindings open it by names that do not include `libnccl.so.2`, panic
//! where it or a function is missing, and name its results by an enum that newer results are no values of. So the nine
//! functions are called through a handle of our own (`compile/library`), and results are numbers.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Collective, Connect, RankPart};
use crate::cuda::compile::library::{Library, Open, Search};

type Communicator = *mut c_void;

const SUCCESS: c_int = 0;
/// A call that has not ended yet, of an asynchronous error.
const IN_PROGRESS: c_int = 7;
/// NCCL's number of its type of unsigned integers of 64 bits: cells are moved, whatever is in them.
const CELL: c_int = 5;
/// The oldest version used: communicators that can be aborted while another thread is in a call.
const VERSION_LEAST: c_int = 21_700;

/// The functions of the library.
#[derive(Clone, Copy)]
struct Functions {
    connect: unsafe extern "C" fn(*mut Communicator, c_int, *const c_int) -> c_int,
    all_gather: unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, Communicator, *mut c_void) -> c_int,
    begin_group: unsafe extern "C" fn() -> c_int,
    end_group: unsafe extern "C" fn() -> c_int,
    error_of: unsafe extern "C" fn(Communicator, *mut c_int) -> c_int,
    abort: unsafe extern "C" fn(Communicator) -> c_int,
    destroy: unsafe extern "C" fn(Communicator) -> c_int,
    text_of: unsafe extern "C" fn(c_int) -> *const c_char,
}

impl Functions {
    fn text(&self, result: c_int) -> String {
        // SAFETY: takes any number; the text is the library's.
        let text = unsafe { (self.text_of)(result) };
        if text.is_null() {
            return format!("NCCL's result {result}");
        }
        // SAFETY: a text that ends with 0.
        format!("NCCL: {}", unsafe { CStr::from_ptr(text) }.to_string_lossy())
    }

    fn done(&self, result: c_int) -> Result<(), String> {
        if result == SUCCESS { Ok(()) } else { Err(self.text(result)) }
    }
}

/// NCCL, found on this machine.
#[derive(Clone)]
pub struct Nccl {
    functions: Functions,
    version: c_int,
    /// Stays open until the process ends.
    _library: Arc<Open>,
}

impl std::fmt::Debug for Nccl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nccl").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Nccl {
    /// Opens the library. Never panics, whatever is missing.
    ///
    /// # Errors
    /// What is missing, as a sentence.
    pub fn find(search: &Search) -> Result<Self, String> {
        let library = Open::find(search, Library::Collectives)
            .ok_or_else(|| format!("libnccl.so.2 does not open: {}", search.place()))?;
        let missing = |name: &'static str| move || format!("this libnccl.so.2 has no {name}");
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the function's type, as NCCL declares it since 2.4.
                unsafe { library.function($name) }.ok_or_else(missing($name))?
            };
        }
        let functions = Functions {
            connect: function!("ncclCommInitAll"),
            all_gather: function!("ncclAllGather"),
            begin_group: function!("ncclGroupStart"),
            end_group: function!("ncclGroupEnd"),
            error_of: function!("ncclCommGetAsyncError"),
            abort: function!("ncclCommAbort"),
            destroy: function!("ncclCommDestroy"),
            text_of: function!("ncclGetErrorString"),
        };
        let version_of: unsafe extern "C" fn(*mut c_int) -> c_int = function!("ncclGetVersion");
        let mut version = 0;
        // SAFETY: a place for a number.
        functions.done(unsafe { version_of(&raw mut version) })?;
        if version < VERSION_LEAST {
            return Err(format!("this libnccl.so.2 is too old: version {version}, {VERSION_LEAST} is the least"));
        }
        Ok(Self { functions, version, _library: Arc::new(library) })
    }

    /// The library's version, as 22703 for 2.27.3.
    pub fn version(&self) -> i32 {
        self.version
    }
}

/// Connected devices.
struct Clique {
    nccl: Nccl,
    /// Handles, one a rank.
    communicators: Vec<u64>,
    is_aborted: AtomicBool,
}

impl std::fmt::Debug for Clique {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clique").field("ranks", &self.communicators.len()).finish_non_exhaustive()
    }
}

impl Connect for Nccl {
    fn connect(&self, ordinals: &[usize]) -> Result<Box<dyn Collective>, String> {
        let numbers: Result<Vec<c_int>, _> = ordinals.iter().map(|ordinal| c_int::try_from(*ordinal)).collect();
        let numbers = numbers.map_err(|_| "a device's number is too large".to_owned())?;
        let count = c_int::try_from(numbers.len()).map_err(|_| "too many devices".to_owned())?;
        let mut communicators: Vec<Communicator> = vec![std::ptr::null_mut(); numbers.len()];
        // SAFETY: as many places as there are numbers.
        let result = unsafe { (self.functions.connect)(communicators.as_mut_ptr(), count, numbers.as_ptr()) };
        self.functions.done(result)?;
        let communicators = communicators.into_iter().map(|handle| handle as u64).collect();
        Ok(Box::new(Clique { nccl: self.clone(), communicators, is_aborted: AtomicBool::new(false) }))
    }
}

impl Collective for Clique {
    fn all_gather(&self, parts: &[RankPart<'_>], cells: usize) -> Result<(), String> {
        let fits = |part: &RankPart<'_>| {
            let all = cells.checked_mul(parts.len());
            part.send.cells() >= cells && all.is_some_and(|all| part.receive.cells() >= all)
        };
        if parts.len() != self.communicators.len() || !parts.iter().all(fits) {
            return Err("blocks that are smaller than what is gathered".to_owned());
        }
        if self.is_aborted.load(Ordering::Acquire) {
            return Err("the communicator was aborted".to_owned());
        }
        let functions = &self.nccl.functions;
        // SAFETY: takes nothing.
        functions.done(unsafe { (functions.begin_group)() })?;
        let mut enqueued = Ok(());
        for (part, communicator) in parts.iter().zip(&self.communicators) {
            let (send, receive) = (part.send.at(0) as *const c_void, part.receive.at(0) as *mut c_void);
            // SAFETY: blocks of that many cells in the memory of the rank's device, whose owner waits for the stream.
            let result = unsafe {
                (functions.all_gather)(send, receive, cells, CELL, *communicator as Communicator, part.stream.handle())
            };
            enqueued = functions.done(result);
            if enqueued.is_err() {
                break;
            }
        }
        // A group that was begun has to be ended, also after an error.
        // SAFETY: takes nothing.
        let ended = functions.done(unsafe { (functions.end_group)() });
        enqueued.and(ended)
    }

    fn check(&self) -> Result<(), String> {
        for communicator in &self.communicators {
            let mut error = SUCCESS;
            if self.is_aborted.load(Ordering::Acquire) {
                return Err("the communicator was aborted".to_owned());
            }
            // SAFETY: a communicator that was neither aborted nor destroyed, and a place for a number.
            let result = unsafe { (self.nccl.functions.error_of)(*communicator as Communicator, &raw mut error) };
            self.nccl.functions.done(result)?;
            if error != IN_PROGRESS {
                self.nccl.functions.done(error)?;
            }
        }
        Ok(())
    }

    fn abort(&self) {
        if !self.is_aborted.swap(true, Ordering::AcqRel) {
            for communicator in &self.communicators {
                // SAFETY: released once. NCCL allows this while another thread is in a call of the communicator.
                let _ = unsafe { (self.nccl.functions.abort)(*communicator as Communicator) };
            }
        }
    }
}

impl Drop for Clique {
    fn drop(&mut self) {
        if !self.is_aborted.swap(true, Ordering::AcqRel) {
            for communicator in &self.communicators {
                // SAFETY: released once; nothing is under way, or it was waited for.
                let _ = unsafe { (self.nccl.functions.destroy)(*communicator as Communicator) };
            }
        }
    }
}
