//! NVRTC: compiles a kernel's text for one architecture, with headers from memory, and keeps the log. Needs no device
//! and no driver.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;

use cudarc::nvrtc::sys::nvrtcProgram;

use crate::cuda::compile::library::{Library, Open, Search};
use crate::cuda::{HEADERS, Kernel};

/// Maximum registers per thread.
pub const REGISTERS_MAX: u32 = 255;

/// Minimum version: earlier ones reject kernels with more than 4 KiB of arguments.
const VERSION_LEAST: (c_int, c_int) = (12, 1);
/// Return value of NVRTC functions on success. Results are integers here, since those of later versions would not be
/// valid values of an enum.
const SUCCESS: c_int = 0;

/// Declares the NVRTC functions in use.
macro_rules! functions {
    ($($field:ident = $name:literal ($($argument:ty),*) -> $result:ty;)*) => {
        #[derive(Debug, Clone, Copy)]
        struct Functions {
            $($field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Functions {
            fn of(library: &Open) -> Result<Self, CompileError> {
                Ok(Self {$(
                    // SAFETY: the type is that of NVRTC's header, the same in all versions since 12.
                    $field: unsafe { library.function($name) }.ok_or(CompileError::TooOld { function: $name })?,
                )*})
            }
        }
    };
}

functions! {
    version = "nvrtcVersion" (*mut c_int, *mut c_int) -> c_int;
    error_string = "nvrtcGetErrorString" (c_int) -> *const c_char;
    create_program = "nvrtcCreateProgram"
        (*mut nvrtcProgram, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char) -> c_int;
    compile_program = "nvrtcCompileProgram" (nvrtcProgram, c_int, *const *const c_char) -> c_int;
    destroy_program = "nvrtcDestroyProgram" (*mut nvrtcProgram) -> c_int;
    log_size = "nvrtcGetProgramLogSize" (nvrtcProgram, *mut usize) -> c_int;
    log = "nvrtcGetProgramLog" (nvrtcProgram, *mut c_char) -> c_int;
    cubin_size = "nvrtcGetCUBINSize" (nvrtcProgram, *mut usize) -> c_int;
    cubin = "nvrtcGetCUBIN" (nvrtcProgram, *mut c_char) -> c_int;
}

/// Why a text could not be compiled.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CompileError {
    /// The library was not found.
    #[error("NVIDIA's run-time compiler (libnvrtc, of CUDA 12.1 or newer) was not found; {place}")]
    Absent {
        /// Where it was searched for, as a clause.
        place: String,
    },
    /// The library lacks a function.
    #[error("NVIDIA's run-time compiler is too old: it has no {function}")]
    TooOld {
        /// Name of the function.
        function: &'static str,
    },
    /// The library's version is too low.
    #[error("NVIDIA's run-time compiler (libnvrtc) has version {}.{}, and {}.{} is the least",
        version.0, version.1, VERSION_LEAST.0, VERSION_LEAST.1)]
    OldVersion {
        /// Major and minor version.
        version: (i32, i32),
    },
    /// The text was rejected, or a call failed.
    #[error("NVIDIA's run-time compiler failed: {code}{}{log}", if log.is_empty() { "" } else { ":\n" })]
    Failed {
        /// The compiler's error.
        code: String,
        /// The compiler's log; empty if there is none.
        log: String,
    },
}

/// A compiler, loaded.
#[derive(Debug, Clone, Copy)]
pub struct Compiler {
    /// Major and minor version.
    pub version: (i32, i32),
    functions: Functions,
}

/// Compiled code for one architecture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// Machine code, as the driver loads it.
    pub cubin: Vec<u8>,
    /// The compiler's log, with the resource usage.
    pub log: String,
}

/// Resource usage of a compiled text according to the log; the maximum over its functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resources {
    /// Registers per thread.
    pub registers: u32,
    /// Bytes of spill stores and loads per thread.
    pub spilled_bytes: u64,
    /// Bytes of the stack frame per thread.
    pub stack_bytes: u64,
}

impl Compiler {
    /// Opens NVRTC from the folders, or through the system's loader.
    ///
    /// # Errors
    /// [`CompileError::Absent`], [`CompileError::TooOld`], [`CompileError::OldVersion`].
    pub fn find(search: &Search) -> Result<Self, CompileError> {
        let library = Open::find(search, Library::Compiler);
        let library = library.ok_or_else(|| CompileError::Absent { place: search.place() })?;
        let functions = Functions::of(&library)?;
        let mut version = (0, 0);
        // SAFETY: two places for two numbers.
        functions.check(unsafe { (functions.version)(&raw mut version.0, &raw mut version.1) }, "")?;
        if version < VERSION_LEAST {
            return Err(CompileError::OldVersion { version });
        }
        Ok(Self { version, functions })
    }

    /// Compiles a kernel for `architecture`, a compute capability such as 90: for the number of concurrent blocks per
    /// multiprocessor that it requests, or fewer until no register spills to memory.
    ///
    /// # Errors
    /// [`CompileError::Failed`] with the log.
    pub fn compile(self, kernel: &Kernel, architecture: u32) -> Result<Compiled, CompileError> {
        let mut blocks = kernel.blocks.max(1);
        loop {
            let made = self.compile_with(&kernel.name, &kernel.source, architecture, blocks)?;
            if blocks == 1 || Resources::of_log(&made.log).spilled_bytes == 0 {
                return Ok(made);
            }
            blocks = (blocks * 2 / 3).max(1);
        }
    }

    /// As [`Self::compile`], for any text.
    ///
    /// # Errors
    /// [`CompileError::Failed`] with the log.
    pub fn compile_text(self, name: &str, source: &str, architecture: u32) -> Result<Compiled, CompileError> {
        self.compile_with(name, source, architecture, 1)
    }

    fn compile_with(
        self,
        name: &str,
        source: &str,
        architecture: u32,
        blocks: usize,
    ) -> Result<Compiled, CompileError> {
        let text = |text: &str| {
            let wrong = |_| CompileError::Failed { code: "a text with a zero byte".to_owned(), log: String::new() };
            CString::new(text).map_err(wrong)
        };
        let (source, name) = (text(source)?, text(&format!("{name}.cu"))?);
        let mut headers = Vec::with_capacity(HEADERS.len());
        for (name, header) in HEADERS {
            headers.push((text(name)?, text(header)?));
        }
        let names: Vec<*const c_char> = headers.iter().map(|(name, _)| name.as_ptr()).collect();
        let texts: Vec<*const c_char> = headers.iter().map(|(_, header)| header.as_ptr()).collect();
        // No contraction, to get the same bits as the CPU.
        let options = ["--fmad=false", "--std=c++17", "--ptxas-options=-v", "--no-source-include"].map(text);
        let mut options = options.into_iter().collect::<Result<Vec<CString>, CompileError>>()?;
        options.push(text(&format!("--gpu-architecture=sm_{architecture}"))?);
        options.push(text(&format!("--define-macro=TRAWL_BLOCKS={blocks}"))?);
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let functions = self.functions;
        let mut program = Program { handle: ptr::null_mut(), functions };
        // SAFETY: every pointer is to a text or a list of texts that lives until the program is destroyed; the counts
        // are the lists' lengths.
        let code = unsafe {
            let count = names.len() as c_int;
            let (texts, names) = (texts.as_ptr(), names.as_ptr());
            (functions.create_program)(&raw mut program.handle, source.as_ptr(), name.as_ptr(), count, texts, names)
        };
        functions.check(code, "")?;
        // SAFETY: the program was made just now, the options are texts.
        let code = unsafe { (functions.compile_program)(program.handle, options.len() as c_int, options.as_ptr()) };
        let log = program.log();
        functions.check(code, &log)?;
        Ok(Compiled { cubin: program.cubin()?, log })
    }
}

impl Functions {
    fn check(&self, code: c_int, log: &str) -> Result<(), CompileError> {
        if code == SUCCESS {
            return Ok(());
        }
        // SAFETY: a text for every number, which lives as long as the library.
        let text = unsafe { (self.error_string)(code) };
        let code = if text.is_null() {
            format!("error {code}")
        } else {
            // SAFETY: as above.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        Err(CompileError::Failed { code, log: log.to_owned() })
    }
}

/// An NVRTC program, destroyed on drop.
struct Program {
    handle: nvrtcProgram,
    functions: Functions,
}

impl Program {
    fn log(&self) -> String {
        let mut size = 0usize;
        // SAFETY: the program lives; a place for a number.
        if unsafe { (self.functions.log_size)(self.handle, &raw mut size) } != SUCCESS {
            return String::new();
        }
        let mut log = vec![0u8; size];
        // SAFETY: as many bytes as were asked for.
        unsafe { (self.functions.log)(self.handle, log.as_mut_ptr().cast()) };
        String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_owned()
    }

    fn cubin(&self) -> Result<Vec<u8>, CompileError> {
        let mut size = 0usize;
        // SAFETY: the program lives and was compiled; a place for a number.
        self.functions.check(unsafe { (self.functions.cubin_size)(self.handle, &raw mut size) }, "")?;
        let mut cubin = vec![0u8; size];
        // SAFETY: as many bytes as were asked for.
        self.functions.check(unsafe { (self.functions.cubin)(self.handle, cubin.as_mut_ptr().cast()) }, "")?;
        Ok(cubin)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: made by nvrtcCreateProgram and destroyed once. A failure cannot be reported.
            unsafe { (self.functions.destroy_program)(&raw mut self.handle) };
        }
    }
}

impl Resources {
    /// Reads the log of `--ptxas-options=-v`.
    pub fn of_log(log: &str) -> Self {
        let mut most = Self::default();
        for line in log.lines() {
            let before = |word: &str| {
                let at = line.find(word)?;
                let number = line[..at].trim_end().rsplit(|c: char| !c.is_ascii_digit()).next()?;
                number.parse::<u64>().ok()
            };
            most.registers = most.registers.max(before("registers").unwrap_or(0) as u32);
            let spilled = before("bytes spill stores").unwrap_or(0) + before("bytes spill loads").unwrap_or(0);
            most.spilled_bytes = most.spilled_bytes.max(spilled);
            most.stack_bytes = most.stack_bytes.max(before("bytes stack frame").unwrap_or(0));
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_tells_the_largest_of_all_functions() {
        let log = "ptxas info    : Compiling entry function 'a' for 'sm_90'\n\
                   ptxas         .     0 bytes stack frame, 8 bytes spill stores, 16 bytes spill loads\n\
                   ptxas info    : Used 64 registers, used 2 barriers\n\
                   ptxas         .     416 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
                   ptxas info    : Used 128 registers, used 2 barriers, 416 bytes cumulative stack size";
        assert_eq!(Resources::of_log(log), Resources { registers: 128, spilled_bytes: 24, stack_bytes: 416 });
        assert_eq!(Resources::of_log(""), Resources::default());
    }

    #[test]
    fn a_compiler_that_is_nowhere_is_reported_with_the_places() {
        // If the machine has one anyway, that one is found.
        let search = Search { folders: vec!["/nowhere/at/all".into()] };
        match Compiler::find(&search) {
            Err(CompileError::Absent { place }) => assert!(place.contains("/nowhere/at/all"), "{place}"),
            Err(CompileError::TooOld { .. } | CompileError::OldVersion { .. }) | Ok(_) => {}
            Err(other) => panic!("{other}"),
        }
    }
}
