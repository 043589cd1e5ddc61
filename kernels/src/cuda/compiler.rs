//! NVRTC: from a kernel's text to code for one architecture, headers from memory, the log kept. Needs no device and no
//! driver.

use std::ffi::{CString, c_char, c_int};
use std::ptr;

use cudarc::nvrtc::sys;

use super::library::{Search, open};
use super::{HEADERS, Kernel};

/// Registers that a thread has at most.
pub const REGISTERS_MAX: u32 = 255;

/// Functions of NVRTC that are called here: one that lacks any is too old.
const FUNCTIONS: [&str; 8] = [
    "nvrtcVersion",
    "nvrtcCreateProgram",
    "nvrtcCompileProgram",
    "nvrtcDestroyProgram",
    "nvrtcGetProgramLogSize",
    "nvrtcGetProgramLog",
    "nvrtcGetCUBINSize",
    "nvrtcGetCUBIN",
];

/// Why a text could not be compiled.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CompileError {
    #[error("NVIDIA's run-time compiler (libnvrtc, of CUDA 12 or 13) was not found; {place}")]
    Absent { place: String },
    #[error("NVIDIA's run-time compiler is too old: it has no {function}")]
    TooOld { function: &'static str },
    #[error("NVIDIA's run-time compiler failed: {code}{}{log}", if log.is_empty() { "" } else { ":\n" })]
    Failed { code: String, log: String },
}

/// A compiler that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compiler {
    /// Major and minor version.
    pub version: (i32, i32),
}

/// Code for one architecture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    pub cubin: Vec<u8>,
    pub log: String,
}

/// What a compiled text takes, as the log tells it; the largest of its functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resources {
    pub registers: u32,
    pub spilled_bytes: u64,
    pub stack_bytes: u64,
}

impl Compiler {
    /// Finds NVRTC in the folders, or where the system's loader does.
    ///
    /// # Errors
    /// [`CompileError::Absent`], [`CompileError::TooOld`].
    pub fn find(search: &Search) -> Result<Self, CompileError> {
        if let Some(path) = search.find("nvrtc") {
            // Its other half is sought by name when the first text is compiled.
            let folder = path.parent().map(std::path::Path::to_path_buf).into_iter();
            let entries = folder.flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten());
            let mut halves: Vec<_> = entries.map(|entry| entry.path()).filter(|path| is_builtins(path)).collect();
            halves.sort();
            halves.iter().for_each(|half| {
                open(half);
            });
            open(&path);
        }
        // SAFETY: only looks whether a library of that name opens.
        if !unsafe { sys::is_culib_present() } {
            let folders: Vec<String> = search.folders.iter().map(|folder| folder.display().to_string()).collect();
            let place = format!("looked in {} and where the system does", folders.join(", "));
            return Err(CompileError::Absent { place });
        }
        for function in FUNCTIONS {
            // SAFETY: the library is there; the symbol is not called.
            let symbol = unsafe { sys::culib().get::<*const ()>(function.as_bytes()) };
            symbol.map_err(|_| CompileError::TooOld { function })?;
        }
        let mut version = (0, 0);
        // SAFETY: two places for two numbers.
        told(unsafe { sys::nvrtcVersion(&raw mut version.0, &raw mut version.1) }, "")?;
        Ok(Self { version })
    }

    /// Compiles a kernel for `architecture`, a compute capability such as 90.
    ///
    /// # Errors
    /// [`CompileError::Failed`] with the log.
    pub fn compile(self, kernel: &Kernel, architecture: u32) -> Result<Compiled, CompileError> {
        self.compile_text(&kernel.name, &kernel.source, architecture)
    }

    /// As [`Self::compile`], of any text.
    ///
    /// # Errors
    /// [`CompileError::Failed`] with the log.
    pub fn compile_text(self, name: &str, source: &str, architecture: u32) -> Result<Compiled, CompileError> {
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
        // No contraction: the bits are the CPU's.
        let options = ["--fmad=false", "--std=c++17", "--ptxas-options=-v", "--no-source-include"].map(text);
        let mut options = options.into_iter().collect::<Result<Vec<CString>, CompileError>>()?;
        options.push(text(&format!("--gpu-architecture=sm_{architecture}"))?);
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program = Program(ptr::null_mut());
        // SAFETY: every pointer is to a text or a list of texts that lives until the program is destroyed; the counts are
        // the lists' lengths.
        let code = unsafe {
            let count = names.len() as c_int;
            let (texts, names) = (texts.as_ptr(), names.as_ptr());
            sys::nvrtcCreateProgram(&raw mut program.0, source.as_ptr(), name.as_ptr(), count, texts, names)
        };
        told(code, "")?;
        // SAFETY: the program was made just now, the options are texts.
        let code = unsafe { sys::nvrtcCompileProgram(program.0, options.len() as c_int, options.as_ptr()) };
        let log = program.log();
        told(code, &log)?;
        Ok(Compiled { cubin: program.cubin()?, log })
    }
}

fn is_builtins(path: &std::path::Path) -> bool {
    let name = path.file_name().and_then(std::ffi::OsStr::to_str).unwrap_or_default();
    name.starts_with("libnvrtc-builtins.so") && !name.contains("alt")
}

fn told(code: sys::nvrtcResult, log: &str) -> Result<(), CompileError> {
    match code {
        sys::nvrtcResult::NVRTC_SUCCESS => Ok(()),
        code => Err(CompileError::Failed { code: format!("{code:?}"), log: log.to_owned() }),
    }
}

/// A program of NVRTC's, destroyed at the end.
struct Program(sys::nvrtcProgram);

impl Program {
    fn log(&self) -> String {
        let mut size = 0usize;
        // SAFETY: the program lives; a place for a number.
        if unsafe { sys::nvrtcGetProgramLogSize(self.0, &raw mut size) } != sys::nvrtcResult::NVRTC_SUCCESS {
            return String::new();
        }
        let mut log = vec![0u8; size];
        // SAFETY: as many bytes as were asked for.
        unsafe { sys::nvrtcGetProgramLog(self.0, log.as_mut_ptr().cast()) };
        String::from_utf8_lossy(&log).trim_end_matches('\0').trim().to_owned()
    }

    fn cubin(&self) -> Result<Vec<u8>, CompileError> {
        let mut size = 0usize;
        // SAFETY: the program lives and was compiled; a place for a number.
        told(unsafe { sys::nvrtcGetCUBINSize(self.0, &raw mut size) }, "")?;
        let mut cubin = vec![0u8; size];
        // SAFETY: as many bytes as were asked for.
        told(unsafe { sys::nvrtcGetCUBIN(self.0, cubin.as_mut_ptr().cast()) }, "")?;
        Ok(cubin)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: made by nvrtcCreateProgram and destroyed once. There is nobody to tell of a failure.
            unsafe { sys::nvrtcDestroyProgram(&raw mut self.0) };
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
    fn a_compiler_that_is_nowhere_is_told_with_the_places() {
        // Where the machine has one all the same, that one is found.
        let search = Search { folders: vec!["/nowhere/at/all".into()] };
        match Compiler::find(&search) {
            Err(CompileError::Absent { place }) => assert!(place.contains("/nowhere/at/all"), "{place}"),
            Err(CompileError::TooOld { .. }) | Ok(_) => {}
            Err(other) => panic!("{other}"),
        }
    }
}
