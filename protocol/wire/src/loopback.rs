//! Checks of addresses: plain text stays on this machine unless explicitly allowed otherwise.

use std::net::SocketAddr;

/// Why an address is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Not `HOST:PORT`.
    #[error("'{0}' is not an address: write IP:PORT, for instance 127.0.0.1:7400 (port 0 takes a free one)")]
    Malformed(String),
    /// An address reachable from other machines.
    #[error(
        "{0} is not a loopback address: other machines reach it, and without certificates traffic is neither encrypted \
         nor authenticated"
    )]
    NotLoopback(SocketAddr),
}

/// The socket address of a text like `0.0.0.0:7400`, `[::1]:0` or `localhost:7400`.
///
/// # Errors
/// [`AddressError::Malformed`].
pub fn parse_address(text: &str) -> Result<SocketAddr, AddressError> {
    let numeric = text.strip_prefix("localhost:").map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
    numeric.parse().map_err(|_| AddressError::Malformed(text.to_owned()))
}

/// As [`parse_address`], for an address reachable from this machine only.
///
/// # Errors
/// [`AddressError`].
pub fn parse_listen(text: &str) -> Result<SocketAddr, AddressError> {
    check_listen(parse_address(text)?)
}

/// Checks that an address may be used for plain text.
///
/// # Errors
/// [`AddressError::NotLoopback`].
pub fn check_listen(address: SocketAddr) -> Result<SocketAddr, AddressError> {
    if address.ip().is_loopback() { Ok(address) } else { Err(AddressError::NotLoopback(address)) }
}

/// Whether `HOST:PORT` certainly is this machine: `localhost` or a loopback IP address.
pub fn is_loopback(host_and_port: &str) -> bool {
    let split = host_and_port.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
    let (host, port) = split.unwrap_or((host_and_port, ""));
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    // What is behind the colon of 127.0.0.1:80.example.org is no port.
    let is_port = port.len() <= 5 && port.bytes().all(|digit| digit.is_ascii_digit());
    is_port && (host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_may_be_listened_on() {
        assert_eq!(parse_listen("127.0.0.1:7400").unwrap().port(), 7400);
        assert_eq!(parse_listen("localhost:1").unwrap().port(), 1);
        assert!(parse_listen("[::1]:0").is_ok());
        for open in ["0.0.0.0:7400", "10.0.0.7:7400", "[::]:7400"] {
            assert!(matches!(parse_listen(open), Err(AddressError::NotLoopback(_))), "{open}");
        }
        assert!(parse_address("0.0.0.0:7400").is_ok());
        for (host, wanted) in [
            ("127.0.0.1:1", true),
            ("localhost:1", true),
            ("[::1]:1", true),
            ("[::1]", true),
            ("localhost", true),
            ("127.0.0.1:7410.example.org", false),
            ("127.0.0.1:7410:1", false),
            ("localhost:", true),
            ("10.0.0.7:1", false),
            ("[::]:1", false),
            ("localhost.example.org:1", false),
            ("example.org:1", false),
        ] {
            assert_eq!(is_loopback(host), wanted, "{host}");
        }
        for bad in ["", "7400", "example.com:7400", "127.0.0.1", "127.0.0.1:99999"] {
            assert!(matches!(parse_listen(bad), Err(AddressError::Malformed(_))), "{bad}");
        }
    }
}
