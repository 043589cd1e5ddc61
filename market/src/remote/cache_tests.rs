use std::io::Write as _;
use std::sync::Barrier;

use super::super::testing::MemoryObjects;
use super::*;

fn objects(files: &[(&str, usize)]) -> MemoryObjects {
    let objects = MemoryObjects::default();
    let content = |name: &str, bytes: usize| name.bytes().cycle().take(bytes).collect();
    objects.log().objects = files.iter().map(|(name, bytes)| ((*name).to_owned(), content(name, *bytes))).collect();
    objects
}

fn cache(folder: &Path, bytes_max: u64) -> DiskCache {
    DiskCache::open(folder, "s3://memory", bytes_max).unwrap()
}

fn digest(objects: &MemoryObjects, path: &str) -> String {
    sha256_hex(&objects.log().objects[path])
}

/// Bytes below the folder of kept files.
fn kept_bytes(folder: &Path) -> u64 {
    let mut kept = Vec::new();
    walk(&folder.join(FILES), &mut kept);
    kept.iter().map(|(_, bytes, _)| bytes).sum()
}

fn partial_files(folder: &Path) -> usize {
    fs::read_dir(folder.join(PARTIAL)).unwrap().count()
}

#[test]
fn a_file_is_fetched_once_and_stays_after_a_restart() {
    let (folder, objects) = (tempfile::tempdir().unwrap(), objects(&[("d/files/a", 1000)]));
    let sha256 = digest(&objects, "d/files/a");
    for _ in 0..2 {
        let cache = cache(folder.path(), 10_000);
        for _ in 0..2 {
            let file = cache.get(&objects, "d/files/a", Content::Whole(Some(&sha256))).unwrap().unwrap();
            assert_eq!(content(&file).unwrap(), objects.log().objects["d/files/a"]);
        }
        assert!(cache.get(&objects, "d/files/missing", Content::Whole(None)).unwrap().is_none());
    }
    assert_eq!(objects.log().fetched, ["d/files/a"]);
    assert_eq!((objects.counted(CacheEvent::Hit), objects.counted(CacheEvent::Fetched(1000))), (3, 1));
    assert_eq!(partial_files(folder.path()), 0);
}

#[test]
fn the_least_recently_used_file_is_evicted_but_none_that_is_open() {
    let names = ["d/a", "d/b", "d/c", "d/e"];
    let (folder, objects) = (tempfile::tempdir().unwrap(), objects(&names.map(|name| (name, 400))));
    let cache = DiskCache { one_use: Duration::ZERO, ..cache(folder.path(), 1000) };
    let get = |name: &str| cache.get(&objects, name, Content::Whole(None)).unwrap().unwrap();
    let open = get("d/a");
    drop(get("d/b"));
    // The open one is the oldest; the other one goes.
    drop(get("d/c"));
    assert!(kept_bytes(folder.path()) <= 1000);
    assert!(cache.kept("d/a").unwrap().is_some() && cache.kept("d/b").unwrap().is_none());
    drop(open);
    // Now the oldest goes: what was used since stays.
    drop(get("d/a"));
    drop(get("d/e"));
    assert!(cache.kept("d/a").unwrap().is_some() && cache.kept("d/c").unwrap().is_none());
    assert!(kept_bytes(folder.path()) <= 1000);
    assert_eq!(objects.counted(CacheEvent::Evicted), 2);
}

#[test]
fn a_pass_over_more_than_there_is_room_for_evicts_nothing_that_is_used_again() {
    let names: Vec<String> = (0..60).map(|i| format!("d/{i:02}")).collect();
    let files: Vec<(&str, usize)> = names.iter().map(|name| (&**name, 100)).collect();
    let (folder, objects) = (tempfile::tempdir().unwrap(), objects(&files));
    let (often, once) = names.split_at(5);
    let get =
        |cache: &DiskCache, name: &String| drop(cache.get(&objects, name, Content::Whole(None)).unwrap().unwrap());
    let kept = |cache: &DiskCache| often.iter().filter(|name| cache.is_here(name)).count();
    // Read again later, here right away.
    let cache = DiskCache { one_use: Duration::ZERO, ..cache(folder.path(), 1000) };
    for _ in 0..2 {
        often.iter().for_each(|name| get(&cache, name));
    }
    // A scan that opens each of its files twice, and is not over a minute later.
    let scan = DiskCache::open(folder.path(), "s3://memory", 1000).unwrap();
    for name in once.iter().flat_map(|name| [name, name]) {
        get(&scan, name);
    }
    assert_eq!(kept(&cache), often.len());
    assert!(objects.counted(CacheEvent::Evicted) >= 45);
    // What was popular once goes.
    let long_ago = SystemTime::now() - 2 * ONCE_AGE;
    for name in often {
        File::options().append(true).open(cache.files.join(name)).unwrap().set_modified(long_ago).unwrap();
    }
    once.iter().for_each(|name| get(&scan, name));
    assert_eq!(kept(&cache), 0);
}

#[test]
fn whatever_is_read_the_bytes_stay_within_the_budget() {
    let names: Vec<String> = (0..40).map(|i| format!("d/{i:02}")).collect();
    let files: Vec<(&str, usize)> = names.iter().zip(1..).map(|(name, i)| (&**name, 37 * i)).collect();
    let (folder, objects) = (tempfile::tempdir().unwrap(), objects(&files));
    let cache = cache(folder.path(), 1200);
    let mut held = Vec::new();
    for step in 0..400usize {
        // Any order; some are open for a while, and some never fit.
        let file = cache.get(&objects, &names[step * step * 7 % 40], Content::Whole(None)).unwrap().unwrap();
        if step % 3 == 0 {
            held.push(file);
        }
        held.truncate(step % 5);
        let bytes = kept_bytes(folder.path());
        assert!(bytes <= 1200, "{bytes} after {step}");
        assert_eq!(cache.used().unwrap(), bytes, "counted right after {step}");
    }
    assert!(objects.counted(CacheEvent::NotKept) > 0 && objects.counted(CacheEvent::Evicted) > 0);
}

#[test]
fn a_file_larger_than_the_cache_evicts_nothing_and_is_shared_while_it_is_open() {
    let (folder, objects) = (tempfile::tempdir().unwrap(), objects(&[("d/a", 400), ("d/b", 400), ("d/large", 1001)]));
    let cache = cache(folder.path(), 1000);
    let get = |name: &str| cache.get(&objects, name, Content::Whole(Some(&digest(&objects, name)))).unwrap().unwrap();
    for name in ["d/a", "d/b"] {
        drop(get(name));
    }
    assert!(cache.can_keep(1000) && !cache.can_keep(1001));
    let fetched = || objects.log().fetched.iter().filter(|path| *path == "d/large").count();
    let open = get("d/large");
    assert!(cache.is_here("d/a") && cache.is_here("d/b") && !cache.is_here("d/large"));
    assert_eq!((objects.counted(CacheEvent::Evicted), objects.counted(CacheEvent::NotKept)), (0, 1));
    assert_eq!((cache.used().unwrap(), kept_bytes(folder.path()), partial_files(folder.path())), (800, 800, 0));
    assert!(Arc::ptr_eq(&open, &get("d/large")));
    assert_eq!((content(&open).unwrap().len(), fetched()), (1001, 1));
    // Found damaged by one of those that share it: it is fetched again, though another one has it open.
    cache.discard(&objects, "d/large", &open).unwrap();
    let again = get("d/large");
    assert!(!Arc::ptr_eq(&open, &again));
    // A second report of the same damage says nothing about the new one.
    cache.discard(&objects, "d/large", &open).unwrap();
    assert!(Arc::ptr_eq(&again, &get("d/large")));
    assert_eq!(fetched(), 2);
    // As soon as nobody has it open, it is gone.
    drop((open, again));
    drop(get("d/large"));
    assert_eq!(fetched(), 3);
}

#[test]
fn threads_and_processes_share_one_fetch() {
    let (folder, objects) = (tempfile::tempdir().unwrap(), objects(&[("d/a", 100_000)]));
    objects.log().slow = Duration::from_millis(100);
    // Two caches over one folder are to each other as two processes: locks belong to open files.
    let caches = [cache(folder.path(), 1 << 20), cache(folder.path(), 1 << 20)];
    let (begin, shared) = (&Barrier::new(8), &objects);
    std::thread::scope(|scope| {
        for cache in caches.iter().cycle().take(8) {
            scope.spawn(move || {
                begin.wait();
                let file = cache.get(shared, "d/a", Content::Whole(None)).unwrap().unwrap();
                assert_eq!(content(&file).unwrap().len(), 100_000);
            });
        }
    });
    assert_eq!(objects.log().fetched.len(), 1);
    assert_eq!(partial_files(folder.path()), 0);
}

#[test]
fn a_failure_is_shared_and_ends_with_the_flight() {
    let (folder, objects) = (tempfile::tempdir().unwrap(), objects(&[("d/a", 100)]));
    objects.log().fail = 1;
    let cache = cache(folder.path(), 1000);
    assert_eq!(
        cache.get(&objects, "d/a", Content::Whole(None)).unwrap_err(),
        CacheError::Store("it is away".to_owned())
    );
    assert!(cache.get(&objects, "d/a", Content::Whole(None)).unwrap().is_some());
    assert!(locked(&cache.flights).is_empty());
}

#[test]
fn what_arrives_damaged_is_fetched_once_more_and_never_kept() {
    let (folder, objects) = (tempfile::tempdir().unwrap(), objects(&[("d/a", 100)]));
    let sha256 = digest(&objects, "d/a");
    let cache = cache(folder.path(), 1000);
    objects.log().damage = 2;
    let error = cache.get(&objects, "d/a", Content::Whole(Some(&sha256))).unwrap_err();
    assert!(matches!(error, CacheError::Checksum { expected, .. } if expected == sha256));
    assert_eq!((kept_bytes(folder.path()), objects.log().fetched.len()), (0, 2));
    objects.log().damage = 1;
    assert!(cache.get(&objects, "d/a", Content::Whole(Some(&sha256))).unwrap().is_some());
    assert_eq!((kept_bytes(folder.path()), objects.counted(CacheEvent::Damaged)), (100, 3));
}

#[test]
fn a_damaged_copy_is_deleted_and_its_successor_is_not() {
    let (folder, objects) = (tempfile::tempdir().unwrap(), objects(&[("d/a", 100)]));
    let cache = cache(folder.path(), 1000);
    let damaged = cache.get(&objects, "d/a", Content::Whole(None)).unwrap().unwrap();
    cache.discard(&objects, "d/a", &damaged).unwrap();
    assert_eq!((kept_bytes(folder.path()), cache.used().unwrap()), (0, 0));
    let _other = cache.get(&objects, "d/a", Content::Whole(None)).unwrap().unwrap();
    // Another thread found the same damage a moment later.
    cache.discard(&objects, "d/a", &damaged).unwrap();
    assert_eq!((kept_bytes(folder.path()), objects.log().fetched.len()), (100, 2));
}

#[test]
fn what_a_crash_leaves_is_removed_or_counted_anew() {
    let (folder, objects) = (tempfile::tempdir().unwrap(), objects(&[("d/a", 100), ("d/b", 100)]));
    let first = cache(folder.path(), 1000);
    drop(first.get(&objects, "d/a", Content::Whole(None)).unwrap());
    // A part of a file, a sum that was not written whole, and a fetch that is going on elsewhere.
    fs::write(folder.path().join(PARTIAL).join("left"), b"half").unwrap();
    fs::write(folder.path().join(USAGE), b"99").unwrap();
    let fetching = File::create(folder.path().join(PARTIAL).join("fetching")).unwrap();
    fetching.try_lock().unwrap();
    let second = cache(folder.path(), 1000);
    assert_eq!((partial_files(folder.path()), second.used().unwrap()), (1, 100));
    // A partial file of the same name, left in the middle, is written again from its beginning.
    let own = second.begin("d/b").unwrap();
    (&own.file)
        .write_all(b"the beginning of something longer than the object that is fetched, and more and more")
        .unwrap();
    let path = own.path.clone();
    drop(own);
    assert!(path.exists());
    let file = second.get(&objects, "d/b", Content::Whole(Some(&digest(&objects, "d/b")))).unwrap().unwrap();
    assert_eq!(content(&file).unwrap().len(), 100);
    // A folder that somebody emptied while it is used.
    fs::remove_dir_all(folder.path().join(FILES)).unwrap();
    fs::remove_dir_all(folder.path().join(PARTIAL)).unwrap();
    assert!(second.get(&objects, "d/a", Content::Whole(None)).unwrap().is_some());
}

#[test]
fn data_roots_share_a_folder_and_its_budget_but_no_files() {
    let (folder, here) = (tempfile::tempdir().unwrap(), objects(&[("d/a", 600)]));
    let there = objects(&[("d/a", 500)]);
    let first = cache(folder.path(), 1000);
    let second = DiskCache::open(folder.path(), "s3://other", 1000).unwrap();
    assert_eq!(content(&first.get(&here, "d/a", Content::Whole(None)).unwrap().unwrap()).unwrap().len(), 600);
    assert_eq!(content(&second.get(&there, "d/a", Content::Whole(None)).unwrap().unwrap()).unwrap().len(), 500);
    assert_eq!(kept_bytes(folder.path()), 500, "the first one was evicted");
}

/// A cache on a disk that has room for so many bytes.
fn cache_on(folder: &Path, bytes_max: u64, left: u64) -> DiskCache {
    DiskCache { disk: Disk { left: Some(Mutex::new(left)) }, ..cache(folder, bytes_max) }
}

#[test]
fn on_a_full_disk_the_oldest_files_go_and_the_others_are_used_without_being_kept() {
    let names = ["d/a", "d/b", "d/c", "d/large"];
    let sizes = [400, 400, 400, 2_000];
    let files: Vec<(&str, usize)> = names.into_iter().zip(sizes).collect();
    let (folder, objects) = (tempfile::tempdir().unwrap(), objects(&files));
    // The budget would allow all of it.
    let cache = cache_on(folder.path(), 8_000, 1_000);
    let get = |name: &str| {
        let file = cache.get(&objects, name, Content::Whole(Some(&digest(&objects, name)))).unwrap().unwrap();
        assert_eq!(content(&file).unwrap(), objects.log().objects[name]);
    };
    for name in names {
        get(name);
        assert_eq!(cache.used().unwrap(), kept_bytes(folder.path()));
        assert!(kept_bytes(folder.path()) <= 1_000, "more than the disk has room for");
        assert_eq!(partial_files(folder.path()), 0, "half of {name} is left");
    }
    assert!(objects.counted(CacheEvent::Evicted) >= 2);
    assert_eq!(objects.counted(CacheEvent::DiskFull), 1, "the large one has no room, whatever is deleted");
    // The next one is kept again, without the others being asked for.
    get("d/b");
    get("d/b");
    assert!(cache.is_here("d/b") && !cache.is_here("d/large"));
    // Nothing can be deleted that is open.
    let open = cache.get(&objects, "d/b", Content::Whole(None)).unwrap().unwrap();
    get("d/large");
    assert!(cache.is_here("d/b"));
    drop(open);
}

#[test]
fn a_file_that_neither_the_disk_nor_memory_has_room_for_is_refused() {
    let (folder, objects) = (tempfile::tempdir().unwrap(), objects(&[("d/a", 400)]));
    let cache = cache_on(folder.path(), 8_000, 100);
    let file = File::options().create_new(true).read(true).write(true).open(folder.path().join("aside")).unwrap();
    let error = fetch_into(&objects, (&file, &cache.disk, 100), "d/a", Content::Whole(None)).unwrap_err();
    assert!(matches!(error, CacheError::Local(io::ErrorKind::StorageFull, _)), "{error:?}");
}

/// A real device without room, in place of the file that counts.
#[cfg(target_os = "linux")]
#[test]
fn that_the_bytes_cannot_be_written_down_is_no_failure() {
    let (folder, objects) = (tempfile::tempdir().unwrap(), objects(&[("d/a", 400), ("d/b", 700)]));
    let cache = cache(folder.path(), 1_000);
    std::os::unix::fs::symlink("/dev/full", folder.path().join(USAGE)).unwrap();
    for name in ["d/a", "d/b"] {
        assert!(cache.get(&objects, name, Content::Whole(None)).unwrap().is_some());
        assert_eq!(cache.used().unwrap(), kept_bytes(folder.path()));
    }
    assert!(kept_bytes(folder.path()) <= 1_000);
}
