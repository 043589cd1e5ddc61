//! NVML of the test driver is as strict as NVIDIA's: what is asked too early, of no device or in no room is refused with its codes,
//! and every code can be had of every call.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};
use trawl_kernels::cuda::{NoNvml, Nvml, Search};
use trawl_test_driver::{Driver, TestDevice};

const SUCCESS: c_int = 0;
const UNINITIALIZED: c_int = 1;
const INVALID_ARGUMENT: c_int = 2;
const NOT_SUPPORTED: c_int = 3;
const NOT_FOUND: c_int = 6;
const INSUFFICIENT_SIZE: c_int = 7;
const TIMEOUT: c_int = 10;

/// Room for any answer.
type Room = [u64; 16];

fn library() -> &'static Library {
    static OPEN: std::sync::OnceLock<Library> = std::sync::OnceLock::new();
    OPEN.get_or_init(|| {
        let path = Driver::built().folder().join("libnvidia-ml.so.1");
        // SAFETY: a library of the tests, which has no initialisers with requirements on the process.
        unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.expect("NVML of the test driver")
    })
}

/// Calls a function of these types of arguments.
macro_rules! call {
    ($name:literal ($($type:ty = $argument:expr),*)) => {{
        // SAFETY: the types are NVML's, and what is written fits.
        unsafe {
            let function: Symbol<unsafe extern "C" fn($($type),*) -> c_int> =
                library().get($name.as_bytes()).expect($name);
            function($($argument),*)
        }
    }};
}

fn handle_of(uuid: &str) -> (c_int, *mut c_void) {
    let (uuid, mut handle) = (CString::new(uuid).expect("a text"), ptr::null_mut());
    let code = call!("nvmlDeviceGetHandleByUUID" (*const c_char = uuid.as_ptr(), *mut *mut c_void = &raw mut handle));
    (code, handle)
}

/// One test, since whether the library is started is the process's.
#[test]
fn what_is_wrong_is_refused_with_nvmls_codes() {
    let [device, slice, faulty] =
        ["", "slice=1g.10gb:16", "fault=nvmlDeviceGetTotalEccErrors:2:999"].map(TestDevice::new);
    let uuid = |device: &TestDevice| device.found().uuid;
    let mut room: Room = [0; 16];
    let at = room.as_mut_ptr();
    // Before it is started, and after it has ended.
    assert_eq!(handle_of("GPU-0").0, UNINITIALIZED);
    assert_eq!(call!("nvmlShutdown"()), UNINITIALIZED);
    assert_eq!(call!("nvmlInit_v2"()), SUCCESS);
    assert_eq!(call!("nvmlInit_v2"()), SUCCESS, "it counts");
    assert_eq!(call!("nvmlShutdown"()), SUCCESS);
    assert_eq!(handle_of("GPU-0").0, NOT_FOUND);
    let version = |bytes: c_uint| call!("nvmlSystemGetDriverVersion" (*mut c_char = at.cast(), c_uint = bytes));
    assert_eq!((version(4), version(80)), (INSUFFICIENT_SIZE, SUCCESS));

    let (code, gpu) = handle_of(&uuid(&device));
    assert_eq!(code, SUCCESS);
    let errors = |handle: *mut c_void, kind: c_int, counter: c_int| call!("nvmlDeviceGetTotalEccErrors" (*mut c_void = handle, c_int = kind, c_int = counter, *mut u64 = at));
    assert_eq!(
        (errors(gpu, 1, 0), errors(gpu, 2, 0), errors(gpu, 1, 2)),
        (SUCCESS, INVALID_ARGUMENT, INVALID_ARGUMENT)
    );
    assert_eq!(errors(ptr::without_provenance_mut(64), 1, 0), INVALID_ARGUMENT, "no handle");
    device.set_health("ecc=off");
    assert_eq!(errors(gpu, 1, 0), NOT_SUPPORTED);
    device.set_health("gone=1");
    assert_eq!(errors(gpu, 1, 0), 15);
    let (_, broken) = handle_of(&uuid(&faulty));
    assert_eq!([errors(broken, 1, 0), errors(broken, 1, 0), errors(broken, 1, 0)], [SUCCESS, 999, SUCCESS]);
    assert_eq!(faulty.calls("nvmlDeviceGetTotalEccErrors"), 3);

    // A slice: what is asked of whole GPUs is refused, and its GPU reports no rows.
    let (code, own) = handle_of(&uuid(&slice));
    assert_eq!(code, SUCCESS);
    assert_eq!(errors(own, 1, 0), NOT_SUPPORTED);
    let whole = |handle: *mut c_void| {
        let mut gpu = ptr::null_mut();
        let (name, to) = (handle, &raw mut gpu);
        let code = call!("nvmlDeviceGetDeviceHandleFromMigDeviceHandle" (*mut c_void = name, *mut *mut c_void = to));
        (code, gpu)
    };
    let (code, parent) = whole(own);
    assert!(code == SUCCESS && parent != own);
    assert_eq!(whole(parent).0, INVALID_ARGUMENT, "no slice");
    let rows = |handle: *mut c_void| {
        let at: *mut c_uint = at.cast();
        call!("nvmlDeviceGetRemappedRows" (*mut c_void = handle, *mut c_uint = at, *mut c_uint = at.wrapping_add(1),
            *mut c_uint = at.wrapping_add(2), *mut c_uint = at.wrapping_add(3)))
    };
    device.set_health("");
    assert_eq!((rows(gpu), rows(parent)), (SUCCESS, NOT_SUPPORTED));

    // Events: of registered devices alone, each once.
    let mut set = ptr::null_mut();
    assert_eq!(call!("nvmlEventSetCreate" (*mut *mut c_void = &raw mut set)), SUCCESS);
    let wait = |set: *mut c_void| call!("nvmlEventSetWait_v2" (*mut c_void = set, *mut u64 = at, c_uint = 0));
    let register = |handle: *mut c_void, types: u64| call!("nvmlDeviceRegisterEvents" (*mut c_void = handle, u64 = types, *mut c_void = set));
    assert_eq!(register(gpu, 0), INVALID_ARGUMENT);
    assert_eq!(register(own, 8), NOT_SUPPORTED);
    device.set_health("xid=48:0");
    assert_eq!(wait(set), TIMEOUT);
    assert_eq!(register(gpu, 8), SUCCESS);
    assert_eq!((wait(set), wait(set)), (SUCCESS, TIMEOUT));
    assert_eq!((room[0], room[1], room[2], room[3]), (gpu as u64, 8, 48, u64::MAX));
    assert_eq!(call!("nvmlEventSetFree" (*mut c_void = set)), SUCCESS);
    assert_eq!(wait(set), INVALID_ARGUMENT, "it was freed");
    assert_eq!(call!("nvmlShutdown"()), SUCCESS);
    assert_eq!(handle_of(&uuid(&device)).0, UNINITIALIZED);

    // Through Trawl's loader.
    let nvml = Nvml::open(&Driver::built().search()).expect("NVML");
    assert_eq!(nvml.driver_version().as_deref(), Some("580.00.0"));
    assert!(nvml.device("GPU-0").expect_err("no such device").contains("Not Found"));
    drop(nvml);
    assert_eq!(handle_of("GPU-0").0, UNINITIALIZED, "a dropped one ends it");
    without_nvml();
}

/// What a machine without NVML says is not seen; the library of this process has the name of the system's, which may be there too.
fn without_nvml() {
    let nowhere = Search { folders: vec!["/nonexistent".into()] };
    if let Err(why) = Nvml::open(&nowhere) {
        let text = why.to_string();
        assert!(matches!(why, NoNvml::Absent { .. } | NoNvml::Failed(_)), "{text}");
        assert!(text.contains("XIDs"), "{text}");
    }
}
