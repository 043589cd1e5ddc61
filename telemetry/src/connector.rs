//! Connections to OTLP receivers, with the certificates that the exporters' environment variables name.
//!
//! The exporters' crate would bring TLS and HTTP clients of its own; it is given these instead. Trusted are Mozilla's
//! certificate authorities and those of `OTEL_EXPORTER_OTLP_CERTIFICATE`; `OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE` and
//! `_CLIENT_KEY` are presented to receivers that request a client certificate.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::time::timeout;
use trawl_connect::{Connector, ConnectorError, HttpVersion, PlainText};

use crate::environment::Signal;

/// Longest response of a receiver that is read: it says which spans were rejected, and why.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// Opens connections for a signal, with the certificates that its variables name.
///
/// # Errors
/// A sentence: which variable names an unusable file, and why it is unusable.
pub(crate) fn connector(signal: Signal, version: HttpVersion) -> Result<Connector, String> {
    let authorities = signal.variable("CERTIFICATE");
    let roots = authorities.as_ref().map_or(Ok(Vec::new()), |(name, file)| certificates(name, file))?;
    let client = match (signal.variable("CLIENT_CERTIFICATE"), signal.variable("CLIENT_KEY")) {
        (None, None) => None,
        (Some((name, file)), Some((key_name, key_file))) => {
            let key = PrivateKeyDer::from_pem_file(&key_file);
            Some((certificates(&name, &file)?, key.map_err(|error| unusable(&key_name, &key_file, &error))?))
        }
        (Some((name, _)), None) | (None, Some((name, _))) => {
            return Err(format!(
                "{name} cannot be used alone: a client certificate needs its key, and the key its certificate"
            ));
        }
    };
    Connector::new(roots, client, version, PlainText::Anywhere).map_err(|error| {
        let named = match error {
            ConnectorError::Root(_) => authorities,
            ConnectorError::Client(_) => signal.variable("CLIENT_CERTIFICATE"),
        };
        named.map_or_else(|| error.to_string(), |(name, file)| unusable(&name, &file, &error))
    })
}

fn unusable(name: &str, file: &str, why: &dyn std::fmt::Display) -> String {
    format!("{name} names {}, which cannot be used: {why}", Path::new(file).display())
}

fn certificates(name: &str, file: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    trawl_connect::certificates(file).map_err(|why| unusable(name, file, &why))
}

/// The exporter's HTTP client. The exporter sets its timeout.
#[derive(Debug)]
pub(crate) struct Http {
    client: Client<Connector, Full<Bytes>>,
    /// `OTEL_EXPORTER_OTLP_TIMEOUT`.
    timeout: Duration,
}

impl Http {
    pub fn new(connector: Connector, timeout: Duration) -> Self {
        Self { client: Client::builder(TokioExecutor::new()).build(connector), timeout }
    }
}

#[tonic::async_trait]
impl HttpClient for Http {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let answered = async {
            let response = self.client.request(request.map(Full::new)).await?;
            let (parts, body) = response.into_parts();
            let body = Limited::new(body, REPLY_BYTES_MAX).collect().await?;
            Ok::<_, HttpError>(Response::from_parts(parts, body.to_bytes()))
        };
        timeout(self.timeout, answered).await?
    }
}
