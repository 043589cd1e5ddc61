//! Until mutual TLS exists, nothing listens or connects beyond this machine: addresses are checked here, once.

use std::net::SocketAddr;

/// Why an address is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Not `HOST:PORT`.
    #[error("'{0}' is not an address: write IP:PORT, for instance 127.0.0.1:7400 (port 0 takes a free one)")]
    Malformed(String),
    /// An address that other machines reach.
    #[error(
        "{0} is not a loopback address: traffic is neither encrypted nor authenticated yet, so only 127.0.0.1 or [::1] \
         may be listened on"
    )]
    NotLoopback(SocketAddr),
}

/// The socket address of a text like `127.0.0.1:7400`, `[::1]:0` or `localhost:7400`.
///
/// # Errors
/// [`AddressError`].
pub fn parse_listen(text: &str) -> Result<SocketAddr, AddressError> {
    let numeric = text.strip_prefix("localhost:").map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
    let address: SocketAddr = numeric.parse().map_err(|_| AddressError::Malformed(text.to_owned()))?;
    if address.ip().is_loopback() { Ok(address) } else { Err(AddressError::NotLoopback(address)) }
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
        for bad in ["", "7400", "example.com:7400", "127.0.0.1", "127.0.0.1:99999"] {
            assert!(matches!(parse_listen(bad), Err(AddressError::Malformed(_))), "{bad}");
        }
    }
}
