//! The standard OTEL variables that this program reads itself. Headers are secrets and are never shown.

use std::time::Duration;

/// What a process exports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Traces,
    Metrics,
}

impl Signal {
    fn name(self) -> &'static str {
        match self {
            Self::Traces => "TRACES",
            Self::Metrics => "METRICS",
        }
    }

    /// The variable of this signal, or else the one of all signals: its name and its value.
    pub fn variable(self, what: &str) -> Option<(String, String)> {
        [format!("OTEL_EXPORTER_OTLP_{}_{what}", self.name()), format!("OTEL_EXPORTER_OTLP_{what}")]
            .into_iter()
            .find_map(|name| variable(&name).map(|value| (name, value)))
    }
}

/// Where receivers listen by default.
const ENDPOINTS: [(Protocol, &str); 2] =
    [(Protocol::Grpc, "http://localhost:4317"), (Protocol::Http, "http://localhost:4318")];
/// Default timeout of a request to a receiver.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// Transport of OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// `grpc`.
    Grpc,
    /// `http/protobuf`.
    Http,
}

/// Whether a signal is exported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Not exported.
    Off,
    /// Exported.
    Otlp(Protocol),
}

/// The value of a variable, trimmed; `None` when it is unset or empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok()?;
    let value = value.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

/// Whether and how a signal is exported.
///
/// # Errors
/// A sentence: which variable has an invalid value.
pub(crate) fn wanted(signal: Signal) -> Result<Wanted, String> {
    let disabled = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let exporter_name = format!("OTEL_{}_EXPORTER", signal.name());
    let exporter = variable(&exporter_name);
    match exporter.as_deref() {
        _ if disabled => return Ok(Wanted::Off),
        Some("none") => return Ok(Wanted::Off),
        Some("otlp") => {}
        Some(other) => return Err(format!("{exporter_name} is '{other}'; 'otlp' or 'none' is expected")),
        // On most machines no receiver listens at the default address.
        None if signal.variable("ENDPOINT").is_none() => return Ok(Wanted::Off),
        None => {}
    }
    let protocol = signal.variable("PROTOCOL");
    match protocol.as_ref().map(|(name, value)| (name, value.as_str())) {
        None | Some((_, "grpc")) => Ok(Wanted::Otlp(Protocol::Grpc)),
        Some((_, "http/protobuf")) => Ok(Wanted::Otlp(Protocol::Http)),
        Some((name, other)) => Err(format!("{name} is '{other}'; 'grpc' or 'http/protobuf' is expected")),
    }
}

/// The endpoint of a signal over gRPC; with `http/protobuf` the exporter adds the path itself.
pub(crate) fn endpoint(signal: Signal, protocol: Protocol) -> String {
    let default = || ENDPOINTS.iter().find(|(p, _)| *p == protocol).map_or("", |(_, url)| url).to_owned();
    let Some((_, url)) = signal.variable("ENDPOINT") else { return default() };
    let insecure = signal.variable("INSECURE").is_some_and(|(_, value)| value.eq_ignore_ascii_case("true"));
    match url.split_once("://") {
        Some(_) => url,
        None if insecure => format!("http://{url}"),
        None => format!("https://{url}"),
    }
}

/// Timeout of a request to the receiver.
pub(crate) fn export_timeout(signal: Signal) -> Duration {
    let ms = signal.variable("TIMEOUT").and_then(|(_, value)| value.parse().ok());
    ms.map_or(TIMEOUT_DEFAULT, Duration::from_millis)
}

/// An address without what may be secret in it: user, password, query.
pub(crate) fn shown(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = rest.split_once('/').map_or((rest, ""), |(a, p)| (a, p));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (scheme, path) = (
        if scheme.is_empty() { String::new() } else { format!("{scheme}://") },
        if path.is_empty() { String::new() } else { format!("/{path}") },
    );
    format!("{scheme}{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_secret_parts() {
        for (url, expected) in [
            ("https://user:word@host:4318/v1/traces?key=1", "https://host:4318/v1/traces"),
            ("http://[::1]:4317", "http://[::1]:4317"),
            ("host:4317", "host:4317"),
            ("a@b@host/x#y", "host/x"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }
}
