//! Certificates for tests: valid ones, and those that must be refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, SanType, date_time_ymd,
};
use trawl_security::{Credentials, TlsFiles};

const DAY: Duration = Duration::from_secs(86_400);

/// A CA whose certificates are in one folder.
pub struct Authority {
    folder: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, as files.
#[derive(Debug, Clone)]
pub struct Files {
    pub ca: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Files {
    /// As options of a command.
    pub fn flags(&self) -> Vec<String> {
        let text = |path: &Path| path.display().to_string();
        [("--tls-ca", &self.ca), ("--tls-cert", &self.certificate), ("--tls-key", &self.key)]
            .into_iter()
            .flat_map(|(flag, path)| [flag.to_owned(), text(path)])
            .collect()
    }

    /// For a client inside the test.
    pub fn credentials(&self) -> Arc<Credentials> {
        let own = Some((self.certificate.clone(), self.key.clone()));
        Credentials::load(TlsFiles { ca: self.ca.clone(), own }, None).expect("files that were just written")
    }

    /// The same certificate, trusting other CAs.
    pub fn trusting(&self, ca: &Path) -> Self {
        Self { ca: ca.to_owned(), ..self.clone() }
    }
}

impl Authority {
    /// A CA of this name; its own certificate is `NAME.ca.pem` in `folder`.
    pub fn new(folder: &Path, name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a CA");
        let authority = Self { folder: folder.to_owned(), issuer };
        std::fs::write(authority.ca(name), authority.pem()).expect("the folder can be written");
        authority
    }

    /// The file of the CA of this name.
    pub fn ca(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.ca.pem"))
    }

    /// The CA's certificate.
    pub fn pem(&self) -> String {
        self.issuer.as_ref().pem()
    }

    /// A certificate that begins and ends this number of days from now, with URIs (`trawl://...`) or hosts as names.
    pub fn issue(&self, file: &str, names: &[&str], days: (i64, i64)) -> Files {
        let (uris, hosts): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| name.contains("://"));
        let hosts: Vec<String> = hosts.into_iter().map(str::to_owned).collect();
        let mut params = CertificateParams::new(hosts).expect("names");
        params.subject_alt_names.extend(uris.iter().map(|uri| SanType::URI((*uri).try_into().expect("a URI"))));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        let epoch = date_time_ymd(1970, 1, 1);
        (params.not_before, params.not_after) = (epoch + from_now(days.0), epoch + from_now(days.1));
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let path = |kind: &str| self.folder.join(format!("{file}.{kind}"));
        let files = Files { ca: path("trust.pem"), certificate: path("pem"), key: path("key") };
        std::fs::write(&files.ca, self.pem()).expect("the folder can be written");
        std::fs::write(&files.key, key.serialize_pem()).expect("the folder can be written");
        std::fs::write(&files.certificate, certificate.pem()).expect("the folder can be written");
        files
    }
}

/// Since 1970, so many days from now.
fn from_now(days: i64) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    let shift = DAY * u32::try_from(days.unsigned_abs()).expect("a few days");
    if days < 0 { now - shift } else { now + shift }
}
