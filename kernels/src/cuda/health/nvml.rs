//! NVML: what the driver knows of its devices' state beside computing. Loaded at run time, as the other libraries are: a machine
//! without it computes as well. All calls into it are in this file.
//!
//! A loader of our own in place of a crate of bindings: sixteen functions are used. Results are integers, since those of later versions
//! would not be valid values of an enum.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr;

use crate::cuda::compile::library::{Library, Open, Search};
use crate::cuda::health::finding::{Health, Reading, Throttling};

const SUCCESS: c_int = 0;
/// The device does not respond, or has left the bus.
const GPU_IS_LOST: c_int = 15;
/// The device has to be reset before it is used again.
const RESET_REQUIRED: c_int = 16;
/// Errors that were not corrected, since the driver was loaded.
const UNCORRECTED: c_int = 1;
const VOLATILE: c_int = 0;
/// The event of an XID.
const EVENT_XID: c_ulonglong = 0x8;
/// The instance in an event that is about a whole GPU.
const NO_INSTANCE: c_uint = c_uint::MAX;
/// Bytes of the driver's version, with the final 0.
const VERSION_BYTES: usize = 80;
/// Maximum events that are taken at one time; the others are taken next time.
const EVENTS_MAX: usize = 64;

/// An event, as NVML lays it out.
#[repr(C)]
struct EventData {
    device: *mut c_void,
    kind: c_ulonglong,
    data: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

/// Declares the functions in use; a driver may lack those behind `optional`.
macro_rules! functions {
    ($($field:ident = $name:literal ($($argument:ty),*) -> $result:ty;)* ; optional: $($more:ident = $more_name:literal ($($more_argument:ty),*);)*) => {
        struct Functions {
            $($field: unsafe extern "C" fn($($argument),*) -> $result,)*
            $($more: Option<unsafe extern "C" fn($($more_argument),*) -> c_int>,)*
        }

        impl Functions {
            fn of(library: &Open) -> Result<Self, NoNvml> {
                Ok(Self {
                    $(
                        // SAFETY: the type is that of NVML's header, whose functions never change theirs.
                        $field: unsafe { library.function($name) }.ok_or(NoNvml::TooOld { function: $name })?,
                    )*
                    $(
                        // SAFETY: as above.
                        $more: unsafe { library.function($more_name) },
                    )*
                })
            }
        }
    };
}

functions! {
    init = "nvmlInit_v2" () -> c_int;
    shutdown = "nvmlShutdown" () -> c_int;
    error_string = "nvmlErrorString" (c_int) -> *const c_char;
    by_uuid = "nvmlDeviceGetHandleByUUID" (*const c_char, *mut *mut c_void) -> c_int;
    ; optional:
    driver_version = "nvmlSystemGetDriverVersion" (*mut c_char, c_uint);
    is_slice = "nvmlDeviceIsMigDeviceHandle" (*mut c_void, *mut c_uint);
    gpu_of_slice = "nvmlDeviceGetDeviceHandleFromMigDeviceHandle" (*mut c_void, *mut *mut c_void);
    instance = "nvmlDeviceGetGpuInstanceId" (*mut c_void, *mut c_uint);
    errors = "nvmlDeviceGetTotalEccErrors" (*mut c_void, c_int, c_int, *mut c_ulonglong);
    retired_pending = "nvmlDeviceGetRetiredPagesPendingStatus" (*mut c_void, *mut c_int);
    remapped_rows = "nvmlDeviceGetRemappedRows" (*mut c_void, *mut c_uint, *mut c_uint, *mut c_uint, *mut c_uint);
    clock_reasons = "nvmlDeviceGetCurrentClocksEventReasons" (*mut c_void, *mut c_ulonglong);
    new_events = "nvmlEventSetCreate" (*mut *mut c_void);
    free_events = "nvmlEventSetFree" (*mut c_void);
    register = "nvmlDeviceRegisterEvents" (*mut c_void, c_ulonglong, *mut c_void);
    wait = "nvmlEventSetWait_v2" (*mut c_void, *mut EventData, c_uint);
}

/// Why nothing is known of the devices' state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoNvml {
    /// The library was not found.
    #[error(
        "NVML (libnvidia-ml.so.1) was not found, so errors of memory, XIDs and throttling of GPUs are not seen; {place}; a \
         container needs the driver's capability 'utility'"
    )]
    Absent {
        /// Where it was searched for, as a clause.
        place: String,
    },
    /// The library lacks a function.
    #[error("NVML is too old: it has no {function}; errors of memory, XIDs and throttling of GPUs are not seen")]
    TooOld {
        /// Name of the function.
        function: &'static str,
    },
    /// The library does not start.
    #[error("NVML does not start: {0}; errors of memory, XIDs and throttling of GPUs are not seen")]
    Failed(String),
}

/// A device, as NVML knows it. Valid for the [`Nvml`] that gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handle {
    /// The whole GPU, of a slice too: what is read here, NVML knows of whole GPUs.
    gpu: *mut c_void,
    /// The instance of a slice.
    instance: Option<c_uint>,
}

// SAFETY: handles are names of the library's, which any thread may use.
unsafe impl Send for Handle {}

/// The library, started.
pub struct Nvml {
    functions: Functions,
    /// Where events of registered devices arrive.
    events: Option<*mut c_void>,
}

// SAFETY: NVML may be called by any thread; the event set is used through `&mut self` only.
unsafe impl Send for Nvml {}

impl std::fmt::Debug for Nvml {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nvml").field("has_events", &self.events.is_some()).finish_non_exhaustive()
    }
}

/// The value that a call writes; `None` where there is no such function or the device has no such value.
fn value<T: Default>(call: impl FnOnce(*mut T) -> Option<c_int>) -> Result<Option<T>, c_int> {
    let mut value = T::default();
    match call(&raw mut value) {
        Some(SUCCESS) => Ok(Some(value)),
        Some(code @ (GPU_IS_LOST | RESET_REQUIRED)) => Err(code),
        _ => Ok(None),
    }
}

impl Nvml {
    /// Opens and starts the library: the system's, or one of the folders.
    ///
    /// # Errors
    /// [`NoNvml`].
    pub fn open(search: &Search) -> Result<Self, NoNvml> {
        let library = Open::find_of_system(search, Library::Management);
        let library = library.ok_or_else(|| NoNvml::Absent { place: search.place() })?;
        let functions = Functions::of(&library)?;
        // SAFETY: the library stays open.
        let started = unsafe { (functions.init)() };
        if started != SUCCESS {
            return Err(NoNvml::Failed(text_of(&functions, started)));
        }
        let mut events = ptr::null_mut();
        // SAFETY: a place for a handle.
        let made = functions.new_events.is_some_and(|new| unsafe { new(&raw mut events) } == SUCCESS);
        Ok(Self { functions, events: made.then_some(events) })
    }

    /// The version of the driver, as `580.159`.
    pub fn driver_version(&self) -> Option<String> {
        let mut text: [c_char; VERSION_BYTES] = [0; VERSION_BYTES];
        let length = c_uint::try_from(text.len()).ok()?;
        // SAFETY: at most so many bytes are written, the last of them 0.
        let code = unsafe { self.functions.driver_version?(text.as_mut_ptr(), length) };
        // SAFETY: a text that the library ended.
        (code == SUCCESS).then(|| unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
    }

    /// The device of a UUID, `GPU-...` or `MIG-...`.
    ///
    /// # Errors
    /// Why NVML does not know it.
    pub fn device(&self, uuid: &str) -> Result<Handle, String> {
        let name = CString::new(uuid).map_err(|e| e.to_string())?;
        let mut device = ptr::null_mut();
        // SAFETY: a text, and a place for a handle.
        let code = unsafe { (self.functions.by_uuid)(name.as_ptr(), &raw mut device) };
        if code != SUCCESS {
            return Err(text_of(&self.functions, code));
        }
        // SAFETY: the device was just given by the library; places for what is written.
        let is_slice = value(|to| Some(unsafe { self.functions.is_slice?(device, to) }));
        if is_slice != Ok(Some(1)) {
            return Ok(Handle { gpu: device, instance: None });
        }
        let mut gpu = ptr::null_mut();
        // SAFETY: as above.
        let code = self.functions.gpu_of_slice.map(|of| unsafe { of(device, &raw mut gpu) });
        if code != Some(SUCCESS) {
            return Err("the GPU that the slice is a part of is not known".to_owned());
        }
        // SAFETY: as above.
        let instance = value(|to| Some(unsafe { self.functions.instance?(device, to) }));
        Ok(Handle { gpu, instance: Some(instance.ok().flatten().unwrap_or(NO_INSTANCE)) })
    }

    /// What is known of a device now.
    pub fn read(&self, device: Handle) -> Reading {
        self.try_read(device)
            .unwrap_or_else(|code| Reading { unreachable: Some(text_of(&self.functions, code)), ..Reading::default() })
    }

    fn try_read(&self, Handle { gpu, .. }: Handle) -> Result<Reading, c_int> {
        let functions = &self.functions;
        // SAFETY: of this and the calls below: the handle is the library's; places for what is written.
        let errors = value(|to| Some(unsafe { functions.errors?(gpu, UNCORRECTED, VOLATILE, to) }))?;
        let retired = value(|to| Some(unsafe { functions.retired_pending?(gpu, to) }))?;
        // Corrected, uncorrected, pending, failed.
        let rows: Option<[c_uint; 4]> = value(|to: *mut [c_uint; 4]| {
            let at = |index: usize| to.cast::<c_uint>().wrapping_add(index);
            Some(unsafe { functions.remapped_rows?(gpu, at(0), at(1), at(2), at(3)) })
        })?;
        let clocks = value(|to| Some(unsafe { functions.clock_reasons?(gpu, to) }))?;
        let [_, _, is_pending, has_failed] = rows.unwrap_or_default();
        Ok(Reading {
            uncorrected_errors: errors,
            is_repair_pending: is_pending != 0 || retired.is_some_and(|pending| pending != 0),
            has_repair_failed: has_failed != 0,
            throttling: Throttling::of_bits(clocks.unwrap_or(0)),
            unreachable: None,
        })
    }

    /// From now on XIDs of this device are kept for [`Self::take_xids`]; `false` where the driver does not report them.
    pub fn listen(&mut self, device: Handle) -> bool {
        let (Some(register), Some(events)) = (self.functions.register, self.events) else { return false };
        // SAFETY: handle and set are the library's.
        unsafe { register(device.gpu, EVENT_XID, events) == SUCCESS }
    }

    /// The XIDs since the last call: for each the GPU, and the instance where it is about one.
    pub fn take_xids(&mut self) -> Vec<Event> {
        let (Some(wait), Some(events)) = (self.functions.wait, self.events) else { return Vec::new() };
        let mut taken = Vec::new();
        while taken.len() < EVENTS_MAX {
            let mut data =
                EventData { device: ptr::null_mut(), kind: 0, data: 0, gpu_instance: 0, compute_instance: 0 };
            // SAFETY: the set is the library's; a place of the event's layout. It does not wait.
            match unsafe { wait(events, &raw mut data, 0) } {
                SUCCESS if data.kind == EVENT_XID => taken.push(Event {
                    gpu: data.device,
                    instance: Some(data.gpu_instance).filter(|instance| *instance != NO_INSTANCE),
                    xid: data.data,
                }),
                SUCCESS => {}
                // None is left (a time-out), or the set is of no more use: what the device lacks then is seen by reading it.
                _ => break,
            }
        }
        taken
    }
}

/// An XID, an error that the driver logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    gpu: *mut c_void,
    instance: Option<c_uint>,
    /// Its number.
    pub xid: u64,
}

impl Event {
    /// Whether it is about this device: of a slice, about its own instance or about the whole GPU.
    pub fn is_of(&self, device: Handle) -> bool {
        self.gpu == device.gpu
            && match (device.instance, self.instance) {
                (Some(own), Some(instance)) => own == instance,
                _ => true,
            }
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // SAFETY: the set is freed once, and the library was started once by `self`. It stays open.
        unsafe {
            if let (Some(free), Some(events)) = (self.functions.free_events, self.events) {
                free(events);
            }
            (self.functions.shutdown)();
        }
    }
}

/// The state of devices at one time, by UUID: what NVML says of each, or why it says nothing.
///
/// # Errors
/// [`NoNvml`]. A device that NVML does not know is an error of its own, in its place.
pub fn look<'a>(
    search: &Search,
    devices: impl IntoIterator<Item = (&'a str, bool)>,
) -> Result<Vec<Result<Health, String>>, NoNvml> {
    let nvml = Nvml::open(search)?;
    let of = |(uuid, is_slice)| Ok(Health::of(&nvml.read(nvml.device(uuid)?), is_slice));
    Ok(devices.into_iter().map(of).collect())
}

/// The version of the driver by its own count, such as `580.159`; `None` without NVML.
pub fn driver_version(search: &Search) -> Option<String> {
    Nvml::open(search).ok()?.driver_version()
}

fn text_of(functions: &Functions, code: c_int) -> String {
    // SAFETY: the library gives a text that is never freed, for any number.
    let text = unsafe { (functions.error_string)(code) };
    if text.is_null() {
        return format!("NVML code {code}");
    }
    // SAFETY: as above.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    format!("{text} (NVML code {code})")
}
