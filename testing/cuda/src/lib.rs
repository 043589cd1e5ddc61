//! NVIDIA's driver, run-time compiler, NVML and NCCL for tests: shared libraries of their names that compute, on a machine without a GPU.
//!
//! The libraries are C++ (`testing/cuda/driver`), built once by the machine's C++ compiler into the target folder. They are opened
//! as NVIDIA's are, by the program under test: a process of `trawl` gets [`Driver::environment`], a test that calls the
//! engine in its own process opens a [`TestDevice`]. Kernels run on the emulator of `kernels/cuda/emulator`.
//!
//! Settings of a device are the words of `testing/cuda/driver/settings.h`, such as `memory=1000000 fault=cuLaunchKernel:2:700`.

use std::ffi::{CString, OsString, c_char};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use trawl_kernels::cuda::{Cuda, DeviceName, Gpu, Search, gpus};

/// Sources of the libraries, and the emulator that kernels are compiled beside: name and text.
const SOURCES: [(&str, &str); 16] = [
    ("driver.cpp", include_str!("../driver/driver.cpp")),
    ("process.h", include_str!("../driver/process.h")),
    ("collective.h", include_str!("../driver/collective.h")),
    ("collectives.h", include_str!("../driver/collectives.h")),
    ("nccl.cpp", include_str!("../driver/nccl.cpp")),
    ("graphs.h", include_str!("../driver/graphs.h")),
    ("device.h", include_str!("../driver/device.h")),
    ("memory.h", include_str!("../driver/memory.h")),
    ("results.h", include_str!("../driver/results.h")),
    ("settings.h", include_str!("../driver/settings.h")),
    ("image.h", include_str!("../driver/image.h")),
    ("tests.h", include_str!("../driver/tests.h")),
    ("nvml.h", include_str!("../driver/nvml.h")),
    ("nvml.cpp", include_str!("../driver/nvml.cpp")),
    ("compiler.cpp", include_str!("../driver/compiler.cpp")),
    ("emulator.h", include_str!("../../../kernels/cuda/emulator/emulator.h")),
];

/// Sources, and the libraries made of each: file and the name that it goes by for the loader. `libcuda.so` is the name that the
/// driver's bindings try first: where it is open, or in the loader's path, it is taken before a driver of the machine.
const LIBRARIES: [(&str, &[&str]); 4] = [
    ("driver.cpp", &["libcuda.so.1", "libcuda.so"]),
    ("nvml.cpp", &["libnvidia-ml.so.1"]),
    ("nccl.cpp", &["libnccl.so.2"]),
    ("compiler.cpp", &["libnvrtc.so.13"]),
];

/// Variable with the settings of a process's devices, separated by semicolons.
pub const SETTINGS_VARIABLE: &str = "TRAWL_TEST_DRIVER";
/// Variable with a file to which a process appends what each device did, as a line of JSON, when it ends.
pub const REPORT_VARIABLE: &str = "TRAWL_TEST_DRIVER_REPORT";

/// The libraries, built.
#[derive(Debug)]
pub struct Driver {
    folder: PathBuf,
}

/// What a device did so far. Launches and allocations count calls, failed ones included; copies count when they happen.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Allocations of device memory that were requested.
    pub allocations: u64,
    /// Launches of single kernels.
    pub launches: u64,
    /// Modules loaded.
    pub modules: u64,
    /// Times that the memory pool was trimmed.
    pub trims: u64,
    /// Copies to the device.
    pub copies_in: u64,
    /// Bytes copied to the device.
    pub copied_in_bytes: u64,
    /// Copies from the device.
    pub copies_out: u64,
    /// Bytes copied from the device.
    pub copied_out_bytes: u64,
    /// Bytes currently allocated.
    pub used_bytes: u64,
    /// Maximum bytes allocated at one time, without what left in the stream of the last allocation.
    pub most_bytes: u64,
    /// Allocations that were not released.
    pub live_allocations: u64,
    /// Events that were not destroyed.
    pub live_events: u64,
    /// Bytes of managed memory that were moved to the device.
    pub moved_bytes: u64,
    /// Kernels launched, by themselves or in graphs.
    pub kernels: u64,
    /// Launches of graphs.
    pub graph_launches: u64,
    /// Graphs and their instances that were not destroyed.
    pub live_graphs: u64,
    /// All-gathers that it took part in to the end.
    pub gathers: u64,
    /// Bytes of pinned memory that were not released.
    pub pinned_bytes: u64,
}

/// A device of this process, with settings, faults and counts of its own.
#[derive(Debug)]
pub struct TestDevice {
    ordinal: usize,
}

/// The folder for what tests build: `tmp` of the target folder that this executable is in.
fn target_folder() -> PathBuf {
    let executable = std::env::current_exe().expect("the path of this executable");
    // target/PROFILE/deps/NAME, or examples in place of deps.
    let target = executable.ancestors().nth(3).expect("an executable in a target folder");
    target.join("tmp")
}

/// FNV-1a.
fn digest<'a>(texts: impl Iterator<Item = &'a str>) -> u64 {
    let bytes = texts.flat_map(|text| text.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn compiler() -> OsString {
    std::env::var_os("CXX").filter(|name| !name.is_empty()).unwrap_or_else(|| "c++".into())
}

fn build(folder: &Path) {
    for (name, text) in SOURCES {
        std::fs::write(folder.join(name), text).expect("a source file");
    }
    for (source, libraries) in LIBRARIES {
        for library in libraries {
            let compiler = compiler();
            // Under a name of its own until it is complete.
            let fresh = folder.join(format!("{library}.tmp"));
            let run = Command::new(&compiler)
                .args(["-std=c++17", "-O1", "-fPIC", "-shared", "-fno-gnu-unique", "-Wall", "-Wextra", "-Werror"])
                .args(["-Wno-missing-field-initializers", &format!("-Wl,-soname,{library}")])
                .arg(folder.join(source))
                .arg("-o")
                .arg(&fresh)
                .output()
                .unwrap_or_else(|e| panic!("this test needs a C++ compiler, and {compiler:?} does not run: {e}"));
            assert!(run.status.success(), "{source}:\n{}", String::from_utf8_lossy(&run.stderr));
            std::fs::rename(&fresh, folder.join(library)).expect("a library");
        }
    }
}

impl Driver {
    /// Builds the libraries, unless that was done before.
    ///
    /// # Panics
    /// Without a C++ compiler.
    pub fn built() -> &'static Self {
        static BUILT: OnceLock<Driver> = OnceLock::new();
        BUILT.get_or_init(|| {
            let digest = digest(SOURCES.iter().map(|(_, text)| *text));
            let folder = target_folder().join(format!("test-driver-{digest:016x}"));
            std::fs::create_dir_all(&folder).expect("a folder for the test driver");
            // Tests of several processes run at the same time.
            let lock = std::fs::File::create(folder.join("lock")).expect("a file");
            lock.lock().expect("a lock");
            let last = LIBRARIES[LIBRARIES.len() - 1].1[0];
            if !folder.join(last).is_file() {
                build(&folder);
            }
            Self { folder }
        })
    }

    /// The folder with the libraries.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where this process finds the libraries.
    pub fn search(&self) -> Search {
        Search { folders: vec![self.folder.clone()] }
    }

    /// Variables with which a process finds the libraries, and has devices with these settings, separated by semicolons.
    pub fn environment(&self, settings: &str) -> Vec<(&'static str, OsString)> {
        let folder = || self.folder.clone().into_os_string();
        let mut variables = vec![("TRAWL_CUDA_LIBRARIES", folder()), (SETTINGS_VARIABLE, settings.into())];
        variables.push(("CXX", compiler()));
        // A driver of the machine's own takes precedence over a folder that is named.
        if ["/proc/driver/nvidia", "/dev/dxg"].iter().any(|path| Path::new(path).exists()) {
            variables.push(("LD_LIBRARY_PATH", folder()));
        }
        variables
    }

    /// A function that NVIDIA's driver does not have.
    ///
    /// # Safety
    /// `F` must be the function's type.
    unsafe fn function<F: Copy>(&self, name: &str) -> F {
        static OPEN: OnceLock<Library> = OnceLock::new();
        let library = OPEN.get_or_init(|| {
            let path = self.folder.join(LIBRARIES[0].1[1]);
            // SAFETY: our own library, which has no initialisers with requirements on the process.
            let opened = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) };
            opened.unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        });
        // SAFETY: the caller's promise; the library is never closed.
        *unsafe { library.get::<F>(name.as_bytes()) }.expect("a function of the test driver")
    }
}

/// Opens NVML of the test driver, so that it is the one that this process finds by its name.
fn open_nvml() {
    static OPEN: OnceLock<Library> = OnceLock::new();
    OPEN.get_or_init(|| {
        let path = Driver::built().folder.join(LIBRARIES[1].1[0]);
        // SAFETY: our own library, which has no initialisers with requirements on the process.
        let opened = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) };
        opened.unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    });
}

impl TestDevice {
    /// Adds a device to those of this process. With settings that there are not, the process ends.
    ///
    /// # Panics
    /// Without a C++ compiler.
    pub fn new(settings: &str) -> Self {
        let settings = CString::new(settings).expect("a text without a zero byte");
        open_nvml();
        // SAFETY: this is the function's type; the text is read by the call alone.
        let ordinal = unsafe {
            let add = Driver::built().function::<unsafe extern "C" fn(*const c_char) -> i32>("trawl_test_device");
            add(settings.as_ptr())
        };
        Self { ordinal: usize::try_from(ordinal).expect("a number from 1") }
    }

    /// The driver's number of the device.
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// Opens it as any device of the machine is opened.
    ///
    /// # Panics
    /// If the driver has none that plans can run on.
    pub fn open(&self) -> Cuda {
        Cuda::open(&self.found()).unwrap_or_else(|e| panic!("{e}"))
    }

    /// What the probe of devices finds of it.
    ///
    /// # Panics
    /// If the driver has none that plans can run on.
    pub fn found(&self) -> Gpu {
        let own = gpus(&Driver::built().search(), Some(&[DeviceName::Ordinal(self.ordinal)]));
        own.unwrap_or_else(|e| panic!("{e}")).remove(0)
    }

    fn number(&self) -> i32 {
        i32::try_from(self.ordinal).unwrap_or(i32::MAX)
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        // SAFETY: this is the function's type, and `Counts` has the layout of the struct that it fills in.
        unsafe {
            let read = Driver::built().function::<unsafe extern "C" fn(i32, *mut Counts)>("trawl_test_counts");
            read(self.number(), &raw mut counts);
        }
        counts
    }

    /// Changes what NVML says of the device, by the words of `settings.h` that are about it (`ecc=1 throttle=hot`); words that are left
    /// out are as of a healthy device. XIDs are reported in addition to earlier ones.
    ///
    /// # Panics
    /// If the words contain a zero byte.
    pub fn set_health(&self, words: &str) {
        let words = CString::new(words).expect("a text without a zero byte");
        // SAFETY: this is the function's type; the text is read by the call alone.
        unsafe {
            let set = Driver::built().function::<unsafe extern "C" fn(i32, *const c_char)>("trawl_test_health");
            set(self.number(), words.as_ptr());
        }
    }

    /// How often a function of the driver was called in the device's context, or one of NVML about the device.
    ///
    /// # Panics
    /// If the name contains a zero byte.
    pub fn calls(&self, function: &str) -> u64 {
        let function = CString::new(function).expect("a text without a zero byte");
        // SAFETY: this is the function's type; the text is read by the call alone.
        unsafe {
            let read = Driver::built().function::<unsafe extern "C" fn(i32, *const c_char) -> u64>("trawl_test_calls");
            read(self.number(), function.as_ptr())
        }
    }

    /// Memory of the device as it is now, without a copy that counts; `None` where nothing is allocated.
    pub fn read(&self, address: u64, bytes: usize) -> Option<Vec<u8>> {
        let mut read = vec![0u8; bytes];
        // SAFETY: this is the function's type; it writes so many bytes, or none.
        let is_there = unsafe {
            let copy =
                Driver::built().function::<unsafe extern "C" fn(i32, u64, *mut u8, u64) -> bool>("trawl_test_read");
            copy(self.number(), address, read.as_mut_ptr(), bytes as u64)
        };
        is_there.then_some(read)
    }

    /// A stream as another library of the process has it, by its handle. The device is open.
    pub fn stream(&self) -> u64 {
        // SAFETY: this is the function's type.
        unsafe { Driver::built().function::<unsafe extern "C" fn(i32) -> u64>("trawl_test_stream")(self.number()) }
    }

    /// Lets the later work of such a stream wait until [`Self::go_on`].
    pub fn block(&self, stream: u64) {
        // SAFETY: this is the function's type; a handle that there is not ends the process.
        unsafe { Driver::built().function::<unsafe extern "C" fn(i32, u64)>("trawl_test_block")(self.number(), stream) }
    }

    /// Lets blocked streams go on.
    pub fn go_on(&self) {
        // SAFETY: this is the function's type.
        unsafe { Driver::built().function::<unsafe extern "C" fn(i32)>("trawl_test_go_on")(self.number()) }
    }

    /// Lets the work of such a stream happen; `false` if it waits.
    pub fn run(&self, stream: u64) -> bool {
        // SAFETY: this is the function's type.
        unsafe {
            Driver::built().function::<unsafe extern "C" fn(i32, u64) -> bool>("trawl_test_run")(self.number(), stream)
        }
    }

    /// Destroys such a stream.
    pub fn destroy(&self, stream: u64) {
        // SAFETY: this is the function's type.
        unsafe {
            Driver::built().function::<unsafe extern "C" fn(i32, u64)>("trawl_test_destroy")(self.number(), stream)
        }
    }
}
