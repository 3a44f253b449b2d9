//! How a server is reached, where that is not as usual.
//!
//! Invariant: no secret stands here, for this is stored with the server, in events. A header whose value is secret has
//! its name here, and its value where keys are kept.

use std::fmt;

use serde::{Deserialize, Serialize, de};

use crate::Timestamp;

/// More headers than any server asks for.
const HEADERS_MAX: usize = 20;
/// Longer than any value that a server asks for.
const HEADER_BYTES_MAX: usize = 4 * 1024;

/// How a server is reached. Everything absent is as usual.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Connection {
    /// In which form the key goes out.
    #[serde(default, skip_serializing_if = "Auth::is_usual")]
    pub auth: Auth,
    /// Headers that every request to it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<CustomHeader>,
    /// Through what it is reached.
    #[serde(default, skip_serializing_if = "ProxyChoice::is_system")]
    pub proxy: ProxyChoice,
    /// A certificate that the user trusts here although the system does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusts: Option<TrustedCertificate>,
    /// The address of its network card, to wake it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wakes: Option<MacAddress>,
}

/// In which form a key goes out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "how")]
pub enum Auth {
    /// As the dialect has it: `x-api-key` for Anthropic's, `Authorization: Bearer` for the others.
    #[default]
    Usual,
    /// `Authorization: Bearer …`.
    Bearer,
    /// `x-api-key: …`.
    ApiKey,
    /// `Authorization: Basic …`, with this name; the key is the password.
    Basic { user: String },
}

impl Auth {
    /// Whether it is the dialect's own.
    pub fn is_usual(&self) -> bool {
        *self == Self::Usual
    }
}

/// A header that every request to a server has.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CustomHeader {
    /// Its name.
    pub name: String,
    /// Its value; absent if that is secret and kept like a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// Through what a server is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "through")]
pub enum ProxyChoice {
    /// The system's proxy, for servers on the internet; never for this computer and the local network.
    #[default]
    System,
    /// None at all.
    Direct,
    /// This one, wherever the server is.
    Proxy { url: String },
}

impl ProxyChoice {
    /// Whether it is the system's.
    pub fn is_system(&self) -> bool {
        *self == Self::System
    }
}

/// A certificate that is trusted at one endpoint, and nowhere else.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TrustedCertificate {
    /// Host and port it was shown at: `gpubox:8443`.
    pub endpoint: String,
    /// Of exactly this certificate.
    pub sha256: Fingerprint,
}

/// The SHA-256 of a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Of these bytes, which are a hash already.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// From hexadecimal digits, with or without what separates pairs of them.
    pub fn parse(text: &str) -> Option<Self> {
        let digits: Vec<u8> = text
            .chars()
            .filter(|c| !matches!(c, ':' | ' ' | '-'))
            .map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok()))
            .collect::<Option<_>>()?;
        let bytes: Vec<u8> = digits
            .chunks(2)
            .map(|pair| match pair {
                [high, low] => Some(high << 4 | low),
                _ => None,
            })
            .collect::<Option<_>>()?;
        Some(Self(bytes.try_into().ok()?))
    }

    /// Pairs with colons between, as browsers and `openssl` show it.
    pub fn in_pairs(&self) -> String {
        let pairs: Vec<String> = self.0.iter().map(|byte| format!("{byte:02X}")).collect();
        pairs.join(":")
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom("not a SHA-256"))
    }
}

/// The address of a network card.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct MacAddress([u8; 6]);

impl MacAddress {
    /// As printed on the card: `00:11:22:33:44:55`, with any separators or none.
    pub fn parse(text: &str) -> Option<Self> {
        let digits: Vec<u8> = text
            .trim()
            .chars()
            .filter(|c| !matches!(c, ':' | '-' | '.' | ' '))
            .map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok()))
            .collect::<Option<_>>()?;
        let [a, b, c, d, e, f, g, h, i, j, k, l] = <[u8; 12]>::try_from(digits).ok()?;
        let pairs = [(a, b), (c, d), (e, f), (g, h), (i, j), (k, l)];
        Some(Self(pairs.map(|(high, low)| high << 4 | low)))
    }

    /// Its six bytes.
    pub const fn bytes(&self) -> [u8; 6] {
        self.0
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        f.write_str(&pairs.join(":"))
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MacAddress({self})")
    }
}

impl Serialize for MacAddress {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MacAddress {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| de::Error::custom("not a network card's address"))
    }
}

/// A connection that cannot be used, in words about one of its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidConnection {
    /// Which field.
    pub field: &'static str,
    /// What is wrong with it.
    pub message: String,
}

impl Connection {
    /// Whether everything is as usual.
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }

    /// The names of headers whose values are kept like keys.
    pub fn secret_headers(&self) -> impl Iterator<Item = &str> {
        let secret = self.headers.iter().filter(|header| header.value.is_none());
        secret.map(|header| header.name.as_str())
    }

    /// Whether it can be used as a whole.
    ///
    /// # Errors
    /// [`InvalidConnection`], in words for the field.
    pub fn validate(&self) -> Result<(), InvalidConnection> {
        let invalid = |field, message: String| Err(InvalidConnection { field, message });
        if let Auth::Basic { user } = &self.auth {
            if user.trim().is_empty() {
                return invalid("user", "Basic needs a user name.".to_owned());
            }
            if user.contains(':') || user.chars().any(char::is_control) {
                return invalid("user", "A user name cannot hold a colon.".to_owned());
            }
        }
        if self.headers.len() > HEADERS_MAX {
            return invalid(
                "headers",
                format!("At most {HEADERS_MAX} headers can be set."),
            );
        }
        let mut seen: Vec<String> = Vec::new();
        for header in &self.headers {
            let name = header.name.to_ascii_lowercase();
            if let Some(message) = unusable(header) {
                return invalid("headers", message);
            }
            if seen.contains(&name) {
                return invalid(
                    "headers",
                    format!("The header {} stands twice.", header.name),
                );
            }
            seen.push(name);
        }
        match &self.proxy {
            ProxyChoice::System | ProxyChoice::Direct => Ok(()),
            ProxyChoice::Proxy { url } => match proxy_fault(url) {
                Some(message) => invalid("proxy", message.to_owned()),
                None => Ok(()),
            },
        }
    }
}

/// What keeps a header from being sent, in words.
fn unusable(header: &CustomHeader) -> Option<String> {
    /// What the connection itself says, or what would make two ends of one request.
    const OURS: [&str; 14] = [
        "host",
        "content-length",
        "content-type",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "upgrade",
        "expect",
        "proxy-authorization",
        "proxy-connection",
        "accept-encoding",
        "user-agent",
    ];
    /// Values that are secret whoever says so.
    const SECRET: [&str; 4] = ["authorization", "x-api-key", "api-key", "cookie"];
    let name = header.name.to_ascii_lowercase();
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || !name.chars().all(is_token) {
        return Some(format!(
            "“{}” is no header: a name has letters, digits and dashes.",
            header.name.escape_debug()
        ));
    }
    if OURS.contains(&name.as_str()) {
        return Some(format!("The header {} is Holdfast’s own.", header.name));
    }
    let value = header.value.as_ref()?;
    if SECRET.contains(&name.as_str()) {
        return Some(format!(
            "The value of {} is a secret: mark it as one, so that it is kept like a key.",
            header.name
        ));
    }
    header_value_fault(value).map(|fault| format!("The header {} {fault}", header.name))
}

/// What keeps a text from being a header's value; never says what it is.
pub fn header_value_fault(value: &str) -> Option<&'static str> {
    if value.trim().is_empty() {
        Some("needs a value.")
    } else if value.len() > HEADER_BYTES_MAX {
        Some("is too long.")
    } else if !value.chars().all(|c| c == ' ' || c.is_ascii_graphic()) {
        Some("holds characters that no header can.")
    } else {
        None
    }
}

/// What keeps an address from being a proxy's.
fn proxy_fault(url: &str) -> Option<&'static str> {
    let rest = ["http://", "https://", "socks5h://", "socks5://"]
        .iter()
        .find_map(|scheme| url.strip_prefix(scheme));
    let Some(rest) = rest else {
        return Some(
            "A proxy’s address begins with http://, https:// or socks5h://, as in http://proxy.lan:3128.",
        );
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Some("A proxy’s address is stored readably and cannot hold a name or password.");
    }
    let host = authority
        .rsplit_once(':')
        .map_or(authority, |(host, _)| host);
    if host.is_empty() || url.contains(char::is_whitespace) {
        return Some("The proxy’s address names no host.");
    }
    None
}

/// A certificate as a server showed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownCertificate {
    /// Host and port it was shown at.
    pub endpoint: String,
    /// What tells it from every other one.
    pub sha256: Fingerprint,
    /// Whose it says it is.
    pub subject: String,
    /// Who says so.
    pub issuer: String,
    /// The hosts it is for.
    pub names: Vec<String>,
    /// From when, where that can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Timestamp>,
    /// Why the system does not take it; never none.
    pub faults: Vec<CertificateFault>,
}

/// Why a certificate is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CertificateFault {
    /// It vouches for itself.
    SelfSigned,
    /// Whoever vouches for it is not known to this system.
    UnknownIssuer,
    /// It is for other hosts.
    WrongName,
    /// Its time is over.
    Expired,
    /// Its time has not come.
    NotYetValid,
    /// Anything else, as the system has it.
    Other,
}

impl ShownCertificate {
    /// To be trusted from now on, at its endpoint.
    pub fn trusted(&self) -> TrustedCertificate {
        TrustedCertificate {
            endpoint: self.endpoint.clone(),
            sha256: self.sha256,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(name: &str, value: Option<&str>) -> CustomHeader {
        CustomHeader {
            name: name.to_owned(),
            value: value.map(str::to_owned),
        }
    }

    #[test]
    fn headers_are_sent_only_if_they_cannot_break_a_request_or_lay_a_secret_open() {
        let fault = |list: Vec<CustomHeader>| {
            let connection = Connection {
                headers: list,
                ..Connection::default()
            };
            connection.validate().err().map(|invalid| invalid.message)
        };
        assert_eq!(fault(vec![header("X-Org", Some("kelp"))]), None);
        assert_eq!(fault(vec![header("Authorization", None)]), None);
        for (name, value) in [
            ("", Some("v")),
            ("a b", Some("v")),
            ("a:", Some("v")),
            ("Ä", Some("v")),
            ("Host", Some("v")),
            ("content-LENGTH", Some("1")),
            ("Transfer-Encoding", Some("chunked")),
            ("x-a", Some("")),
            ("x-a", Some("a\r\nx-b: c")),
            ("x-a", Some("ü")),
            ("Authorization", Some("Bearer s3cret")),
            ("X-Api-Key", Some("s3cret")),
        ] {
            let said = fault(vec![header(name, value)]).unwrap_or_else(|| panic!("{name} passes"));
            assert!(!said.contains("s3cret"), "{said}");
        }
        assert!(fault(vec![header("X-A", Some("1")), header("x-a", Some("2"))]).is_some());
        assert!(fault(vec![header(&"a".repeat(3), Some(&"b".repeat(5000)))]).is_some());
    }

    #[test]
    fn a_proxy_is_an_address_without_a_password() {
        for (url, is_one) in [
            ("http://proxy.lan:3128", true),
            ("https://proxy", true),
            ("socks5h://127.0.0.1:9050", true),
            ("socks5://[::1]:9050", true),
            ("proxy.lan:3128", false),
            ("ftp://proxy", false),
            ("http://", false),
            ("http://:80", false),
            ("http://u:p@proxy", false),
            ("http://a b", false),
        ] {
            let connection = Connection {
                proxy: ProxyChoice::Proxy {
                    url: url.to_owned(),
                },
                ..Connection::default()
            };
            assert_eq!(connection.validate().is_ok(), is_one, "{url}");
        }
    }

    #[test]
    fn a_fingerprint_and_a_network_cards_address_are_read_in_every_form_people_copy() {
        let hex = "00ff".repeat(16);
        let print = Fingerprint::parse(&hex).expect("a fingerprint");
        assert_eq!(print.to_string(), hex);
        assert_eq!(Fingerprint::parse(&print.in_pairs()), Some(print));
        assert_eq!(Fingerprint::parse("00ff"), None);
        for text in ["00:1b:63:84:45:e6", "00-1B-63-84-45-E6", "001b.6384.45e6"] {
            let card = MacAddress::parse(text).expect(text);
            assert_eq!(card.to_string(), "00:1b:63:84:45:e6");
        }
        assert_eq!(MacAddress::parse("00:1b:63:84:45"), None);
        assert_eq!(MacAddress::parse("00:1b:63:84:45:zz"), None);
    }
}
