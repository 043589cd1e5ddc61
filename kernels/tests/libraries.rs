//! NVIDIA's libraries are found in configured folders, opened once, and rejected when they are too old. Tested with
//! stub libraries of the same names, built by a C compiler. A separate program, since the driver's bindings keep what
//! they have opened.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use trawl_kernels::cuda::{
    CompileError, Compiler, Cuda, Device, Fault, Search, Sequence, Unavailable, Urgency, devices, gpus,
};
use trawl_plan::{Program, Schema, compile_expressions};

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("trawl-fake-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn search(&self) -> Search {
        Search { folders: vec![self.0.clone()] }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Makes a shared library `file` of a C text, with the soname `file` as NVIDIA's have.
fn library(folder: &Path, file: &str, text: &str) {
    let source = folder.join(format!("{file}.c"));
    std::fs::write(&source, text).expect("a file");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let made = Command::new(&compiler)
        .args(["-shared", "-fPIC", &format!("-Wl,-soname,{file}"), "-o"])
        .arg(folder.join(file))
        .arg(&source)
        .output()
        .unwrap_or_else(|e| panic!("this test needs a C compiler, '{compiler}' does not run: {e}"));
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// NVRTC as far as it is called: of a given version, whose programs contain the number `answer`, or do not compile if
/// it is 0. Its builtins library is opened by name when a text is compiled, as in NVRTC.
fn nvrtc(version: (i32, i32), answer: u8, left_out: &str) -> String {
    let (major, minor) = version;
    let functions = [
        ("nvrtcVersion", format!("(int *a, int *b) {{ *a = {major}; *b = {minor}; return 0; }}")),
        (
            "nvrtcCreateProgram",
            "(void **p, const char *t, const char *n, int c, void *a, void *b) { *p = p; return 0; }".to_owned(),
        ),
        (
            "nvrtcCompileProgram",
            format!(
                "(void *p, int c, void *o) {{ return {answer} && dlopen(\"libnvrtc-builtins.so.{major}.{minor}\", 2) ? 0 : 6; }}"
            ),
        ),
        ("nvrtcDestroyProgram", "(void **p) { *p = 0; return 0; }".to_owned()),
        ("nvrtcGetProgramLogSize", "(void *p, size_t *n) { *n = 13; return 0; }".to_owned()),
        ("nvrtcGetProgramLog", "(void *p, char *t) { memcpy(t, \"line 1: wrong\", 13); return 0; }".to_owned()),
        ("nvrtcGetCUBINSize", "(void *p, size_t *n) { *n = 1; return 0; }".to_owned()),
        ("nvrtcGetCUBIN", format!("(void *p, char *t) {{ *t = {answer}; return 0; }}")),
    ];
    let functions = functions.iter().filter(|(name, _)| *name != left_out);
    let text: String = functions.map(|(name, body)| format!("int {name}{body}\n")).collect();
    format!(
        "#include <dlfcn.h>\n#include <string.h>\n{text}\
         const char *nvrtcGetErrorString(int e) {{ return e == 6 ? \"NVRTC_ERROR_COMPILATION\" : \"other\"; }}\n"
    )
}

fn builtins(folder: &Path, version: (i32, i32)) {
    library(folder, &format!("libnvrtc-builtins.so.{}.{}", version.0, version.1), "int nothing;\n");
}

#[test]
fn the_compiler_of_the_named_folder_is_the_one_that_compiles() {
    let (one, two) = (Folder::new("one"), Folder::new("two"));
    library(&one.0, "libnvrtc.so.13", &nvrtc((13, 7), 1, ""));
    builtins(&one.0, (13, 7));
    // The same soname: a lookup by name would return the first.
    library(&two.0, "libnvrtc.so.13", &nvrtc((13, 8), 2, ""));
    builtins(&two.0, (13, 8));
    for (folder, version, answer) in [(&one, (13, 7), 1), (&two, (13, 8), 2), (&one, (13, 7), 1)] {
        let compiler = Compiler::find(&folder.search()).expect("a compiler");
        assert_eq!(compiler.version, version);
        assert_eq!(compiler.compile_text("text", "", 90).expect("a text").cubin, [answer]);
    }
    let maps = std::fs::read_to_string("/proc/self/maps").expect("this process's mappings");
    let mut open: Vec<&str> =
        maps.lines().filter_map(|line| line.split_whitespace().last()).filter(|p| p.contains("libnvrtc.so")).collect();
    open.sort_unstable();
    open.dedup();
    let named = |folder: &Folder| folder.0.join("libnvrtc.so.13").display().to_string();
    let strangers: Vec<&&str> = open.iter().filter(|path| !path.contains("trawl-fake-")).collect();
    assert!(open.contains(&named(&one).as_str()) && strangers.is_empty(), "also open: {strangers:?}");
}

#[test]
fn a_compiler_of_cuda_12_0_is_refused_and_one_of_12_1_is_not() {
    let (old, new) = (Folder::new("old"), Folder::new("new"));
    library(&old.0, "libnvrtc.so.12", &nvrtc((12, 0), 1, ""));
    library(&new.0, "libnvrtc.so.12", &nvrtc((12, 1), 1, ""));
    let refused = Compiler::find(&old.search()).expect_err("too old");
    assert_eq!(refused, CompileError::OldVersion { version: (12, 0) });
    let message = refused.to_string();
    assert!(message.contains("12.0") && message.contains("12.1 is the least"), "{message}");
    assert_eq!(Compiler::find(&new.search()).expect("a compiler").version, (12, 1));
}

#[test]
fn a_compiler_without_a_function_and_a_text_that_it_refuses_are_reported() {
    let folder = Folder::new("without");
    library(&folder.0, "libnvrtc.so.13", &nvrtc((13, 0), 1, "nvrtcGetCUBIN"));
    let refused = Compiler::find(&folder.search()).expect_err("it has no such function");
    assert_eq!(refused, CompileError::TooOld { function: "nvrtcGetCUBIN" });
    let folder = Folder::new("refuses");
    library(&folder.0, "libnvrtc.so.13", &nvrtc((13, 0), 0, ""));
    let compiler = Compiler::find(&folder.search()).expect("a compiler");
    let refused = compiler.compile_text("text", "", 90).expect_err("it does not compile");
    let (code, log) = ("NVRTC_ERROR_COMPILATION".to_owned(), "line 1: wrong".to_owned());
    assert_eq!(refused, CompileError::Failed { code, log });
}

/// Functions of the driver that succeed and do nothing.
const NOTHING: [&str; 15] = [
    "cuInit",
    "cuCtxSetCurrent",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuMemHostAlloc",
    "cuMemAllocAsync",
    "cuMemFreeAsync",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuLaunchKernel",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuDevicePrimaryCtxRelease_v2",
];

/// A driver with one device of compute capability 9.0. It records attributes that are set in `attributes` (a letter for
/// the kind of object, the number, the value), and fails as selected by `load`, `query` and `event`.
fn driver() -> String {
    let nothing: String = NOTHING.iter().map(|name| format!("int {name}(void) {{ return 0; }}\n")).collect();
    format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include <string.h>\n{nothing}\
         char attributes[4096]; int load, query, event;\n\
         static void note(char of, int a, long long v) {{ sprintf(attributes + strlen(attributes), \"%c%d=%lld \", of, a, v); }}\n\
         int cuGetErrorString(int e, const char **t) {{ *t = \"an error of a test\"; return 0; }}\n\
         int cuEventElapsedTime_v2(float *ms, void *a, void *b) {{ *ms = 0; return 0; }}\n\
         int cuDriverGetVersion(int *v) {{ *v = 13000; return 0; }}\n\
         int cuDeviceGetCount(int *n) {{ *n = 1; return 0; }}\n\
         int cuDeviceGet(int *d, int n) {{ *d = n; return 0; }}\n\
         int cuDeviceGetName(char *t, int n, int d) {{ strncpy(t, \"a device of a test\", n); return 0; }}\n\
         int cuDeviceTotalMem_v2(size_t *n, int d) {{ *n = 1 << 30; return 0; }}\n\
         int cuDeviceGetAttribute(int *v, int a, int d) {{ *v = a == 75 ? 9 : a == 97 ? 232448 : 0; return 0; }}\n\
         int cuDevicePrimaryCtxRetain(void **c, int d) {{ *c = &load; return 0; }}\n\
         int cuCtxGetCurrent(void **c) {{ *c = &load; return 0; }}\n\
         int cuMemGetInfo_v2(size_t *f, size_t *t) {{ *f = *t = 1 << 30; return 0; }}\n\
         int cuDeviceGetMemPool(void **p, int d) {{ *p = &load; return 0; }}\n\
         int cuMemPoolSetAttribute(void *p, int a, void *v) {{ note('p', a, a < 4 ? *(int *)v : *(long long *)v); return 0; }}\n\
         int cuMemPoolTrimTo(void *p, size_t n) {{ note('t', 0, n); return 0; }}\n\
         int cuModuleLoadData(void **m, void *t) {{ *m = &load; return load; }}\n\
         int cuModuleGetFunction(void **f, void *m, char *n) {{ *f = &load; return 0; }}\n\
         int cuFuncSetAttribute(void *f, int a, int v) {{ note('f', a, v); return 0; }}\n\
         int cuStreamQuery(void *s) {{ return query; }}\n\
         int cuEventQuery(void *e) {{ return event; }}\n"
    )
}

/// The parts of the driver that a test inspects.
struct Fake {
    library: libloading::os::unix::Library,
    _folder: Folder,
    search: Search,
}

impl Fake {
    fn attributes(&self) -> String {
        // SAFETY: a text of the library's own.
        let text = unsafe { self.library.get::<*const std::ffi::c_char>(b"attributes") }.expect("a text").as_raw_ptr();
        // SAFETY: as above; it ends with a zero.
        unsafe { std::ffi::CStr::from_ptr(text.cast()) }.to_string_lossy().into_owned()
    }

    fn set(&self, name: &str, code: i32) {
        // SAFETY: a number of the library's own, which nothing reads meanwhile.
        unsafe {
            let place = self.library.get::<*mut i32>(name.as_bytes()).expect("a number").as_raw_ptr();
            *place.cast::<i32>() = code;
        }
    }
}

/// Makes the stub driver available to this process permanently; `None` if the machine has a real one.
fn fake() -> Option<Fake> {
    let has_driver = !matches!(devices(&Search::default()), Err(Unavailable::NoDriver));
    let folder = Folder::new("driver");
    library(&folder.0, "libcuda.so.1", &driver());
    library(&folder.0, "libnvrtc.so.13", &nvrtc((13, 2), 0, ""));
    let search = folder.search();
    if has_driver {
        let seen = devices(&search).unwrap_or_default();
        assert!(
            seen.iter().all(|device| device.name != "a device of a test"),
            "the machine's own driver takes precedence"
        );
        return None;
    }
    devices(&search).expect("a driver in the folder that is named");
    let path = folder.0.join("libcuda.so.1");
    // SAFETY: the library has no initialisers.
    let library = unsafe { libloading::os::unix::Library::new(path) }.expect("it is open already");
    Some(Fake { library, _folder: folder, search })
}

/// A single test, since the bindings keep the driver that they have opened.
#[test]
fn a_driver_that_lies_in_a_named_folder_alone_is_found_and_used_as_it_should_be() {
    let Some(fake) = fake() else { return };
    let seen = devices(&fake.search).expect("a driver");
    let seen: Vec<_> = seen.iter().map(|d| (d.name.as_str(), d.capability)).collect();
    assert_eq!(seen, [("a device of a test", (9, 0))]);
    let gpu = gpus(&fake.search, None).expect("a device").remove(0);
    assert_eq!((gpu.driver.as_str(), gpu.shared_bytes, gpu.compiler.version), ("13.0", 232_448, (13, 2)));

    // The pool keeps released memory (4) and makes no stream wait for another (3).
    let device = Cuda::open(&gpu).expect("a device");
    assert_eq!(fake.attributes(), "p4=-1 p3=0 ");
    device.trim().expect("a pool");
    assert!(fake.attributes().ends_with("t0=0 "));

    // A kernel may have all shared memory (8), and requests that division (9).
    let program = program("sma(close,20)");
    let sequence = Sequence::fused(&program).expect("a kernel");
    let kernel = &sequence.calls[0].lowered.kernel;
    device.load(kernel, b"code").expect("a kernel");
    assert!(fake.attributes().ends_with("f8=232448 f9=100 "), "{}", fake.attributes());

    // A text rejected by the compiler, and code rejected by the driver: no other device of its kind would accept them.
    let refused = device.compile(kernel).expect_err("it does not compile");
    assert!(matches!(&refused, Fault::Code(why) if why.contains("line 1: wrong")), "{refused}");
    fake.set("load", 200);
    let refused = device.load(kernel, b"code").expect_err("an invalid image");
    assert!(matches!(&refused, Fault::Code(why) if why.contains("INVALID_IMAGE")), "{refused}");
    fake.set("load", 2);
    let refused = device.load(kernel, b"code").expect_err("no memory");
    assert!(matches!(refused, Fault::Failed(_)), "{refused}");

    // The same error with a context that still works, and with one that does not.
    let stream = device.stream(Urgency::Batch).expect("a stream");
    let mark = device.mark(stream).expect("a mark");
    let soon = || device.now() + Duration::from_secs(1);
    fake.set("event", 719);
    let failed = device.wait(&mark, soon()).expect_err("a launch failed");
    assert!(matches!(failed, Fault::Failed(_)), "{failed}");
    fake.set("query", 719);
    let lost = device.wait(&mark, soon()).expect_err("a launch failed");
    assert!(matches!(&lost, Fault::Lost(why) if why.contains("LAUNCH_FAILED")), "{lost}");
}

fn program(item: &str) -> Program {
    let columns = ["open", "high", "low", "close", "volume"].map(str::to_owned).to_vec();
    let plan = compile_expressions(&[item.to_owned()], "test", &Schema::of_columns(columns)).expect("a plan");
    plan.program().clone()
}
