//! The identity of a certificate: its URI name `trawl://ROLE/NAME`, and nothing else in it.

use std::fmt;

use rustls::pki_types::CertificateDer;

use trawl_wire::record::checked_name;

/// Scheme of an identity's URI.
const SCHEME: &str = "trawl://";
/// `id-at-commonName` (2.5.4.3) as an object identifier in DER.
const COMMON_NAME_OID: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x03];

/// The role of a process in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Submits scans, and reads and cancels its own.
    Client,
    /// Has all rights of users: reads and cancels all scans, drains workers.
    Operator,
    /// Accepts scans and sends work to workers.
    Coordinator,
    /// Computes shards for coordinators.
    Worker,
}

impl Role {
    /// All variants.
    pub const ALL: [Self; 4] = [Self::Client, Self::Operator, Self::Coordinator, Self::Worker];

    /// The name of this variant in a certificate.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Operator => "operator",
            Self::Coordinator => "coordinator",
            Self::Worker => "worker",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A role and a name in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The role.
    pub role: Role,
    /// Letters, digits, `-`, `_`, `.`; see [`checked_name`].
    pub name: String,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.role, self.name)
    }
}

impl Identity {
    /// Parses `trawl://ROLE/NAME`.
    pub fn from_uri(uri: &str) -> Option<Self> {
        let (role, name) = uri.strip_prefix(SCHEME)?.split_once('/')?;
        let role = Role::ALL.into_iter().find(|r| r.name() == role)?;
        Some(Self { role, name: checked_name(name).ok()? })
    }

    /// The identity in a certificate. The certificate has to be verified elsewhere.
    ///
    /// # Errors
    /// What is wrong with it, and what is expected.
    pub fn of_certificate(certificate: &CertificateDer<'_>) -> Result<Self, String> {
        let parsed = webpki::EndEntityCert::try_from(certificate).map_err(|e| format!("it cannot be read: {e}"))?;
        let ours: Vec<&str> = parsed.valid_uri_names().filter(|uri| uri.starts_with(SCHEME)).collect();
        match ours[..] {
            [uri] => Self::from_uri(uri).ok_or_else(|| {
                format!(
                    "its URI name '{uri}' is no identity: trawl://client/NAME, .../operator/..., .../coordinator/... or \
                     .../worker/..."
                )
            }),
            [] => Err("it has no URI name (subject alternative name) like trawl://client/NAME".to_owned()),
            _ => Err(format!("it has {} identities, one is expected", ours.len())),
        }
    }
}

/// The subject of a certificate, for messages: its identity, else its common name.
pub fn subject_of(certificate: &CertificateDer<'_>) -> String {
    Identity::of_certificate(certificate).map_or_else(
        |_| match webpki::EndEntityCert::try_from(certificate) {
            Ok(parsed) => format!("'{}'", common_name(parsed.subject())),
            Err(_) => "'(unreadable)'".to_owned(),
        },
        |identity| identity.to_string(),
    )
}

/// The issuer of a certificate, by common name, for messages.
pub fn issuer_of(certificate: &CertificateDer<'_>) -> String {
    webpki::EndEntityCert::try_from(certificate)
        .map_or_else(|_| "(unreadable)".to_owned(), |parsed| common_name(parsed.issuer()))
}

/// The first common name in a distinguished name; only for messages, so it is searched for and not parsed.
fn common_name(name: &[u8]) -> String {
    let value = name.windows(COMMON_NAME_OID.len()).position(|window| window == COMMON_NAME_OID).and_then(|at| {
        let rest = name.get(at + COMMON_NAME_OID.len()..)?;
        // A tag, a length below 128, the text.
        let length = usize::from(*rest.get(1)?);
        (length < 0x80).then(|| rest.get(2..2 + length)).flatten()
    });
    match value {
        Some(text) => String::from_utf8_lossy(text).chars().filter(|c| !c.is_control()).collect(),
        None => "(no common name)".to_owned(),
    }
}

/// The peer that has to be at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// A process of the cluster, wherever it runs: certificates name roles, not hosts.
    Role(Role),
    /// Another program, known by the name of its host: etcd.
    Host,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(uris: &[&str]) -> CertificateDer<'static> {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, "somebody");
        for uri in uris {
            params.subject_alt_names.push(rcgen::SanType::URI((*uri).try_into().unwrap()));
        }
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn an_identity_is_the_one_trawl_uri_of_a_certificate() {
        let of = |uris: &[&str]| Identity::of_certificate(&certificate(uris));
        let wanted = Identity { role: Role::Worker, name: "w-1.a".to_owned() };
        assert_eq!(of(&["trawl://worker/w-1.a"]), Ok(wanted.clone()));
        assert_eq!(of(&["https://example.org/", "trawl://worker/w-1.a"]), Ok(wanted.clone()));
        assert_eq!(wanted.to_string(), "trawl://worker/w-1.a");
        assert!(of(&[]).unwrap_err().contains("trawl://client/NAME"));
        assert!(of(&["trawl://worker/a", "trawl://client/a"]).unwrap_err().contains("2 identities"));
        for bad in ["trawl://nobody/a", "trawl://worker/", "trawl://worker/a/b", "trawl://worker", "trawl://Worker/a"] {
            assert!(of(&[bad]).unwrap_err().contains(bad), "{bad}");
        }
        assert!(Identity::of_certificate(&CertificateDer::from(vec![0x30, 0x01])).is_err());
    }

    #[test]
    fn messages_name_subject_and_issuer() {
        assert_eq!(subject_of(&certificate(&["trawl://client/a"])), "trawl://client/a");
        assert_eq!(subject_of(&certificate(&[])), "'somebody'");
        assert_eq!(issuer_of(&certificate(&[])), "somebody");
        for short in [&[][..], &COMMON_NAME_OID, &[6, 3, 0x55, 4, 3, 12, 200], &[6, 3, 0x55, 4, 3, 12, 9, b'a']] {
            assert_eq!(common_name(short), "(no common name)");
        }
    }
}
