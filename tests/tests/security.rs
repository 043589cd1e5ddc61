//! Who is admitted, who is refused, and with which message: real processes, real certificates, a real etcd.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tonic::{Code, Status};
use trawl_cluster_store::{ControlStore as _, EtcdStore};
use trawl_security::{ClientSecurity, Role, Token, authorise};
use trawl_tests::certs::{Authority, Files};
use trawl_tests::cluster::{Cluster, Options, block_on, channel_to};
use trawl_tests::etcd::{self, OwnEtcd};
use trawl_tests::home::Home;
use trawl_tests::process::{Background, Ended};
use trawl_tests::wait;
use trawl_wire::limits::PROTOCOL_VERSION;
use trawl_wire::pb::coordinator_client::CoordinatorClient;
use trawl_wire::pb::worker_client::WorkerClient;
use trawl_wire::pb::{ListWorkersRequest, PingRequest, ScanRequest};

/// Longest that anything here may take.
const BOUND: Duration = Duration::from_secs(60);
/// From yesterday to next month.
const VALID: (i64, i64) = (-1, 30);

/// A cluster whose processes have certificates of one CA, and a client's.
struct Secure {
    home: Home,
    authority: Authority,
    client: Files,
    cluster: Cluster,
}

impl Secure {
    fn start(workers: usize, coordinator_flags: &[&str], worker_flags: &[&str]) -> Self {
        let home = Home::new();
        home.synth("market", 20, 60);
        Self::start_in(home, workers, coordinator_flags, worker_flags, None)
    }

    fn start_in(
        home: Home,
        workers: usize,
        coordinator_flags: &[&str],
        worker_flags: &[&str],
        token: Option<Token>,
    ) -> Self {
        let authority = Authority::new(&home.path(""), "Test CA");
        let coordinator = authority.issue("coordinator", &["trawl://coordinator/c1"], VALID);
        let worker = authority.issue("worker", &["trawl://worker/fleet"], VALID);
        let client = authority.issue("client", &["trawl://client/alice"], VALID);
        let with = |files: &Files, flags: &[&str]| {
            let more = flags.iter().map(|flag| (*flag).to_owned());
            files.flags().into_iter().chain(more).collect()
        };
        let options = Options {
            coordinator: with(&coordinator, coordinator_flags),
            worker: with(&worker, worker_flags),
            security: ClientSecurity { tls: Some(client.credentials()), token, insecure: false },
        };
        let cluster = Cluster::start_as(&home, workers, &etcd::endpoint(), &[], options);
        assert!(cluster.url.starts_with("https://"), "{}", cluster.url);
        Self { home, authority, client, cluster }
    }

    /// A scan with these options.
    fn scan(&self, flags: &[String]) -> Ended {
        let mut arguments = vec!["scan", "--dataset", "market", "--where", "close > 0", "--quiet"];
        arguments.extend(["--coordinator", &self.cluster.url]);
        arguments.extend(flags.iter().map(String::as_str));
        self.home.trawl(&arguments)
    }

    fn wait_for_log(&mut self, text: &str) {
        self.cluster.coordinator.wait_for_line(BOUND, |line| line.contains(text).then_some(()));
    }

    /// Calls the coordinator directly, as another program might.
    fn call(&self, files: &Files, token: Option<&Token>) -> Result<(), Status> {
        let security = ClientSecurity { tls: Some(files.credentials()), ..ClientSecurity::default() };
        block_on(async {
            let channel = channel_to(&self.cluster.url, &security, Role::Coordinator);
            let document_json = r#"{"dataset":"market","where":"close > 0"}"#.to_owned();
            let mut request = tonic::Request::new(ScanRequest {
                protocol_version: PROTOCOL_VERSION,
                document_json,
                ..ScanRequest::default()
            });
            authorise(token, request.metadata_mut());
            let mut events = CoordinatorClient::new(channel).scan(request).await?.into_inner();
            while events.message().await?.is_some() {}
            Ok(())
        })
    }
}

/// A rustls connection that presents this certificate and trusts every server.
fn connection(url: &str, files: Option<&Files>) -> rustls::StreamOwned<rustls::ClientConnection, std::net::TcpStream> {
    connection_of(url, files, b"h2")
}

/// The same for another protocol.
pub fn connection_of(
    url: &str,
    files: Option<&Files>,
    protocol: &[u8],
) -> rustls::StreamOwned<rustls::ClientConnection, std::net::TcpStream> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody));
    let mut config = match files {
        None => builder.with_no_client_auth(),
        Some(files) => {
            let chain = CertificateDer::pem_file_iter(&files.certificate).expect("a file");
            let chain = chain.collect::<Result<Vec<_>, _>>().expect("PEM");
            let key = PrivateKeyDer::from_pem_file(&files.key).expect("a key");
            builder.with_client_auth_cert(chain, key).expect("a certificate")
        }
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    let address = url.trim_start_matches("https://");
    let name = ServerName::try_from("localhost").expect("a name");
    let mut connection = rustls::ClientConnection::new(Arc::new(config), name).expect("a connection");
    let mut socket = std::net::TcpStream::connect(address).expect("it listens");
    socket.set_read_timeout(Some(BOUND)).expect("a timeout");
    while connection.is_handshaking() {
        connection.complete_io(&mut socket).expect("a server that speaks TLS");
    }
    rustls::StreamOwned::new(connection, socket)
}

/// The alert of a server for this certificate; `None` when it accepts it.
fn alert_of(url: &str, files: Option<&Files>) -> Option<rustls::AlertDescription> {
    let mut stream = connection(url, files);
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").expect("it listens still");
    let error = match stream.read(&mut [0; 1]) {
        Ok(_) => return None,
        Err(error) => error,
    };
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::AlertReceived(alert)) => Some(*alert),
        _ => panic!("no alert: {error:?}"),
    }
}

/// Trusts every server: these tests check what the server accepts.
#[derive(Debug)]
struct Anybody;

impl rustls::client::danger::ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

#[track_caller]
fn check_ended(ended: Ended, code: i32, texts: &[&str]) {
    let ended = ended.expect_code(code);
    for text in texts {
        assert!(ended.stderr.contains(text), "'{text}' is not in: {}", ended.stderr);
    }
}

/// The most common mistake: `http://` for a coordinator that has certificates. Asking again would not help.
#[test]
fn plain_text_to_a_coordinator_with_certificates_is_explained_at_once() {
    let secure = Secure::start(1, &[], &[]);
    let url = secure.cluster.url.replace("https://", "http://");
    let scan = ["scan", "--dataset", "market", "--where", "close > 0", "--coordinator", &url];
    let started = std::time::Instant::now();
    for arguments in [&scan[..], &["scans", "list", "--coordinator", &url]] {
        let ended = secure.home.trawl(arguments).expect_code(1);
        assert!(ended.stderr.contains("expects TLS: write https://"), "{}", ended.stderr);
        assert!(!ended.stderr.contains("asking again"), "{}", ended.stderr);
    }
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
}

#[test]
fn development_certificates_make_a_cluster_that_answers_as_one_process() {
    let home = Home::new();
    home.synth("market", 30, 80);
    home.trawl(&["certs", "dev", "--dir", "certs", "--client", "alice"]).expect_code(0);
    let files = |role: &str| Files {
        ca: home.path("certs/ca.pem"),
        certificate: home.path(&format!("certs/{role}.pem")),
        key: home.path(&format!("certs/{role}.key")),
    };
    let key_mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(home.path("certs/ca.key")).expect("a key").permissions(),
    );
    assert_eq!(key_mode & 0o077, 0, "others can read the CA's key");
    let client = files("client");
    let security = ClientSecurity { tls: Some(client.credentials()), ..ClientSecurity::default() };
    let etcd = OwnEtcd::start_secure(&Files { ca: home.path("certs/etcd-ca.pem"), ..files("etcd") });
    let flags = |role: &str| {
        let etcd = [("--etcd-ca", "etcd-ca.pem"), ("--etcd-cert", "pem"), ("--etcd-key", "key")];
        let etcd = etcd.into_iter().flat_map(|(flag, file)| {
            let file = if file.contains('-') { file.to_owned() } else { format!("etcd-{role}.{file}") };
            [flag.to_owned(), home.path(&format!("certs/{file}")).display().to_string()]
        });
        [files(role).flags(), etcd.collect(), vec!["--strict".to_owned()]].concat()
    };
    let options = Options { coordinator: flags("coordinator"), worker: flags("worker"), security };
    let cluster = Cluster::start_as(&home, 2, &etcd.url, &[], options);
    // A user's certificate, which admits it to the coordinator, does not admit it to etcd.
    let both = home.write(
        "both.pem",
        &["certs/etcd-ca.pem", "certs/ca.pem"].map(|name| String::from_utf8(home.read(name)).expect("text")).concat(),
    );
    for (role, admitted) in [("client", false), ("operator", false), ("etcd-worker", true)] {
        let shown = Files { ca: both.clone(), ..files(role) }.credentials();
        let keys = block_on(async {
            let store = EtcdStore::with_tls(&etcd.url, Some(shown)).expect("an address");
            store.list_keys("").await.map(|listing| listing.entries.len())
        });
        assert_eq!(keys.as_ref().is_ok_and(|keys| *keys > 0), admitted, "{role}: {keys:?}");
    }
    let clauses = ["scan", "--dataset", "market", "--where", "close > sma(close, 20)", "--quiet", "--output"];
    home.trawl(&[&clauses[..], &["here.csv"]].concat()).expect_code(0);
    let flags = client.flags();
    let there = ["there.csv", "--coordinator", &cluster.url];
    let there: Vec<&str> = there.into_iter().chain(flags.iter().map(String::as_str)).collect();
    home.trawl(&[&clauses[..], &there].concat()).expect_code(0);
    assert!(home.read("here.csv") == home.read("there.csv"), "the answer over TLS differs");
    assert!(cluster.coordinator.output().contains("trawl://client/alice"), "{}", cluster.coordinator.output());

    // Again with the same CA, so that running processes trust the new certificates.
    let before = home.read("certs/client.pem");
    home.trawl(&["certs", "dev", "--dir", "certs"]).expect_code(0);
    assert_ne!(home.read("certs/client.pem"), before);
    home.trawl(&[&clauses[..], &there].concat()).expect_code(0);
    std::fs::remove_file(home.path("certs/ca.key")).expect("it is there");
    check_ended(home.trawl(&["certs", "dev", "--dir", "certs"]), 2, &["ca.pem without ca.key"]);
}

#[test]
fn a_client_without_a_valid_certificate_is_refused_with_the_reason() {
    let mut secure = Secure::start(1, &[], &[]);
    secure.scan(&secure.client.flags()).expect_code(0);
    let folder = secure.home.path("");
    let trust = folder.join("both.pem");
    let other = Authority::new(&folder, "Other CA");
    std::fs::write(&trust, format!("{}{}", secure.authority.pem(), other.pem())).expect("a file");

    // No certificate.
    let none = ["--tls-ca".to_owned(), secure.client.ca.display().to_string()];
    check_ended(secure.scan(&none), 1, &["asks for a certificate", "--tls-cert FILE"]);
    let url = secure.cluster.url.clone();
    assert_eq!(alert_of(&url, None), Some(rustls::AlertDescription::CertificateRequired));
    secure.wait_for_log("it showed no certificate");

    // A certificate of another CA: the server refuses it, and logs that.
    let stranger = other.issue("stranger", &["trawl://client/alice"], VALID);
    let expected = ["does not trust 'Other CA'", "stranger.pem", "--tls-ca"];
    check_ended(secure.scan(&stranger.trusting(&trust).flags()), 1, &expected);
    assert_eq!(alert_of(&url, Some(&stranger)), Some(rustls::AlertDescription::UnknownCA));
    secure.wait_for_log("was issued by 'Other CA', which is no CA in");
    // The client does not trust a server of another CA either.
    let expected = ["the certificate of trawl://coordinator/c1 was issued by 'Test CA'", "stranger.trust.pem"];
    check_ended(secure.scan(&stranger.flags()), 1, &expected);

    // Expired: our client reports it at once; one that does not check gets it from the server.
    let expired = secure.authority.issue("expired", &["trawl://client/alice"], (-30, -2));
    check_ended(
        secure.scan(&expired.flags()),
        2,
        &["expired.pem", "trawl://client/alice expired on", "issue a new one"],
    );
    assert_eq!(alert_of(&url, Some(&expired)), Some(rustls::AlertDescription::CertificateExpired));
    secure.wait_for_log("the certificate of trawl://client/alice expired on");
    let future = secure.authority.issue("future", &["trawl://client/alice"], (2, 30));
    check_ended(secure.scan(&future.flags()), 2, &["is not valid before"]);

    // A certificate with the key of another one.
    let mixed = Files { key: stranger.key.clone(), ..secure.client.clone() };
    check_ended(secure.scan(&mixed.flags()), 2, &["stranger.key", "the key of another certificate"]);

    // Plain text to a port with TLS, and the other way round.
    let plain = url.replace("https://", "http://");
    let scan = ["scan", "--dataset", "market", "--where", "close > 0", "--coordinator", &plain];
    secure.home.trawl(&scan).expect_code(1);
    secure.wait_for_log("it does not speak TLS");
    secure.scan(&secure.client.flags()).expect_code(0);
}

#[test]
fn a_role_may_do_what_is_its_own_and_nothing_else() {
    let secure = Secure::start(1, &[], &[]);
    let worker = secure.authority.issue("stolen", &["trawl://worker/w1"], VALID);
    // A stolen certificate of a worker, used to submit: with our program, and with another.
    let expected = ["trawl://worker/w1 may not submit scans", "certificate of a client"];
    check_ended(secure.scan(&worker.flags()), 2, &expected);
    let status = secure.call(&worker, None).unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    assert!(secure.cluster.coordinator.output().contains("refused"), "{}", secure.cluster.coordinator.output());
    // One without an identity, although of the right CA.
    let nameless = secure.authority.issue("nameless", &["localhost"], VALID);
    let status = secure.call(&nameless, None).unwrap_err();
    assert!(status.code() == Code::Unauthenticated && status.message().contains("trawl://client/NAME"), "{status:?}");
    secure.call(&secure.client, None).unwrap();

    // A worker accepts work from coordinators only.
    let address = secure.cluster.workers_seen()[0].address.clone();
    let ping = |files: &Files| {
        let security = ClientSecurity { tls: Some(files.credentials()), ..ClientSecurity::default() };
        block_on(async {
            let channel = channel_to(&address, &security, Role::Worker);
            WorkerClient::new(channel).ping(PingRequest {}).await.map(|_| ())
        })
    };
    let coordinator = secure.authority.issue("c2", &["trawl://coordinator/c2"], VALID);
    ping(&coordinator).unwrap();
    for files in [&secure.client, &worker] {
        let status = ping(files).unwrap_err();
        assert!(status.code() == Code::PermissionDenied && status.message().contains("coordinator"), "{status:?}");
    }
    // Clients do not trust a worker that poses as a coordinator, and a server does not start with another role's name.
    let security = ClientSecurity { tls: Some(secure.client.credentials()), ..ClientSecurity::default() };
    block_on(async {
        let channel = channel_to(&address, &security, Role::Coordinator);
        let status = CoordinatorClient::new(channel).list_workers(ListWorkersRequest::default()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    });
    for (role, files, wanted) in
        [("worker", &secure.client, "trawl://worker/NAME"), ("coordinator", &worker, "trawl://coordinator/NAME")]
    {
        let flags = files.flags();
        let arguments: Vec<&str> = [role].into_iter().chain(flags.iter().map(String::as_str)).collect();
        check_ended(secure.home.trawl(&arguments), 2, &[wanted, &files.certificate.display().to_string()]);
    }
}

#[test]
fn tokens_identify_users_and_are_revoked_while_it_runs() {
    let home = Home::new();
    home.synth("market", 20, 60);
    let new = |name: &str, roles: &str| {
        let printed = home.trawl(&["tokens", "new", name, "--roles", roles]).expect_code(0).stdout;
        let lines: Vec<&str> = printed.lines().collect();
        let [secret, line] = lines[..] else { panic!("{printed}") };
        (Token::parse(secret).expect("a token"), line.to_owned())
    };
    let [(alice, alice_line), (bob, bob_line), (stranger, _)] =
        [new("alice", "submit,read"), new("bob", "read-all"), new("eve", "admin")];
    assert!(!alice_line.contains(alice.secret()));
    let table = home.write("tokens", &format!("{alice_line}\n{bob_line}\n"));
    let tokens = table.display().to_string();
    let mut secure = Secure::start_in(home, 1, &["--tokens", &tokens], &[], Some(alice.clone()));
    let with = |secure: &Secure, token: &Token| {
        let file = secure.home.write("token", &format!("{}\n", token.secret()));
        let more = ["--token-file".to_owned(), file.display().to_string()];
        secure.scan(&[secure.client.flags(), more.to_vec()].concat())
    };
    with(&secure, &alice).expect_code(0);
    secure.wait_for_log("user alice");
    check_ended(secure.scan(&secure.client.flags()), 2, &["a token is needed", "--token-file"]);
    check_ended(with(&secure, &stranger), 2, &["the token is not known here"]);
    check_ended(with(&secure, &bob), 2, &["user bob may not submit scans", "read-all", "'submit' is needed"]);
    let refused = |token: Option<&Token>| secure.call(&secure.client, token).unwrap_err().code();
    assert_eq!(refused(None), Code::Unauthenticated);
    assert_eq!(refused(Some(&stranger)), Code::Unauthenticated);
    assert_eq!(refused(Some(&bob)), Code::PermissionDenied);
    // A token does not turn a worker's certificate into a client's.
    let worker = secure.authority.issue("stolen", &["trawl://worker/w1"], VALID);
    assert_eq!(secure.call(&worker, Some(&alice)).unwrap_err().code(), Code::PermissionDenied);

    // An incomplete change is not applied, a complete one is.
    secure.home.write("tokens", "alice submit");
    secure.wait_for_log("new tokens cannot be used");
    with(&secure, &alice).expect_code(0);
    secure.home.write("tokens", &bob_line);
    secure.wait_for_log("new tokens are in use");
    check_ended(with(&secure, &alice), 2, &["the token is not known here"]);

    let log = secure.cluster.coordinator.output();
    for token in [alice, bob, stranger] {
        assert!(!log.contains(token.secret()), "a secret was printed");
    }
}

#[test]
fn a_caller_has_limits_and_learns_when_to_retry() {
    let secure = Secure::start(
        1,
        &["--plan-bytes-max", "300", "--submissions-per-minute-max", "3", "--scans-per-caller-max", "1"],
        &["--fault-delay-ms-per-segment", "3000"],
    );
    let long = format!("close > 0 and {}", vec!["close > 0"; 40].join(" and "));
    let flags = secure.client.flags();
    let mut arguments = vec!["scan", "--dataset", "market", "--where", &long, "--coordinator", &secure.cluster.url];
    arguments.extend(flags.iter().map(String::as_str));
    check_ended(secure.home.trawl(&arguments), 2, &["trawl://client/alice may send 300 at most"]);

    let scan = |name: &str| {
        let mut arguments = vec!["scan", "--dataset", "market", "--where", "close > 0", "--quiet"];
        arguments.extend(["--coordinator", &secure.cluster.url]);
        arguments.extend(flags.iter().map(String::as_str));
        Background::start(name, &mut secure.home.command(&arguments))
    };
    let first = scan("first");
    let busy = wait::until(BOUND, || secure.cluster.registered().into_iter().find(|(_, n)| *n > 0));
    assert!(busy.is_some(), "the first scan never ran");
    let retry_after = |status: &Status| -> u64 {
        let value = status.metadata().get("retry-after").expect("says when to come again");
        value.to_str().expect("digits").parse().expect("seconds")
    };
    let status = secure.call(&secure.client, None).unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("1 scans running, 1 at most") && retry_after(&status) == 5, "{status:?}");
    // Another caller is not affected.
    let bob = secure.authority.issue("bob", &["trawl://client/bob"], VALID);
    secure.call(&bob, None).unwrap();
    first.wait(BOUND).expect_code(0);
    scan("second").wait(BOUND).expect_code(0);
    scan("third").wait(BOUND).expect_code(0);
    // Three are used up, less what was refilled meanwhile (one in 20 seconds).
    let refused = (0..3).find_map(|_| secure.call(&secure.client, None).err()).expect("the rate is spent");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("3 scans a minute") && (1..=20).contains(&retry_after(&refused)), "{refused:?}");
    check_ended(secure.scan(&flags), 1, &["3 scans a minute", "try again in"]);
}

#[test]
fn certificates_are_rotated_without_dropping_a_scan() {
    let mut secure = Secure::start(2, &[], &["--fault-delay-ms-per-segment", "4000"]);
    let flags = secure.client.flags();
    let scan = |output: &str| {
        let mut arguments = vec!["scan", "--dataset", "market", "--where", "close > 0", "--quiet", "--output", output];
        arguments.extend(["--coordinator", &secure.cluster.url]);
        arguments.extend(flags.iter().map(String::as_str));
        Background::start("scan", &mut secure.home.command(&arguments))
    };
    let before = server_certificate(&secure.cluster.url, &secure.client);
    let running = scan("during.csv");
    let busy = wait::until(BOUND, || secure.cluster.registered().into_iter().find(|(_, n)| *n > 0));
    assert!(busy.is_some(), "the scan never ran");

    // A new certificate is not applied before its key has arrived; with its key it is, by every process.
    let key = std::fs::read(secure.home.path("coordinator.key")).expect("a key");
    secure.authority.issue("coordinator", &["trawl://coordinator/c1"], VALID);
    let new_key = std::fs::read(secure.home.path("coordinator.key")).expect("a key");
    std::fs::write(secure.home.path("coordinator.key"), key).expect("a file");
    wait_for(&mut secure.cluster.coordinator, "new certificates cannot be used");
    assert_eq!(server_certificate(&secure.cluster.url, &secure.client), before, "half a rotation was applied");
    std::fs::write(secure.home.path("coordinator.key"), new_key).expect("a file");
    wait_for(&mut secure.cluster.coordinator, "new certificates are in use");
    secure.authority.issue("worker", &["trawl://worker/fleet"], VALID);
    for worker in &mut secure.cluster.workers {
        wait_for(worker, "new certificates are in use");
    }
    assert_ne!(server_certificate(&secure.cluster.url, &secure.client), before, "the old one is still in use");

    running.wait(BOUND).expect_code(0);
    secure.scan(&[secure.client.flags(), vec!["--output".to_owned(), "after.csv".to_owned()]].concat()).expect_code(0);
    assert!(secure.home.read("during.csv") == secure.home.read("after.csv"), "the answer differs during a rotation");
    assert!(!secure.cluster.coordinator.output().contains("lost a worker"), "{}", secure.cluster.coordinator.output());
}

fn wait_for(process: &mut Background, text: &str) {
    process.wait_for_line(BOUND, |line| line.contains(text).then_some(()));
}

/// The certificate that a server presents.
fn server_certificate(url: &str, files: &Files) -> Vec<u8> {
    let mut stream = connection(url, Some(files));
    stream.flush().expect("it listens");
    let chain = stream.conn.peer_certificates().expect("hands are shaken");
    chain[0].as_ref().to_vec()
}

#[test]
fn a_token_limits_what_its_user_may_take() {
    let home = Home::new();
    home.synth("market", 20, 60);
    let (mut table, mut users) = (String::new(), Vec::new());
    for (name, further) in [
        ("plain", &[][..]),
        ("fast", &["--priority", "high", "--datasets", "market,eu"]),
        ("former", &["--until", "2020-12-31"]),
        ("elsewhere", &["--datasets", "eu"]),
        ("rare", &["--submissions-per-minute", "1"]),
    ] {
        let printed = home.trawl(&[&["tokens", "new", name][..], further].concat()).expect_code(0).stdout;
        let (secret, line) = printed.trim().split_once('\n').expect("two lines");
        table += &format!("{line}\n");
        users.push(Token::parse(secret).expect("a token"));
    }
    let tokens = home.write("tokens", &table).display().to_string();
    let secure = Secure::start_in(home, 1, &["--tokens", &tokens], &[], Some(users[0].clone()));
    let with = |user: usize, further: &[&str]| {
        let file = secure.home.write("token", &format!("{}\n", users[user].secret()));
        let further = further.iter().map(|word| (*word).to_owned());
        let more = ["--token-file".to_owned(), file.display().to_string()].into_iter().chain(further);
        secure.scan(&secure.client.flags().into_iter().chain(more).collect::<Vec<_>>())
    };
    with(0, &[]).expect_code(0);
    check_ended(with(0, &["--priority", "high"]), 2, &["priority high is not granted to user plain: at most normal"]);
    with(1, &["--priority", "high"]).expect_code(0);
    check_ended(with(2, &[]), 2, &["the token of user former ended after 2020-12-31"]);
    check_ended(with(3, &[]), 2, &["dataset 'market' is not granted to user elsewhere: eu"]);
    with(4, &[]).expect_code(0);
    check_ended(with(4, &["--ephemeral"]), 1, &["submitted too often, 1 scans a minute", "try again in"]);
    for (argument, expected) in [("--until=soon", "YYYY-MM-DD"), ("--priority=top", "low, normal, high")] {
        check_ended(secure.home.trawl(&["tokens", "new", "x", argument]), 2, &[expected]);
    }
}

#[test]
fn etcd_is_reached_with_certificates_of_both_sides() {
    let home = Home::new();
    home.synth("market", 20, 60);
    let folder = home.path("");
    let authority = Authority::new(&folder, "Etcd CA");
    let etcd = OwnEtcd::start_secure(&authority.issue("etcd", &["127.0.0.1", "localhost"], VALID));
    let trawl = authority.issue("trawl", &["trawl://client/any"], VALID);
    let flag = |flag: &str, path: &Path| [format!("--etcd-{flag}"), path.display().to_string()];
    let flags = [flag("ca", &trawl.ca), flag("cert", &trawl.certificate), flag("key", &trawl.key)].concat();
    let options = Options { coordinator: flags.clone(), worker: flags.clone(), security: ClientSecurity::default() };
    let cluster = Cluster::start_as(&home, 2, &etcd.url, &[], options);
    let scan = ["scan", "--dataset", "market", "--where", "close > 0", "--quiet", "--coordinator", &cluster.url];
    home.trawl(&scan).expect_code(0);

    let start = |flags: &[String]| {
        let mut arguments = vec!["worker", "--etcd", &etcd.url, "--etcd-timeout-s", "1"];
        arguments.extend(flags.iter().map(String::as_str));
        home.trawl(&arguments)
    };
    check_ended(start(&[]), 2, &["--etcd: https needs a CA to trust", "--etcd-ca FILE"]);
    check_ended(start(&flag("ca", &trawl.ca)), 1, &["certificate of this side"]);
    let other = Authority::new(&folder, "Other CA").issue("other", &["trawl://client/any"], VALID);
    let wrong = [flag("ca", &other.ca), flag("cert", &other.certificate), flag("key", &other.key)].concat();
    check_ended(start(&wrong), 1, &["was issued by 'Etcd CA', which is no CA in", "other.trust.pem"]);
    // Users' certificates of etcd's CA: a warning, or a refusal.
    let strict = ["--strict".to_owned()];
    let same = authority.issue("same", &["trawl://worker/w1"], VALID).flags();
    check_ended(start(&[&same[..], &flags, &strict].concat()), 2, &["of the CA of --tls-ca", "certs dev"]);
    check_ended(start(&[&same[..], &strict].concat()), 2, &["of the CA of --tls-ca", "certs dev"]);
    let warned = start(&[&same[..], &flag("ca", &trawl.ca)].concat());
    check_ended(warned, 1, &["of the CA of --tls-ca", "certificate of this side"]);
    let apart = Authority::new(&folder, "Users' CA").issue("apart", &["trawl://worker/w1"], VALID).flags();
    let shown_nothing = start(&[&apart[..], &flag("ca", &trawl.ca), &strict].concat());
    assert!(!shown_nothing.stderr.contains("of the CA of --tls-ca"), "{}", shown_nothing.stderr);
    check_ended(shown_nothing, 1, &["certificate of this side"]);
    // Of the right CA, but for another host.
    let elsewhere = OwnEtcd::start_secure(&authority.issue("elsewhere", &["etcd.example.org"], VALID));
    let arguments = ["worker", "--etcd", &elsewhere.url, "--etcd-timeout-s", "1"];
    let arguments: Vec<&str> = arguments.into_iter().chain(flags.iter().map(String::as_str)).collect();
    check_ended(home.trawl(&arguments), 1, &["is not for '127.0.0.1' but for", "etcd.example.org"]);
}

#[test]
fn plain_text_leaves_this_machine_only_when_it_is_allowed_explicitly() {
    let home = Home::new();
    for role in ["coordinator", "worker"] {
        let expected = ["0.0.0.0:0 is not a loopback address", "--tls-cert", "--insecure"];
        check_ended(home.trawl(&[role, "--listen", "0.0.0.0:0"]), 2, &expected);
        let expected = ["--etcd: plain text to 10.255.255.1:2379", "--insecure"];
        check_ended(home.trawl(&[role, "--etcd", "http://10.255.255.1:2379"]), 2, &expected);
    }
    for role in ["coordinator", "worker"] {
        check_ended(home.trawl(&[role, "--listen", "0.0.0.0:0", "--insecure"]), 2, &["--advertise HOST:PORT"]);
    }
    let name = etcd::fresh_cluster_name();
    let etcd = etcd::endpoint();
    let flags = ["--etcd", &etcd, "--cluster-name", &name, "--insecure"];
    let insisting = [&["coordinator", "--listen", "0.0.0.0:0", "--advertise", "127.0.0.1:1"][..], &flags].concat();
    let mut coordinator = Background::start("coordinator", &mut home.command(&insisting));
    coordinator.wait_for_line(BOUND, |line| line.starts_with("ready coordinator").then_some(()));
    assert!(coordinator.output().contains("--insecure: anyone who can reach 0.0.0.0:0"), "{}", coordinator.output());
    let scan = ["scan", "--dataset", "us5", "--where", "close > 0", "--coordinator", "http://10.255.255.1:7400"];
    check_ended(home.trawl(&scan), 2, &["plain text to another machine", "--insecure"]);
}
