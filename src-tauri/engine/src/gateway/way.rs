//! The way to a server: through which proxy, and past which certificate.
//!
//! Invariant: the system's proxy is for the internet only, never for this computer or the local network; a proxy that
//! the user named for a server is for all of that server. What is trusted at one endpoint is trusted nowhere else.

use protocol::{Connection, ProxyChoice, TrustedCertificate};
use reqwest::Url;

use super::peer::Distance;
use crate::{Harness, mutant::mutated};

/// As the user chose it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Way {
    pub(super) proxy: ProxyChoice,
    pub(super) trusts: Option<TrustedCertificate>,
}

/// As it is for one address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Route {
    pub(super) through: Through,
    pub(super) trusts: Option<TrustedCertificate>,
}

/// Through what.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Through {
    Nothing,
    /// The system's proxy, unless it exempts the address (`NO_PROXY`).
    SystemProxy,
    Proxy(String),
}

impl Way {
    pub(super) fn of(connection: &Connection) -> Self {
        Self {
            proxy: connection.proxy.clone(),
            trusts: connection.trusts.clone(),
        }
    }

    pub(super) fn to(&self, url: &Url, harness: &Harness) -> Route {
        let through = match &self.proxy {
            ProxyChoice::Direct => Through::Nothing,
            ProxyChoice::Proxy { url } => Through::Proxy(url.clone()),
            ProxyChoice::System => match Distance::of(url) {
                Distance::ThisMachine | Distance::LocalNetwork
                    if !mutated!(harness, LocalThroughProxy) =>
                {
                    Through::Nothing
                }
                Distance::ThisMachine | Distance::LocalNetwork | Distance::Internet => {
                    Through::SystemProxy
                }
            },
        };
        let here = endpoint(url);
        let trusts = self.trusts.clone();
        Route {
            through,
            trusts: trusts
                .filter(|trusted| trusted.endpoint == here || mutated!(harness, TrustAnywhere)),
        }
    }
}

/// Host and port, as a certificate is noted for them.
pub(super) fn endpoint(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or_default();
    format!("{host}:{port}")
}

#[cfg(test)]
mod tests {
    use protocol::Fingerprint;

    use super::*;

    fn through(url: &str, proxy: ProxyChoice) -> Through {
        let way = Way {
            proxy,
            trusts: None,
        };
        way.to(&url.parse().unwrap(), &Harness::default()).through
    }

    #[test]
    fn the_systems_proxy_is_never_asked_for_this_computer_or_the_local_network() {
        for url in [
            "http://localhost:11434",
            "http://127.0.0.1:1",
            "http://[::1]:1",
            "https://192.168.1.7",
            "http://gpubox:8080",
            "http://gpu.lan",
        ] {
            assert_eq!(through(url, ProxyChoice::System), Through::Nothing, "{url}");
        }
        let internet = "https://api.example.com/v1";
        assert_eq!(through(internet, ProxyChoice::System), Through::SystemProxy);
        assert_eq!(through(internet, ProxyChoice::Direct), Through::Nothing);
        let proxy = "socks5h://127.0.0.1:9050".to_owned();
        let chosen = ProxyChoice::Proxy { url: proxy.clone() };
        assert_eq!(
            through("http://gpu.lan", chosen),
            Through::Proxy(proxy),
            "whoever names a proxy for a server means it"
        );
    }

    #[test]
    fn a_certificate_is_trusted_at_its_own_host_and_port_alone() {
        let trusted = TrustedCertificate {
            endpoint: "gpubox:8443".to_owned(),
            sha256: Fingerprint::from_bytes([7; 32]),
        };
        let way = Way {
            proxy: ProxyChoice::System,
            trusts: Some(trusted.clone()),
        };
        let at = |url: &str| way.to(&url.parse().unwrap(), &Harness::default()).trusts;
        assert_eq!(at("https://gpubox:8443/v1"), Some(trusted));
        for url in [
            "https://gpubox/v1",
            "https://gpubox:8444",
            "https://other:8443",
            "https://gpubox.evil:8443",
        ] {
            assert_eq!(at(url), None, "{url}");
        }
    }
}
