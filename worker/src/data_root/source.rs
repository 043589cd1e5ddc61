//! A bucket from which files are imported, and to which lakes are exported. It need not be that of the data root: its variables begin with [`PREFIX`], and where none
//! of its provider's is set, those of the provider's own tools count.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use trawl_market::{Objects as _, ObjectsError, TimeMicros};
use trawl_objects::{AddressError, BucketAddress, Environment, open_bucket};

use super::bucket::Bucket;

/// Begins the names of the variables of such a bucket: `TRAWL_SOURCE_AWS_ACCESS_KEY_ID` and so on.
pub const PREFIX: &str = "TRAWL_SOURCE_";
/// An object of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceObject {
    /// Without the folder.
    pub name: String,
    /// Size.
    pub bytes: u64,
    /// Changes with the content: the store's ETag, else when it was written.
    pub tag: String,
}

/// A bucket of others, to read from or to write to.
#[derive(Debug, Clone)]
pub struct SourceBucket(Bucket);

impl SourceBucket {
    /// By its address. No request is made yet.
    ///
    /// # Errors
    /// [`AddressError`]: an inconsistent environment.
    pub fn open(address: &BucketAddress) -> Result<Self, AddressError> {
        let own = Environment::with_prefix(PREFIX);
        let environment = if own.names(address.provider()) { own } else { Environment::of_process() };
        Ok(Self(Bucket::of(open_bucket(address, &environment)?, &address.to_string())))
    }

    /// What is directly in a folder, by name: its folders and its objects.
    ///
    /// # Errors
    /// [`ObjectsError`].
    pub fn list(&self, folder: &str) -> Result<(Vec<String>, Vec<SourceObject>), ObjectsError> {
        let found = self.0.listed(folder)?;
        let mut folders: Vec<String> =
            found.common_prefixes.iter().filter_map(|path| path.filename().map(str::to_owned)).collect();
        folders.sort_unstable();
        let object = |meta: &object_store::ObjectMeta| {
            let modified: TimeMicros = meta.last_modified.timestamp_micros();
            let tag = meta.e_tag.clone().unwrap_or_else(|| format!("modified {modified}"));
            Some(SourceObject { name: meta.location.filename()?.to_owned(), bytes: meta.size, tag })
        };
        let mut objects: Vec<SourceObject> = found.objects.iter().filter_map(object).collect();
        objects.sort_by(|a, b| a.name.cmp(&b.name));
        Ok((folders, objects))
    }

    /// Writes the content of an object with this tag; false where there is none, or it has another content by now.
    ///
    /// # Errors
    /// [`ObjectsError`]; what was written by then is a part of the content.
    pub fn fetch(&self, path: &str, tag: &str, to: &mut dyn Write) -> Result<bool, ObjectsError> {
        // What is no ETag is the time of a store without them.
        let tag = Some(tag).filter(|tag| !tag.starts_with("modified ")).map(Arc::from);
        self.0.fetch_if(path, tag, to)
    }

    /// Puts a file, in place of an object that is there.
    ///
    /// # Errors
    /// [`ObjectsError`].
    pub fn put(&self, path: &str, file: &File) -> Result<(), ObjectsError> {
        self.0.put(path, file)
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;
    use object_store::path::Path;
    use object_store::{ObjectStore, ObjectStoreExt as _};

    use super::*;

    #[test]
    fn an_object_that_was_replaced_since_it_was_listed_is_not_fetched() {
        let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let put = |text: &'static str| runtime.block_on(store.put(&Path::from("a/b.csv"), text.into())).unwrap();
        put("one");
        let bucket = SourceBucket(Bucket::of(Arc::clone(&store), "s3://b"));
        assert_eq!(bucket.list("").unwrap().0, ["a"]);
        let (_, found) = bucket.list("a").unwrap();
        assert_eq!((found[0].name.as_str(), found[0].bytes), ("b.csv", 3));
        let fetch = |tag: &str| {
            let mut to = Vec::new();
            bucket.fetch("a/b.csv", tag, &mut to).unwrap().then_some(to)
        };
        assert_eq!(fetch(&found[0].tag).unwrap(), b"one");
        put("two");
        assert_eq!(fetch(&found[0].tag), None, "of the same size");
        assert_eq!(fetch(&bucket.list("a").unwrap().1[0].tag).unwrap(), b"two");
        assert!(bucket.fetch("a/none.csv", "x", &mut Vec::new()).is_ok_and(|found| !found));
    }
}
