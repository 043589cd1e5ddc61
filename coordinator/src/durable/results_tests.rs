use std::collections::BTreeSet;

use object_store::ObjectStoreExt as _;
use trawl_wire::pb;

use super::*;

fn stored(segment: u32, payload: &[u8]) -> Stored {
    let envelope = pb::Envelope { version: 2, schema: 7, length: 3, checksum: 5, payload: payload.to_vec().into() };
    Stored { segment, outcome: Outcome::Result { envelope, digest: [9; 32] } }
}

fn name(stage: u32, epoch: u64, number: u32) -> GroupName {
    GroupName { stage, epoch, number }
}

/// A directory and memory: both must behave alike.
fn stores() -> (tempfile::TempDir, Vec<ResultStore>) {
    let directory = tempfile::tempdir().unwrap();
    let local = ResultStore::directory(&directory.path().join("new/results")).unwrap();
    (directory, vec![local, ResultStore::memory()])
}

fn segments_of(contents: &ScanContents, stage: u32) -> BTreeSet<u32> {
    contents.stages.get(&stage).map(|s| s.segments.keys().copied().collect()).unwrap_or_default()
}

#[tokio::test]
async fn what_was_put_is_listed_and_putting_it_again_changes_nothing() {
    let (_directory, stores) = stores();
    for store in stores {
        store.probe("b").await.unwrap();
        for _ in 0..2 {
            store.put_group("b-1", 0, name(0, 5, 1), &[stored(1, b"a"), stored(2, b"b")]).await.unwrap();
        }
        store.put_group("b-1", 0, name(1, 5, 2), &[stored(1, b"c")]).await.unwrap();
        store.put_group("b-1", 1, name(0, 5, 1), &[stored(7, b"d")]).await.unwrap();
        store.put_group("b-10", 0, name(0, 5, 1), &[stored(8, b"e")]).await.unwrap();
        let contents = store.contents("b-1", 0).await.unwrap();
        assert_eq!(segments_of(&contents, 0), [1, 2].into());
        assert_eq!(segments_of(&contents, 1), [1].into());
        assert_eq!((contents.stages.len(), contents.damaged.len()), (2, 0));
        assert_eq!(store.stage("b-1", 0, 1).await.unwrap().stages.len(), 1);
        assert_eq!(store.contents("b-2", 0).await.unwrap(), ScanContents::default());
    }
}

#[tokio::test]
async fn the_directory_of_a_scan_made_ahead_holds_its_groups_and_is_deleted_with_it() {
    let (directory, stores) = stores();
    let there = |scan: &str| directory.path().join("new/results/scans").join(scan);
    stores[0].put_group("b-0", 0, name(0, 5, 1), &[stored(1, b"a")]).await.unwrap();
    for store in &stores {
        for _ in 0..2 {
            store.make_directory("b-1", 0, 2).await;
            store.make_directory("../b-1", 0, 2).await;
        }
        store.put_group("b-1", 0, name(2, 5, 1), &[stored(1, b"a")]).await.unwrap();
        assert_eq!(segments_of(&store.contents("b-1", 0).await.unwrap(), 2), [1].into());
    }
    stores[0].make_directory("b-2", 1, 0).await;
    assert!(there("b-2").join("g1/s0").is_dir());
    assert!(!directory.path().join("new/results/b-1").exists());
    assert!(!stores[0].scans().await.unwrap().contains_key("b-2"));
    assert_eq!(stores[0].delete_scan("b-2").await.unwrap(), 0);
    assert!(!there("b-2").exists());
}

#[tokio::test]
async fn a_second_group_of_one_name_is_refused_and_the_first_stays() {
    let (_directory, stores) = stores();
    for store in stores {
        store.put_group("b-1", 0, name(0, 5, 1), &[stored(1, b"a")]).await.unwrap();
        let error = store.put_group("b-1", 0, name(0, 5, 1), &[stored(1, b"z")]).await.unwrap_err();
        assert!(matches!(error, StoreError::Conflict { .. }), "{error}");
        let contents = store.contents("b-1", 0).await.unwrap();
        assert_eq!(contents.stages[&0].segments[&1], stored(1, b"a").outcome);
    }
}

#[tokio::test]
async fn of_many_who_put_at_once_one_wins_and_the_others_receive_its_bytes() {
    let (_directory, stores) = stores();
    for store in stores {
        let put = |i: u8| {
            let store = store.clone();
            tokio::spawn(async move { store.put_named("b-1", Named::Summary(0), &[i; 100]).await.unwrap() })
        };
        let puts: Vec<_> = (0..16).map(put).collect();
        let mut bytes_found = BTreeSet::new();
        let mut won = 0;
        for (i, put) in (0u8..).zip(puts) {
            match put.await.unwrap() {
                None => {
                    won += 1;
                    bytes_found.insert(vec![i; 100]);
                }
                Some(other) => {
                    bytes_found.insert(other);
                }
            }
        }
        assert_eq!((won, bytes_found.len()), (1, 1));
        assert_eq!(store.named("b-1", Named::Summary(0)).await.unwrap(), bytes_found.into_iter().next());
    }
}

#[tokio::test]
async fn the_latest_leaders_last_word_on_a_segment_counts() {
    let (_directory, stores) = stores();
    for store in stores {
        store.put_group("b-1", 0, name(0, 0x10, 1), &[stored(1, b"new"), stored(2, b"new")]).await.unwrap();
        store.put_group("b-1", 0, name(0, 0x9, 9), &[stored(1, b"old"), stored(3, b"old")]).await.unwrap();
        store.put_group("b-1", 0, name(0, 0x10, 2), &[stored(2, b"newer")]).await.unwrap();
        let segments = store.contents("b-1", 0).await.unwrap().stages[&0].segments.clone();
        assert_eq!(segments[&1], stored(1, b"new").outcome);
        assert_eq!(segments[&2], stored(2, b"newer").outcome);
        assert_eq!(segments[&3], stored(3, b"old").outcome);
    }
}

#[tokio::test]
async fn an_object_torn_at_any_length_counts_as_absent_and_can_be_written_again() {
    let (_directory, stores) = stores();
    for store in stores {
        let path = Path::from("scans/b-1/g0/s0/0000000000000005-00000001.group");
        let group = [stored(1, b"abc")];
        let bytes = encode_group("b-1", 0, name(0, 5, 1), &group, None);
        store.put_group("b-1", 0, name(0, 5, 2), &[stored(2, b"whole")]).await.unwrap();
        for length in 0..bytes.len() {
            store.objects.put(&path, bytes[..length].to_vec().into()).await.unwrap();
            let contents = store.contents("b-1", 0).await.unwrap();
            assert_eq!(segments_of(&contents, 0), [2].into(), "cut off at {length}");
            assert_eq!(contents.damaged.len(), 1);
            assert_eq!(contents.damaged[0].object, path.to_string());
        }
        store.put_group("b-1", 0, name(0, 5, 1), &group).await.unwrap();
        let contents = store.contents("b-1", 0).await.unwrap();
        assert_eq!((segments_of(&contents, 0), contents.damaged.len()), ([1, 2].into(), 0));
    }
}

#[tokio::test]
async fn a_torn_named_object_is_reported_and_mended() {
    let (_directory, stores) = stores();
    for store in stores {
        assert_eq!(store.named("b-1", Named::Document).await.unwrap(), None);
        assert_eq!(store.put_named("b-1", Named::Document, b"text").await.unwrap(), None);
        assert_eq!(store.put_named("b-1", Named::Document, b"text").await.unwrap(), None);
        let path = Path::from("scans/b-1/document");
        store.objects.put(&path, vec![1, 2, 3].into()).await.unwrap();
        assert!(matches!(store.named("b-1", Named::Document).await, Err(StoreError::Damaged { .. })));
        assert_eq!(store.put_named("b-1", Named::Document, b"text").await.unwrap(), None);
        assert_eq!(store.named("b-1", Named::Document).await.unwrap().as_deref(), Some(&b"text"[..]));
    }
}

#[tokio::test]
async fn deleting_a_scan_leaves_the_others_and_nothing_of_its_own() {
    let (directory, stores) = stores();
    for store in stores {
        for scan in ["b-1", "b-10", "c-1"] {
            store.put_group(scan, 0, name(0, 5, 1), &[stored(1, b"a")]).await.unwrap();
            store.put_named(scan, Named::Accepted(0), b"x").await.unwrap();
        }
        if store.is_local() {
            // A crash between writing and publishing leaves a file that no listing shows.
            std::fs::write(directory.path().join("new/results/scans/b-1/g0/s0/x.group#1"), b"half").unwrap();
        }
        assert_eq!(store.scans().await.unwrap()["b-1"].objects, 2);
        assert_eq!(store.delete_scan("b-1").await.unwrap(), 2);
        assert_eq!(store.delete_scan("b-1").await.unwrap(), 0);
        let left = store.scans().await.unwrap();
        assert_eq!(left.keys().collect::<Vec<_>>(), ["b-10", "c-1"]);
        assert!(left["c-1"].bytes > 0 && left["c-1"].newest_us > 1_600_000_000_000_000);
        assert!(!directory.path().join("new/results/scans/b-1").exists());
    }
}

#[tokio::test]
async fn ids_that_could_leave_the_folder_are_refused() {
    let store = ResultStore::memory();
    for bad in ["", ".", "..", "../x", "a/b", ".hidden"] {
        assert!(store.delete_scan(bad).await.is_err(), "{bad}");
        assert!(store.put_named(bad, Named::Document, b"x").await.is_err(), "{bad}");
    }
}

#[test]
fn an_address_says_what_it_may_be_and_keeps_secrets_to_itself() {
    for bad in ["", "file://x", "gs://", "ftp://h/x"] {
        assert!(matches!(ResultStore::open(bad), Err(StoreError::Address { .. })), "{bad}");
    }
    for secret in ["s3://AKIA:hunter2@bucket/x", "s3://bucket/x?secret=hunter2", "https://u:hunter2@h/x"] {
        let error = ResultStore::open(secret).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_directory_that_cannot_be_written_says_that_this_process_may_not() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), b"").unwrap();
    let error = ResultStore::directory(&directory.path().join("file/below")).unwrap_err();
    assert!(error.to_string().contains("file://"), "{error}");
}
