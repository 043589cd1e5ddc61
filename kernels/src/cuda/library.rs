//! Finds NVIDIA's libraries, which need not be there and need not lie where the system's loader looks: in the folders of
//! the toolkit, of Python wheels, or wherever it is told. Opening one by its path is enough: whoever asks for it by name
//! afterwards gets that one.

use std::path::{Path, PathBuf};

/// Folders to look in first, separated as in PATH.
pub const LIBRARIES_VARIABLE: &str = "TRAWL_CUDA_LIBRARIES";

/// Major versions, the newest first.
const VERSIONS: [&str; 2] = ["13", "12"];

/// Where libraries may lie.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Search {
    pub folders: Vec<PathBuf>,
}

impl Search {
    /// The folders that the environment names: [`LIBRARIES_VARIABLE`], the toolkit's, those of an active Python environment.
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
        folders.push(PathBuf::from("/usr/local/cuda/lib64"));
        Self { folders }
    }

    /// The libraries that a Python environment's wheels bring.
    pub fn of_python(environment: &Path) -> Self {
        Self { folders: wheels(environment) }
    }

    /// The first library `lib{name}.so.*` of the folders, in order.
    pub fn find(&self, name: &str) -> Option<PathBuf> {
        let candidates = |folder: &PathBuf| {
            let folder = folder.clone();
            VERSIONS.map(|version| folder.join(format!("lib{name}.so.{version}")))
        };
        self.folders.iter().flat_map(candidates).find(|path| path.is_file())
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

/// Opens a library for the whole process and keeps it open; false where that cannot be.
pub(super) fn open(path: &Path) -> bool {
    use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
    // SAFETY: NVIDIA's libraries have no initialisers that ask anything of the process.
    match unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) } {
        Ok(library) => {
            std::mem::forget(library);
            true
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_found_in_the_first_folder_that_has_it_and_the_newest_first() {
        let root = std::env::temp_dir().join(format!("trawl-libraries-{}", std::process::id()));
        let (one, two) = (root.join("lib/python3.11/site-packages/nvidia/cu13/lib"), root.join("two"));
        for (folder, names) in [(&one, &["libnvrtc.so.12", "libnvrtc.so.13"][..]), (&two, &["libnvrtc.so.12"])] {
            std::fs::create_dir_all(folder).expect("a folder");
            names.iter().for_each(|name| std::fs::write(folder.join(name), "").expect("a file"));
        }
        let python = Search::of_python(&root);
        assert_eq!(python.folders, std::slice::from_ref(&one));
        assert_eq!(python.find("nvrtc"), Some(one.join("libnvrtc.so.13")));
        assert_eq!(python.find("cuda"), None);
        let both = Search { folders: vec![two.clone(), one] };
        assert_eq!(both.find("nvrtc"), Some(two.join("libnvrtc.so.12")));
        std::fs::remove_dir_all(root).expect("it was ours");
    }
}
