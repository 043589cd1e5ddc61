//! Health probes: whether a process is alive, and whether it accepts work. A kubelet probes in plain text without a
//! certificate, and must never restart a process because another one is away.

use std::time::{Duration, Instant};

use tonic::transport::Endpoint;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use trawl_security::{ClientSecurity, Connector, Expect, Role};
use trawl_tests::certs::Authority;
use trawl_tests::cluster::{Cluster, Options, block_on};
use trawl_tests::etcd::{self, OwnEtcd, free_port};
use trawl_tests::home::Home;
use trawl_tests::process::Background;
use trawl_tests::wait;

/// Longest that anything here may take.
const BOUND: Duration = Duration::from_secs(60);
/// The default of `--drain-timeout-s`, and how much longer leaving may take (docs/cluster.md).
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
const LEAVE_MARGIN: Duration = Duration::from_secs(15);
const SERVERS: [&str; 2] = ["coordinator", "worker"];

/// The status of a service; an error as its gRPC code.
fn asked(address: &str, service: &str) -> Result<ServingStatus, tonic::Code> {
    block_on(async {
        let plain = Connector::new(ClientSecurity::default().tls, Expect::Role(Role::Worker));
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address").timeout(BOUND);
        let mut client = HealthClient::new(endpoint.connect_with_connector_lazy(plain));
        let answer = client.check(HealthCheckRequest { service: service.to_owned() }).await.map_err(|s| s.code())?;
        let status = answer.into_inner().status;
        Ok(if status == 1 { ServingStatus::Serving } else { ServingStatus::NotServing })
    })
}

/// The exit code of `trawl probe`, and what it prints.
fn probe(home: &Home, words: &[&str]) -> (Option<i32>, String) {
    let ended = trawl_tests::process::run(&mut home.command(&[&["probe"][..], words].concat()));
    (ended.code, ended.stderr)
}

#[track_caller]
fn wait_for(address: &str, service: &str, status: ServingStatus) {
    let seen = wait::until(BOUND, || (asked(address, service) == Ok(status)).then_some(()));
    assert!(seen.is_some(), "{address} reports for '{service}': {:?}, not {status:?}", asked(address, service));
}

#[test]
fn without_etcd_a_process_lives_and_is_not_ready() {
    let home = Home::new();
    let nobody = format!("http://127.0.0.1:{}", free_port());
    for server in SERVERS {
        let health = format!("127.0.0.1:{}", free_port());
        let flags = [server, "--etcd", &nobody, "--etcd-timeout-s", "600", "--listen", "127.0.0.1:0"];
        let mut command = home.command(&flags);
        // By the environment, as a ConfigMap sets it.
        let running = Background::start(server, command.env("TRAWL_HEALTH", &health));
        wait_for(&health, "live", ServingStatus::Serving);
        assert_eq!(asked(&health, "ready"), Ok(ServingStatus::NotServing), "{server}");
        assert_eq!(asked(&health, ""), Ok(ServingStatus::NotServing), "{server}");
        assert_eq!(asked(&health, "reday"), Err(tonic::Code::NotFound), "{server}");
        // As the health check of a container asks.
        assert_eq!(probe(&home, &[&health, "--service", "live"]).0, Some(0), "{server}");
        let (code, said) = probe(&home, &[&health]);
        assert!(code == Some(1) && said.contains("is not ready"), "{server}: {code:?} {said}");
        drop(running);
        let (code, said) = probe(&home, &[&health]);
        assert!(code == Some(1) && said.contains(&health) && said.contains("--health"), "{server}: {code:?} {said}");
    }
}

#[test]
fn a_process_stays_live_and_ready_when_etcd_goes_away_and_leaves_without_it() {
    let home = Home::new();
    let mut etcd = OwnEtcd::start();
    let health = SERVERS.map(|_| format!("127.0.0.1:{}", free_port()));
    let flags = |health: &String| vec!["--health".to_owned(), health.clone()];
    let options = Options { coordinator: flags(&health[0]), worker: flags(&health[1]), ..Options::default() };
    let mut cluster = Cluster::start_as(&home, 1, &etcd.url, &[], options);
    for address in &health {
        wait_for(address, "ready", ServingStatus::Serving);
        assert_eq!(probe(&home, &[address]), (Some(0), String::new()));
    }
    etcd.process.kill();
    // Longer than every lease, so that a process that depends on etcd would have noticed.
    let minded = wait::until(Duration::from_secs(7), || {
        let answers: Vec<_> = health.iter().flat_map(|a| [asked(a, "live"), asked(a, "ready")]).collect();
        answers.iter().any(|s| *s != Ok(ServingStatus::Serving)).then_some(answers)
    });
    assert_eq!(minded, None, "a probe would restart, or take out of service, a process that works without etcd");
    // Leaving does not wait for etcd either: a node can be drained while etcd is away without killing anything.
    let worker = cluster.workers.remove(0);
    for process in [worker, cluster.coordinator] {
        process.signal("TERM");
        let signalled = Instant::now();
        process.wait(DRAIN_TIMEOUT + LEAVE_MARGIN).expect_code(0);
        println!("left without etcd in {:.2} s", signalled.elapsed().as_secs_f64());
    }
}

#[test]
fn probes_need_no_certificate_and_learn_first_that_a_process_leaves() {
    let home = Home::new();
    home.synth("market", 200, 60);
    let authority = Authority::new(&home.path("."), "Probes CA");
    let files = |name: &str| authority.issue(name, &[&format!("trawl://{name}/any")], (-1, 30));
    let (client, health) = (files("client"), format!("127.0.0.1:{}", free_port()));
    let slow = ["--health", &health, "--fault-delay-ms-per-segment", "4000", "--threads", "1"].map(str::to_owned);
    let options = Options {
        coordinator: files("coordinator").flags(),
        worker: [files("worker").flags(), slow.to_vec()].concat(),
        security: ClientSecurity { tls: Some(client.credentials()), ..ClientSecurity::default() },
    };
    let mut cluster = Cluster::start_as(&home, 1, &etcd::endpoint(), &[], options);
    wait_for(&health, "ready", ServingStatus::Serving);
    let mut scan = vec!["scan", "--dataset", "market", "--where", "close > 0", "--coordinator", &cluster.url];
    let flags = client.flags();
    scan.extend(flags.iter().map(String::as_str));
    let _scan = Background::start("scan", &mut home.command(&scan));
    let busy = wait::until(BOUND, || cluster.registered().iter().any(|(_, shards)| *shards > 0).then_some(()));
    assert!(busy.is_some(), "the worker was given nothing: {:?}", cluster.registered());
    let worker = cluster.workers.remove(0);
    worker.signal("TERM");
    wait_for(&health, "ready", ServingStatus::NotServing);
    assert_eq!(asked(&health, "live"), Ok(ServingStatus::Serving), "what drains must not be restarted");
    worker.wait(BOUND).expect_code(0);
}

#[test]
fn a_port_for_probes_that_is_taken_is_an_error_with_its_address() {
    let home = Home::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    for server in SERVERS {
        let ended = home.trawl(&[server, "--listen", "127.0.0.1:0", "--health", &address]).expect_code(1);
        assert!(ended.stderr.contains(&format!("cannot listen on {address}")), "{server}: {}", ended.stderr);
    }
}
