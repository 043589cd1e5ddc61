//! Finds NVIDIA's libraries, which may be absent and may be outside the paths of the system's loader: in the folders of
//! the toolkit, of Python wheels, or in configured folders.
//!
//! A library opened by path is not found by name later: the loader compares names with the sonames of open libraries
//! (such as `libnvrtc.so.13`), and any other name, such as `libnvrtc.so`, is looked up again. So NVRTC's functions are
//! called through the handle that is opened here. The driver's bindings open `libcuda` by their own list of names; its
//! soname `libcuda.so.1` is the last of them.

use std::path::{Path, PathBuf};

use libloading::os::unix::{Library as Handle, RTLD_LOCAL, RTLD_NOW};

/// Folders to look in first, separated as in PATH.
pub const LIBRARIES_VARIABLE: &str = "TRAWL_CUDA_LIBRARIES";

/// Folders of installations that the loader often does not search: the toolkit, containers with a mounted driver, WSL.
const USUAL_FOLDERS: [&str; 3] = ["/usr/local/cuda/lib64", "/usr/local/nvidia/lib64", "/usr/lib/wsl/lib"];

/// A library of NVIDIA's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// The driver, `libcuda`.
    Driver,
    /// The run-time compiler, `libnvrtc`.
    Compiler,
    /// Collectives, `libnccl`.
    Collectives,
    /// What the driver knows of its devices' state, NVML.
    Management,
}

impl Library {
    /// Names of its file that identify its binary interface, the newest first.
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Driver => &["libcuda.so.1"],
            Self::Compiler => &["libnvrtc.so.13", "libnvrtc.so.12"],
            Self::Collectives => &["libnccl.so.2"],
            Self::Management => &["libnvidia-ml.so.1"],
        }
    }
}

/// Where to search for libraries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Search {
    /// Searched in order, before the system's loader.
    pub folders: Vec<PathBuf>,
}

impl Search {
    /// The folders that the environment names ([`LIBRARIES_VARIABLE`], the toolkit's, those of an active Python
    /// environment), then the usual ones.
    pub fn of_environment() -> Self {
        let mut folders: Vec<PathBuf> = Vec::new();
        if let Some(list) = std::env::var_os(LIBRARIES_VARIABLE) {
            folders.extend(std::env::split_paths(&list));
        }
        for variable in ["CUDA_HOME", "CUDA_PATH"] {
            let root = std::env::var_os(variable).map(PathBuf::from);
            folders.extend(root.into_iter().flat_map(|root| [root.join("lib64"), root.join("lib")]));
        }
        if let Some(environment) = std::env::var_os("VIRTUAL_ENV") {
            folders.extend(wheels(Path::new(&environment)));
        }
        folders.extend(USUAL_FOLDERS.map(PathBuf::from));
        Self { folders }
    }

    /// The library folders of a Python environment's wheels.
    pub fn of_python(environment: &Path) -> Self {
        Self { folders: wheels(environment) }
    }

    /// The files of a library in the folders, in order.
    pub fn files(&self, library: Library) -> impl Iterator<Item = PathBuf> + '_ {
        let candidates = move |folder: &PathBuf| {
            let folder = folder.clone();
            library.names().iter().map(move |name| folder.join(name))
        };
        self.folders.iter().flat_map(candidates).filter(|path| path.is_file())
    }

    /// The folders, for an error message.
    pub(crate) fn place(&self) -> String {
        let folders: Vec<String> = self.folders.iter().map(|folder| folder.display().to_string()).collect();
        format!("looked in {} and where the system does", folders.join(", "))
    }
}

/// `lib/python*/site-packages/nvidia/*/lib` of a Python environment, in the order of their names.
fn wheels(environment: &Path) -> Vec<PathBuf> {
    let inside = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    let pythons = inside(&environment.join("lib"));
    let packages = pythons.iter().flat_map(|python| inside(&python.join("site-packages/nvidia")));
    packages.map(|package| package.join("lib")).filter(|folder| folder.is_dir()).collect()
}

/// An open library, which stays open until the process ends.
pub(crate) struct Open(std::mem::ManuallyDrop<Handle>);

impl Open {
    /// Opens a file, or a name where the system's loader finds it. Its symbols stay local to the handle.
    fn new(name: &Path) -> Option<Self> {
        // SAFETY: NVIDIA's libraries have no initialisers with requirements on the process.
        let handle = unsafe { Handle::open(Some(name), RTLD_NOW | RTLD_LOCAL) };
        handle.ok().map(|handle| Self(std::mem::ManuallyDrop::new(handle)))
    }

    /// The first of the folders' files that opens, otherwise what the system's loader finds.
    pub(crate) fn find(search: &Search, library: Library) -> Option<Self> {
        let names = library.names().iter().map(PathBuf::from);
        search.files(library).chain(names).find_map(|path| {
            open_builtins(&path);
            Self::new(&path)
        })
    }

    /// What the system's loader finds, otherwise the first of the folders' files that opens: of a library that has to fit the
    /// kernel's module.
    pub(crate) fn find_of_system(search: &Search, library: Library) -> Option<Self> {
        let named = library.names().iter().map(PathBuf::from);
        named.chain(search.files(library)).find_map(|path| Self::new(&path))
    }

    /// Looks up a function.
    ///
    /// # Safety
    /// `F` must be the function's type.
    pub(in crate::cuda) unsafe fn function<F: Copy>(&self, name: &str) -> Option<F> {
        // SAFETY: the caller's promise; the library is never closed.
        unsafe { self.0.get::<F>(name.as_bytes()) }.ok().map(|symbol| *symbol)
    }
}

/// Opens NVRTC's builtins library beside `compiler`. NVRTC opens it by a name with its full version when the first text
/// is compiled; it is then already open, wherever the folder is.
fn open_builtins(compiler: &Path) {
    let folder = compiler.parent().filter(|folder| !folder.as_os_str().is_empty());
    let entries = folder.into_iter().flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten());
    let mut halves: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| is_builtins(path)).collect();
    halves.sort();
    for half in halves {
        // It stays open without a handle; if it does not open, the compiler reports that.
        let _ = Open::new(&half);
    }
}

fn is_builtins(path: &Path) -> bool {
    let name = path.file_name().and_then(std::ffi::OsStr::to_str).unwrap_or_default();
    name.starts_with("libnvrtc-builtins.so.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_found_in_the_first_folder_that_has_it_and_the_newest_first() {
        let root = std::env::temp_dir().join(format!("trawl-libraries-{}", std::process::id()));
        let (one, two) = (root.join("lib/python3.11/site-packages/nvidia/cu13/lib"), root.join("two"));
        let files: [(&PathBuf, &[&str]); 2] =
            [(&one, &["libnvrtc.so.12", "libnvrtc.so.13"]), (&two, &["libnvrtc.so.12", "libcuda.so", "libcuda.so.1"])];
        for (folder, names) in files {
            std::fs::create_dir_all(folder).expect("a folder");
            names.iter().for_each(|name| std::fs::write(folder.join(name), "").expect("a file"));
        }
        let python = Search::of_python(&root);
        assert_eq!(python.folders, std::slice::from_ref(&one));
        let first = |search: &Search, library| search.files(library).next();
        assert_eq!(first(&python, Library::Compiler), Some(one.join("libnvrtc.so.13")));
        assert_eq!(first(&python, Library::Driver), None);
        let both = Search { folders: vec![two.clone(), one] };
        assert_eq!(first(&both, Library::Compiler), Some(two.join("libnvrtc.so.12")));
        assert_eq!(first(&both, Library::Driver), Some(two.join("libcuda.so.1")));
        std::fs::remove_dir_all(root).expect("it was ours");
    }

    #[test]
    fn drivers_that_containers_and_wsl_mount_are_looked_for() {
        let folders = Search::of_environment().folders;
        for folder in ["/usr/local/nvidia/lib64", "/usr/lib/wsl/lib"] {
            assert!(folders.iter().any(|found| found == Path::new(folder)), "{folder}: {folders:?}");
        }
    }
}
