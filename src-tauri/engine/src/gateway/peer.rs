//! Who is spoken to: the names, addresses and distances that a failure's words need.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use protocol::{Dialect, Provider};
use reqwest::Url;

use super::{access::Access, keys::Secrets};

/// Whose doing an attempt's failure may be.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// The provider's name, or its address while it has none.
    pub(super) name: String,
    /// Host and port, without anything secret.
    pub(super) address: String,
    pub(super) distance: Distance,
    pub(super) dialect: Option<Dialect>,
    pub(super) model: Option<String>,
    /// What it is shown, which is taken out of its words, and the way to it.
    pub(super) access: Access,
}

/// How far away a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Distance {
    /// Loopback.
    ThisMachine,
    /// A private address, or a name that only a local network knows.
    LocalNetwork,
    Internet,
}

impl Peer {
    pub(super) fn of(
        provider: &Provider,
        url: &Url,
        model: Option<&str>,
        secrets: Secrets,
    ) -> Self {
        Self {
            name: provider.name.clone(),
            dialect: Some(provider.dialect),
            model: model.map(str::to_owned),
            access: Access::of(&provider.connection, secrets),
            ..Self::at(url)
        }
    }

    /// One that is known by its address only.
    pub(super) fn at(url: &Url) -> Self {
        let host = url.host_str().unwrap_or_default();
        let address = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        Self {
            name: "the server".to_owned(),
            address,
            distance: Distance::of(url),
            dialect: None,
            model: None,
            access: Access::default(),
        }
    }

    /// A model's own process.
    pub(super) fn here(provider: &Provider, model: &str) -> Self {
        Self {
            name: provider.name.clone(),
            address: String::new(),
            distance: Distance::ThisMachine,
            dialect: Some(provider.dialect),
            model: Some(model.to_owned()),
            access: Access::default(),
        }
    }

    /// "‹name› at ‹address›".
    pub(super) fn place(&self) -> String {
        if self.dialect == Some(Dialect::Local) {
            return "this computer".to_owned();
        }
        format!("{} at {}", self.name, self.address)
    }

    /// "‹model›", or what stands for it.
    pub(super) fn model(&self) -> &str {
        self.model.as_deref().unwrap_or("the model")
    }
}

impl Distance {
    pub(super) fn of(url: &Url) -> Self {
        let Some(host) = url.host_str() else {
            return Self::Internet;
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Self::of_ip(ip);
        }
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        let local = [
            ".local",
            ".lan",
            ".home",
            ".home.arpa",
            ".internal",
            ".intranet",
        ];
        if name == "localhost" || name.ends_with(".localhost") {
            Self::ThisMachine
        } else if !name.contains('.') || local.iter().any(|end| name.ends_with(end)) {
            Self::LocalNetwork
        } else {
            Self::Internet
        }
    }

    fn of_ip(ip: IpAddr) -> Self {
        let ip = match ip {
            IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(ip, IpAddr::V4),
            IpAddr::V4(_) => ip,
        };
        if ip.is_loopback() || ip.is_unspecified() {
            return Self::ThisMachine;
        }
        let private = match ip {
            IpAddr::V4(v4) => v4.is_private() || v4.is_link_local() || is_shared(v4),
            IpAddr::V6(v6) => is_unique_local(v6) || v6.is_unicast_link_local(),
        };
        if private {
            Self::LocalNetwork
        } else {
            Self::Internet
        }
    }
}

/// 100.64.0.0/10, which mesh VPNs hand out to one's own machines.
fn is_shared(ip: Ipv4Addr) -> bool {
    let [a, b, ..] = ip.octets();
    a == 100 && (64..128).contains(&b)
}

fn is_unique_local(ip: Ipv6Addr) -> bool {
    let [first, ..] = ip.octets();
    first & 0xfe == 0xfc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_is_told_by_the_address() {
        for (url, want) in [
            ("http://localhost:1", Distance::ThisMachine),
            ("http://127.8.0.1", Distance::ThisMachine),
            ("http://[::1]:1/v1", Distance::ThisMachine),
            ("http://0.0.0.0:1", Distance::ThisMachine),
            ("http://[::ffff:127.0.0.1]", Distance::ThisMachine),
            ("http://192.168.1.7", Distance::LocalNetwork),
            ("http://10.0.0.1", Distance::LocalNetwork),
            ("http://100.101.1.1", Distance::LocalNetwork),
            ("http://[fd00::1]", Distance::LocalNetwork),
            ("http://gpubox:8080", Distance::LocalNetwork),
            ("http://gpu.lan", Distance::LocalNetwork),
            ("https://api.example.com", Distance::Internet),
            ("http://8.8.8.8", Distance::Internet),
        ] {
            assert_eq!(Distance::of(&url.parse().unwrap()), want, "{url}");
        }
    }

    #[test]
    fn an_address_in_words_holds_no_password() {
        let url = "http://user:secret@host:1234/v1?key=secret"
            .parse()
            .unwrap();
        assert_eq!(Peer::at(&url).address, "host:1234");
    }
}
