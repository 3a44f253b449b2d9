//! The way to a server: through which proxy, and past which certificate.
//!
//! Invariant: the system's proxy is for the internet only, never for this computer or the local network; a proxy that
//! the user named for a server is for all of that server. What is trusted at one endpoint is trusted nowhere else.

use hyper_util::client::proxy::matcher::Matcher;
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
            ProxyChoice::System if no_proxy().is_some_and(|listed| is_exempt(url, &listed)) => {
                Through::Nothing
            }
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

impl Route {
    /// The proxy on the way to an address, if there is one.
    pub(super) fn proxy_before(&self, url: &Url) -> Option<Url> {
        match &self.through {
            Through::Nothing => None,
            Through::SystemProxy => system_proxy(url),
            Through::Proxy(proxy) => proxy.parse().ok(),
        }
    }
}

/// The proxy that the system names for an address, whether we use it or not.
pub(super) fn system_proxy(url: &Url) -> Option<Url> {
    if no_proxy().is_some_and(|listed| is_exempt(url, &listed)) {
        return None;
    }
    let address = url.as_str().parse().ok()?;
    let proxy = Matcher::from_system().intercept(&address)?;
    proxy.uri().to_string().parse().ok()
}

fn no_proxy() -> Option<String> {
    let mut names = ["NO_PROXY", "no_proxy"].into_iter();
    names.find_map(|name| std::env::var(name).ok())
}

/// Whether a list of exemptions names an address in one of the two forms that the HTTP library does not know: with a
/// port, and with a star before the first point. It knows the others.
fn is_exempt(url: &Url, listed: &str) -> bool {
    let host = url.host_str().unwrap_or_default().to_ascii_lowercase();
    let port = url.port_or_known_default();
    listed.split(',').any(|entry| {
        let entry = entry.trim().to_ascii_lowercase();
        let (name, wanted) = match entry.rsplit_once(':') {
            // Anything else with two colons is an address of IPv6.
            Some((name, digits)) if !name.contains(':') || name.ends_with(']') => {
                match digits.parse::<u16>() {
                    Ok(port) => (name, Some(port)),
                    Err(_) => return false,
                }
            }
            Some(_) | None => (entry.as_str(), None),
        };
        let starred = name.strip_prefix('*');
        if starred.is_none() && wanted.is_none() {
            return false;
        }
        let name = starred.unwrap_or(name);
        let bare = name.trim_start_matches('.');
        let is_below = host
            .strip_suffix(bare)
            .is_some_and(|sub| sub.ends_with('.'));
        let is_host = name.is_empty() || host == bare || (!bare.is_empty() && is_below);
        is_host && (wanted.is_none() || wanted == port)
    })
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
    fn an_exemption_may_name_a_port_or_begin_with_a_star() {
        for (listed, url, is_exempt) in [
            (
                "api.example.com:8443",
                "https://api.example.com:8443/v1",
                true,
            ),
            ("api.example.com:8443", "https://api.example.com/v1", false),
            ("api.example.com:443", "https://api.example.com/v1", true),
            ("example.com:80, x", "http://API.example.com", true),
            ("a.example.com:80", "http://ba.example.com", false),
            ("203.0.113.7:8080", "http://203.0.113.7:8080", true),
            ("203.0.113.7:8080", "http://203.0.113.7:8081", false),
            ("[2001:db8::7]:8080", "http://[2001:db8::7]:8080", true),
            ("*.example.com", "https://api.example.com", true),
            ("*.example.com", "https://api.example.org", false),
            ("*.example.com:8443", "https://api.example.com", false),
            ("*:8443", "https://api.example.com:8443", true),
            // These the library knows.
            ("example.com", "https://example.com", false),
            ("2001:db8::7", "http://[2001:db8::7]", false),
            ("", "https://example.com", false),
            (",,", "https://example.com", false),
            ("example.com:port", "https://example.com", false),
        ] {
            let at = url.parse().unwrap();
            assert_eq!(
                super::is_exempt(&at, listed),
                is_exempt,
                "{listed:?}: {url}"
            );
        }
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
