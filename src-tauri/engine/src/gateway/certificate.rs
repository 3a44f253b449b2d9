//! What a certificate says of itself, for the reader's eyes alone.
//!
//! Invariant: nothing is decided by what is read here; whether a certificate is good is decided by rustls. Total: bytes
//! that are no certificate have no facts.

use protocol::Timestamp;

/// What it says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// Whose it is.
    pub(super) subject: String,
    /// Who says so.
    pub(super) issuer: String,
    same: bool,
    /// The hosts it is for.
    pub(super) names: Vec<String>,
    pub(super) not_before: Option<Timestamp>,
    pub(super) not_after: Option<Timestamp>,
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT: u8 = 0x06;
const BOOLEAN: u8 = 0x01;
const OCTETS: u8 = 0x04;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const DNS_NAME: u8 = 0x82;
const IP_ADDRESS: u8 = 0x87;

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANISATION: &[u8] = &[0x55, 0x04, 0x0a];
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];

/// More names than anybody reads.
const NAMES_MAX: usize = 16;
/// As long as a host's name can be.
const NAME_CHARS_MAX: usize = 253;

impl Facts {
    pub(super) fn read(der: &[u8]) -> Self {
        Self::try_read(der).unwrap_or_default()
    }

    /// Whether it vouches for itself.
    pub(super) const fn is_self_signed(&self) -> bool {
        self.same
    }

    fn try_read(der: &[u8]) -> Option<Self> {
        let mut outer = Reader(der);
        let mut body = Reader(Reader(outer.of(SEQUENCE)?).of(SEQUENCE)?);
        if body.tag() == Some(VERSION) {
            body.of(VERSION)?;
        }
        let (_serial, _algorithm) = (body.any()?, body.any()?);
        let issuer = body.of(SEQUENCE)?;
        let mut times = Reader(body.of(SEQUENCE)?);
        let not_before = times.any().and_then(time);
        let not_after = times.any().and_then(time);
        let subject = body.of(SEQUENCE)?;
        let _key = body.any()?;
        let mut names = Vec::new();
        while let Some((tag, content)) = body.any() {
            if tag == EXTENSIONS {
                names = alternative_names(content).unwrap_or_default();
            }
        }
        Some(Self {
            subject: common_name(subject),
            issuer: common_name(issuer),
            same: issuer == subject,
            names,
            not_before,
            not_after,
        })
    }
}

/// The values of DER, one after the other.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn tag(&self) -> Option<u8> {
        self.0.first().copied()
    }

    fn any(&mut self) -> Option<(u8, &'a [u8])> {
        let (tag, rest) = self.0.split_first()?;
        let (first, rest) = rest.split_first()?;
        let (length, rest) = if *first < 0x80 {
            (usize::from(*first), rest)
        } else {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            if digits.is_empty() || digits.len() > 4 {
                return None;
            }
            let length = digits
                .iter()
                .fold(0_usize, |sum, digit| sum << 8 | usize::from(*digit));
            (length, rest)
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, content))
    }

    fn of(&mut self, wanted: u8) -> Option<&'a [u8]> {
        match self.any()? {
            (tag, content) if tag == wanted => Some(content),
            _ => None,
        }
    }
}

/// The common name, or the organisation where there is none.
fn common_name(name: &[u8]) -> String {
    let mut organisation = None;
    let mut parts = Reader(name);
    while let Some(set) = parts.of(SET) {
        let Some(pair) = Reader(set).of(SEQUENCE) else {
            continue;
        };
        let mut pair = Reader(pair);
        let (Some(kind), Some((_, value))) = (pair.of(OBJECT), pair.any()) else {
            continue;
        };
        if kind == COMMON_NAME {
            return words(value);
        }
        if kind == ORGANISATION {
            organisation = Some(words(value));
        }
    }
    organisation.unwrap_or_default()
}

fn alternative_names(extensions: &[u8]) -> Option<Vec<String>> {
    let mut list = Reader(Reader(extensions).of(SEQUENCE)?);
    while let Some(extension) = list.of(SEQUENCE) {
        let mut extension = Reader(extension);
        if extension.of(OBJECT)? != ALTERNATIVE_NAMES {
            continue;
        }
        if extension.tag() == Some(BOOLEAN) {
            extension.any()?;
        }
        let mut names = Reader(Reader(extension.of(OCTETS)?).of(SEQUENCE)?);
        let mut found = Vec::new();
        while let Some((tag, value)) = names.any() {
            match (tag, value) {
                (DNS_NAME, name) => found.push(words(name)),
                (IP_ADDRESS, &[a, b, c, d]) => found.push(format!("{a}.{b}.{c}.{d}")),
                (IP_ADDRESS, value) => {
                    if let Ok(bytes) = <[u8; 16]>::try_from(value) {
                        found.push(std::net::Ipv6Addr::from(bytes).to_string());
                    }
                }
                _ => {}
            }
            if found.len() >= NAMES_MAX {
                break;
            }
        }
        return Some(found);
    }
    None
}

/// A stranger's text, short and without anything that does not show itself.
fn words(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    let shown = text.chars().filter(|c| !c.is_control());
    shown.take(NAME_CHARS_MAX).collect()
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn time((tag, content): (u8, &[u8])) -> Option<Timestamp> {
    let text = std::str::from_utf8(content).ok()?.strip_suffix('Z')?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: i64 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let part = |at: usize| rest.get(at..at.checked_add(2)?)?.parse::<i64>().ok();
    let (month, day) = (part(0)?, part(2)?);
    let (hour, minute, second) = (part(4)?, part(6)?, part(8)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let days = Timestamp::days_of_civil(year, month, day);
    let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
    Some(Timestamp::from_millis(seconds * 1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_says_whose_it_is_for_which_hosts_and_until_when() {
        let mut params =
            rcgen::CertificateParams::new(vec!["gpubox.lan".to_owned(), "192.168.1.7".to_owned()])
                .unwrap();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "The cupboard");
        params.not_before = rcgen::date_time_ymd(2024, 2, 29);
        params.not_after = rcgen::date_time_ymd(2051, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let facts = Facts::read(certificate.der());
        assert_eq!(facts.subject, "The cupboard");
        assert!(facts.is_self_signed());
        assert_eq!(facts.names, ["gpubox.lan", "192.168.1.7"]);
        let time = |at: Option<Timestamp>| at.unwrap().rfc3339();
        assert!(time(facts.not_before).starts_with("2024-02-29T00:00:00"));
        assert!(time(facts.not_after).starts_with("2051-01-01T00:00:00"));
    }

    #[test]
    fn bytes_that_are_no_certificate_have_no_facts() {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["a.b".to_owned()]).unwrap();
        let whole = params.self_signed(&key).unwrap().der().to_vec();
        for end in 0..whole.len() {
            // Whatever it says, it comes back.
            Facts::read(&whole[..end]);
            let mut bent = whole.clone();
            bent[end] ^= 0xff;
            Facts::read(&bent);
        }
        assert_eq!(Facts::read(b""), Facts::default());
        assert_eq!(
            Facts::read(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]),
            Facts::default()
        );
    }
}
