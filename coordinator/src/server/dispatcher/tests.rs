use trawl_security::Expect;
use trawl_security::Role;

use super::*;

/// Timeout of every wait in these tests.
const BOUND: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_dispatcher_that_nobody_tells_of_workers_ends_and_whoever_leads_hears_of_it() {
    let (sender, members) = mpsc::channel(1);
    let dispatcher = Dispatcher::start(
        Limits::default(),
        members,
        (Connector::new(None, Expect::Role(Role::Worker)), 1),
        Heartbeat::default(),
    );
    let early = tokio::time::timeout(Duration::from_millis(50), dispatcher.ended()).await;
    assert!(early.is_err(), "as long as everything runs nobody hears anything");
    drop(sender);
    tokio::time::timeout(BOUND, dispatcher.ended()).await.expect("it says that it ended");
    assert!(dispatcher.list(true).await.is_empty());
}
