//! A receiver of OTLP by `http/protobuf` over TLS, inside the test: it stores paths, headers and bodies.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// One request.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// `POST /v1/traces HTTP/1.1`.
    pub line: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// The receiver. Its thread ends with the test.
#[derive(Debug)]
pub struct TlsReceiver {
    /// With the name in its certificate.
    pub url: String,
    /// The CA to trust, as a file.
    pub ca: PathBuf,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl TlsReceiver {
    /// Certificates are written into `folder`.
    pub fn start(folder: &Path) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a CA");
        let ca = folder.join("collector.ca.pem");
        std::fs::write(&ca, issuer.pem()).expect("the folder can be written");
        let key = KeyPair::generate().expect("a key");
        let own = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let own = own.signed_by(&key, &issuer).expect("a certificate");
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("TLS")
            .with_no_client_auth()
            .with_single_cert(vec![own.der().clone()], key)
            .expect("a certificate and its key");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("https://localhost:{}", listener.local_addr().expect("a bound address").port());
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let kept = Arc::clone(&asked);
        let config = Arc::new(config);
        std::thread::spawn(move || {
            for io in listener.incoming().map_while(Result::ok) {
                let Ok(connection) = ServerConnection::new(Arc::clone(&config)) else { continue };
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || {
                    let mut stream = BufReader::new(StreamOwned::new(connection, io));
                    while let Some(request) = read(&mut stream) {
                        kept.lock().unwrap_or_else(PoisonError::into_inner).push(request);
                        let answer =
                            b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n";
                        if stream.get_mut().write_all(answer).and_then(|()| stream.get_mut().flush()).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { url, ca, asked }
    }

    /// The requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn read(stream: &mut BufReader<StreamOwned<ServerConnection, std::net::TcpStream>>) -> Option<Asked> {
    let mut asked = Asked::default();
    let mut line = String::new();
    stream.read_line(&mut line).ok().filter(|n| *n > 0)?;
    line.trim_end().clone_into(&mut asked.line);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok().filter(|n| *n > 0)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        asked.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = asked.headers.iter().find(|(name, _)| name == "content-length")?.1.parse().ok()?;
    asked.body = vec![0; length];
    stream.read_exact(&mut asked.body).ok()?;
    Some(asked)
}
