//! Every configuration of rustls that Trawl uses, built from the files of `--tls-ca`, `--tls-cert`, `--tls-key`.
//!
//! TLS 1.3 only, with ring. A configuration is built for each connection from the current content of the files, so a
//! rotation needs no restart, no session is resumed past a rotation, and each connection keeps its own reason when a
//! certificate is rejected.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    ServerConfig, SignatureScheme,
};
use trawl_telemetry::metrics::catalogue::process::CERTIFICATE_EXPIRY;

use crate::files::{FileError, Watched};
use crate::identity::{Expect, Identity, Role, issuer_of, subject_of};

/// Maximum certificates in one file; a longer one is the wrong file.
const CERTIFICATES_MAX: usize = 64;
/// A certificate that expires sooner causes a warning when it is loaded.
const EXPIRY_WARNING: Duration = Duration::from_secs(7 * 24 * 3600);
/// The year 9999, when no certificate is valid.
const FAR_FUTURE_S: u64 = 253_402_000_000;
/// What is spoken inside TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC.
    Http2,
    /// The interface for programs.
    Http1,
}

impl Protocol {
    /// Its name in a handshake.
    pub(crate) fn alpn(self) -> &'static [u8] {
        match self {
            Self::Http2 => b"h2",
            Self::Http1 => b"http/1.1",
        }
    }
}

/// Paths of certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// PEM certificates of the CAs to trust.
    pub ca: PathBuf,
    /// PEM certificate (with its intermediates, leaf first) and PEM key; a client may have none.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// The certificate and key of a process.
struct Own {
    key: Arc<CertifiedKey>,
    /// Path of the certificate, for messages.
    file: PathBuf,
    issuer: String,
}

/// The content of the files.
pub(super) struct Loaded {
    roots: Arc<RootCertStore>,
    ca_file: PathBuf,
    own: Option<Own>,
}

/// Certificates, key and trust of a process; rotated by changing the files.
pub struct Credentials(Arc<Watched<Loaded>>);

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Credentials").field(&self.0).finish()
    }
}

/// Why the peer of a connection was rejected, set by the verifier.
#[derive(Debug, Clone, Default)]
pub(super) struct Reason(Arc<Mutex<Option<String>>>);

impl Reason {
    pub fn put(&self, text: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    pub fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub fn peek(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(ring::default_provider())))
}

impl Credentials {
    /// Reads the files. `role` is the role that the certificate must have; a client's may have any, which the server
    /// checks.
    ///
    /// # Errors
    /// Which file is wrong, and why: unreadable, not PEM, key of another certificate, expired, of a CA that is not in
    /// the CA file, of another role.
    pub fn load(files: TlsFiles, role: Option<Role>) -> Result<Arc<Self>, FileError> {
        let mut paths = vec![files.ca.clone()];
        paths.extend(files.own.iter().flat_map(|(certificate, key)| [certificate.clone(), key.clone()]));
        let watched = Watched::load("certificates", paths, move |bytes| Loaded::from_files(&files, role, bytes))?;
        Ok(Arc::new(Self(Arc::new(watched))))
    }

    pub(super) fn watched(&self) -> &Arc<Watched<Loaded>> {
        &self.0
    }

    /// Reads the files now; see [`Watched::refresh`].
    pub fn refresh(&self) {
        self.0.refresh();
    }

    /// Whether there is a certificate to present.
    pub(super) fn has_own(&self) -> bool {
        self.0.current().own.is_some()
    }

    /// Configuration for one incoming connection.
    pub(super) fn server_config(&self, reason: &Reason, protocol: Protocol) -> Result<Arc<ServerConfig>, Error> {
        let loaded = self.0.current();
        let own = loaded.own.as_ref().ok_or_else(|| Error::General("a server needs a certificate".to_owned()))?;
        let inner = WebPkiClientVerifier::builder_with_provider(Arc::clone(&loaded.roots), provider())
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        let verifier = ClientVerifier { inner, loaded: Arc::clone(&loaded), reason: reason.clone() };
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(Arc::new(verifier))
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(&own.key))));
        config.alpn_protocols = vec![protocol.alpn().to_vec()];
        // The certificate of a resumed session would not be checked again.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    /// Configuration for one outgoing connection.
    pub(super) fn client_config(&self, expect: Expect, reason: &Reason) -> Result<Arc<ClientConfig>, Error> {
        let loaded = self.0.current();
        let own = loaded.own.as_ref().map(|own| SingleCertAndKey::from(Arc::clone(&own.key)));
        let verifier = ServerVerifier { loaded, expect, reason: reason.clone() };
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match own {
            Some(own) => config.with_client_cert_resolver(Arc::new(own)),
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![Protocol::Http2.alpn().to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Arc::new(config))
    }

    /// Explains the peer's alert about this side's certificate, and what to do.
    pub(super) fn explain_alert(&self, alert: AlertDescription) -> String {
        let loaded = self.0.current();
        let Some(own) = &loaded.own else {
            return format!(
                "it asks for a certificate of this side and was shown none ({alert:?}): give --tls-cert FILE and \
                 --tls-key FILE"
            );
        };
        let file = own.file.display();
        match alert {
            AlertDescription::UnknownCA => format!(
                "it does not trust '{}', the CA of '{file}': put that CA into its --tls-ca file, or use a certificate \
                 of its CA",
                own.issuer
            ),
            AlertDescription::CertificateExpired => {
                format!("it says that the certificate '{file}' is expired: issue a new one, or set its clock right")
            }
            alert => format!("it refuses the certificate '{file}' ({alert:?}): its log says why"),
        }
    }
}

impl Loaded {
    fn from_files(files: &TlsFiles, role: Option<Role>, bytes: &[Vec<u8>]) -> Result<Self, FileError> {
        let ca_file = files.ca.clone();
        let mut roots = RootCertStore::empty();
        let ca = |what: String| FileError::new(&files.ca, what, "name the PEM file of the cluster's CA");
        for certificate in certificates(bytes.first()).map_err(ca)? {
            roots.add(certificate).map_err(|error| ca(format!("a certificate in it is no CA's: {error}")))?;
        }
        let mut loaded = Self { roots: Arc::new(roots), ca_file, own: None };
        if let Some((certificate, key)) = &files.own {
            loaded.own = Some(loaded.own_of((certificate, bytes.get(1)), (key, bytes.get(2)), role)?);
        }
        Ok(loaded)
    }

    fn own_of(
        &self,
        (file, certificate): (&PathBuf, Option<&Vec<u8>>),
        (key_file, key): (&PathBuf, Option<&Vec<u8>>),
        role: Option<Role>,
    ) -> Result<Own, FileError> {
        let wrong =
            |what: String| FileError::new(file, what, "name the PEM file of this process's certificate, leaf first");
        let chain = certificates(certificate).map_err(wrong)?;
        let leaf = chain.first().cloned().ok_or_else(|| wrong("it is empty".to_owned()))?;
        let bad_key = |what: &str| {
            FileError::new(key_file, what, format!("name the PEM file of the private key of '{}'", file.display()))
        };
        let key = PrivateKeyDer::from_pem_slice(key.map_or(&[], Vec::as_slice))
            .map_err(|_| bad_key("it holds no PEM private key"))?;
        let intermediates = chain.get(1..).unwrap_or_default().to_vec();
        let key = CertifiedKey::from_der(chain, key, &provider()).map_err(|error| match error {
            Error::InconsistentKeys(_) => bad_key("it is the key of another certificate"),
            _ => bad_key("it is no key that can be used (ECDSA P-256 or P-384, Ed25519, RSA)"),
        })?;
        let issue = "issue a new one ('trawl certs dev' makes certificates for development)";
        let now = UnixTime::now();
        if let Err(error) = self.verify(&leaf, &intermediates, now, role.is_some()) {
            return Err(FileError::new(file, self.explain(&error, &leaf), issue));
        }
        if let Some(role) = role {
            let identity = Identity::of_certificate(&leaf).map_err(|what| FileError::new(file, what, issue))?;
            if identity.role != role {
                return Err(FileError::new(
                    file,
                    format!("it is the certificate of {identity}"),
                    format!("a {role} needs one of trawl://{role}/NAME"),
                ));
            }
        }
        let soon = UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs()) + EXPIRY_WARNING);
        if let Err(error) = self.verify(&leaf, &intermediates, soon, role.is_some()) {
            let why = match &error {
                Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. }) => {
                    format!("the certificate of {} ends on {}", subject_of(&leaf), date(*not_after))
                }
                _ => self.explain(&error, &leaf),
            };
            tracing::warn!("'{}': {why}, that is within {} days", file.display(), EXPIRY_WARNING.as_secs() / 86_400);
        }
        // In the far future every certificate has expired, and the verifier returns the expiry date.
        let late = UnixTime::since_unix_epoch(Duration::from_secs(FAR_FUTURE_S));
        if let Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) =
            self.verify(&leaf, &intermediates, late, role.is_some())
            && role.is_some()
        {
            CERTIFICATE_EXPIRY.set_time(Duration::from_secs(not_after.as_secs()));
        }
        Ok(Own { key: Arc::new(key), file: file.clone(), issuer: issuer_of(&leaf) })
    }

    /// Verifies that a chain leads to a trusted CA, for use as a server or as a client.
    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        as_server: bool,
    ) -> Result<(), Error> {
        if as_server {
            let parsed = ParsedCertificate::try_from(leaf)?;
            let algorithms = provider().signature_verification_algorithms.all;
            return verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms);
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&self.roots), provider()).build();
        let verifier = verifier.map_err(|error| Error::General(error.to_string()))?;
        verifier.verify_client_cert(leaf, intermediates, now).map(|_| ())
    }

    /// Explains an error of a certificate: its subject, the error, since when.
    fn explain(&self, error: &Error, leaf: &CertificateDer<'_>) -> String {
        let subject = subject_of(leaf);
        let Error::InvalidCertificate(why) = error else { return format!("the certificate of {subject}: {error}") };
        match why {
            CertificateError::ExpiredContext { not_after, .. } => {
                format!("the certificate of {subject} expired on {}", date(*not_after))
            }
            CertificateError::NotValidYetContext { not_before, .. } => {
                format!("the certificate of {subject} is not valid before {}", date(*not_before))
            }
            CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
                "the certificate of {subject} was issued by '{}', which is no CA in '{}'",
                issuer_of(leaf),
                self.ca_file.display()
            ),
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
                format!("the certificate of {subject} is not meant for this use (extended key usage)")
            }
            CertificateError::NotValidForNameContext { expected, presented } => format!(
                "the certificate of {subject} is not for '{}' but for {}",
                expected.to_str(),
                if presented.is_empty() { "no name".to_owned() } else { presented.join(", ") }
            ),
            other => format!("the certificate of {subject}: {other}"),
        }
    }
}

/// The certificates of a PEM file; at least one.
fn certificates(pem: Option<&Vec<u8>>) -> Result<Vec<CertificateDer<'static>>, String> {
    let mut found = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem.map_or(&[], Vec::as_slice)) {
        found.push(certificate.map_err(|_| "it is not PEM".to_owned())?);
        if found.len() > CERTIFICATES_MAX {
            return Err(format!("it holds more than {CERTIFICATES_MAX} certificates"));
        }
    }
    if found.is_empty() { Err("it holds no PEM certificate".to_owned()) } else { Ok(found) }
}

fn date(time: UnixTime) -> String {
    httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(time.as_secs()))
}

/// Accepts clients whose chain leads to a trusted CA; each call is authorised separately.
struct ClientVerifier {
    inner: Arc<dyn ClientCertVerifier>,
    loaded: Arc<Loaded>,
    reason: Reason,
}

impl std::fmt::Debug for ClientVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientVerifier")
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.inner
            .verify_client_cert(end_entity, intermediates, now)
            .inspect_err(|error| self.reason.put(self.loaded.explain(error, end_entity)))
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// Accepts a server whose chain leads to a trusted CA and that has the expected role or host name.
struct ServerVerifier {
    loaded: Arc<Loaded>,
    expect: Expect,
    reason: Reason,
}

impl std::fmt::Debug for ServerVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerVerifier").field("expect", &self.expect).finish_non_exhaustive()
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let explain = |error: &Error| self.reason.put(self.loaded.explain(error, end_entity));
        self.loaded.verify(end_entity, intermediates, now, true).inspect_err(explain)?;
        match self.expect {
            Expect::Host => {
                let parsed = ParsedCertificate::try_from(end_entity)?;
                verify_server_name(&parsed, server_name).inspect_err(explain)?;
            }
            Expect::Role(role) => {
                let other = match Identity::of_certificate(end_entity) {
                    Ok(identity) if identity.role == role => return Ok(ServerCertVerified::assertion()),
                    Ok(identity) => format!("it shows the certificate of {identity}, a {role}'s is expected there"),
                    Err(what) => format!("it shows a certificate of no {role}: {what}"),
                };
                self.reason.put(other);
                return Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure));
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
