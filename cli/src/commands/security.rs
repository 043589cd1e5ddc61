//! Options for certificates and tokens, and their checks: the same for every command that uses the network.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use trawl_security::{ClientSecurity, Credentials, FileError, Role, ServerSecurity, TlsFiles, Token, TokenTable};
use trawl_wire::loopback::check_listen;

use crate::failure::UserMistake;

/// Certificates of a process.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Security")]
pub struct TlsArgs {
    /// PEM file of the CAs to trust: the other side must have a certificate of one of them
    #[arg(long, value_name = "FILE", env = "TRAWL_TLS_CA", hide_env = true)]
    pub tls_ca: Option<PathBuf>,

    /// PEM certificate of this process, named trawl://client/NAME, trawl://coordinator/NAME or trawl://worker/NAME
    #[arg(long, value_name = "FILE", env = "TRAWL_TLS_CERT", hide_env = true, requires_all = ["tls_ca", "tls_key"])]
    pub tls_cert: Option<PathBuf>,

    /// PEM private key of --tls-cert
    #[arg(long, value_name = "FILE", env = "TRAWL_TLS_KEY", hide_env = true, requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// Use plain text with other machines too: neither encrypted nor authenticated
    #[arg(long, conflicts_with = "tls_ca")]
    pub insecure: bool,
}

/// A file that the user named and that cannot be used.
pub fn mistake(error: &FileError) -> UserMistake {
    UserMistake::with_help(format!("'{}': {}", error.file.display(), error.what), error.help.clone())
}

/// Loads certificates; `role` is the role that the certificate must have.
pub fn credentials(
    (ca, certificate, key): (&PathBuf, Option<&PathBuf>, Option<&PathBuf>),
    role: Option<Role>,
) -> Result<Arc<Credentials>, UserMistake> {
    let own = certificate.zip(key).map(|(certificate, key)| (certificate.clone(), key.clone()));
    Credentials::load(TlsFiles { ca: ca.clone(), own }, role).map_err(|error| mistake(&error))
}

impl TlsArgs {
    /// The certificates that were given; `None` for plain text.
    fn credentials(&self, role: Option<Role>) -> Result<Option<Arc<Credentials>>, UserMistake> {
        let files = |ca| credentials((ca, self.tls_cert.as_ref(), self.tls_key.as_ref()), role);
        self.tls_ca.as_ref().map(files).transpose()
    }

    /// The certificates of a server of this role; refuses an address that needs them when there are none.
    pub fn server(
        &self,
        role: Role,
        listen: SocketAddr,
        tokens: Option<&PathBuf>,
    ) -> Result<ServerSecurity, UserMistake> {
        if self.tls_ca.is_some() && self.tls_cert.is_none() {
            return Err(UserMistake::with_help(
                "--tls-ca is given without a certificate of this process",
                "give --tls-cert FILE and --tls-key FILE; 'trawl certs dev' makes them",
            ));
        }
        let tls = self.credentials(Some(role))?;
        let tokens = tokens.map(|path| TokenTable::load(path.clone())).transpose().map_err(|e| mistake(&e))?;
        if let (None, Err(error)) = (&tls, check_listen(listen)) {
            if !self.insecure {
                return Err(UserMistake::with_help(
                    error.to_string(),
                    "give --tls-ca, --tls-cert and --tls-key ('trawl certs dev' makes them), or allow plain text with --insecure",
                ));
            }
            let (may, network) = match role {
                Role::Worker => ("have this worker compute", "bars' values and answers"),
                _ => ("run scans here", "scans and answers"),
            };
            tracing::warn!(
                "--insecure: anyone who can reach {listen} can {may}, and {network} travel in plain text; use --tls-ca, \
                 --tls-cert and --tls-key outside a closed network"
            );
        }
        Ok(ServerSecurity { tls, tokens })
    }

    /// The certificates of a client.
    pub fn client(&self, token_file: Option<&PathBuf>) -> Result<ClientSecurity, UserMistake> {
        let token = token_file.map(|path| Token::from_file(path)).transpose().map_err(|e| mistake(&e))?;
        Ok(ClientSecurity { tls: self.credentials(None)?, token, insecure: self.insecure })
    }
}
