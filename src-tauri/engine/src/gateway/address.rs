//! Addresses as people type them, read into the bases they may mean.
//!
//! Invariant: an endpoint pasted from a manual never doubles its path, and a path a proxy needs is never lost.

use std::net::Ipv6Addr;

use protocol::Failure;
use reqwest::Url;

use super::{failure, peer::Distance};

/// Where Ollama, llama.cpp, LM Studio, vLLM and KoboldCpp listen unless told otherwise, the likeliest first.
pub(super) const USUAL_PORTS: [u16; 5] = [11434, 8080, 1234, 8000, 5001];

/// One server that an address may mean, and where its APIs may begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Where `/api/…` of an Ollama would begin.
    pub(super) ollama: String,
    /// Where `/chat/completions` may begin, the likeliest first.
    pub(super) openai: Vec<String>,
}

/// The places that a typed address may mean, the likeliest first; never none.
pub(super) fn places(typed: &str) -> Result<Vec<Place>, Failure> {
    let url = parse(typed).ok_or_else(|| failure::no_address(typed))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(failure::secret_in_address());
    }
    let path = base_path(url.path());
    Ok(origins(&url, typed.contains("://"))
        .into_iter()
        .map(|origin| place(&origin, &path))
        .collect())
}

/// `typed` without a name and a password in front of its host.
pub(super) fn without_secret(typed: &str) -> String {
    let (scheme, rest) = match typed.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), typed),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    format!("{scheme}{host}{path}")
}

/// Other ways to write an address that somebody may have meant by it: without what stands twice in its path, with the
/// other scheme, under the other names of this machine. The address itself is the first.
pub(super) fn variants(base: &str) -> Vec<String> {
    let mut list = vec![base.to_owned()];
    let Some(url) = parse(base) else {
        return list;
    };
    let mut add = |url: &Url| {
        let text = url.as_str().trim_end_matches('/').to_owned();
        if !list.contains(&text) {
            list.push(text);
        }
    };
    let mut plain = url.clone();
    plain.set_query(None);
    plain.set_fragment(None);
    add(&plain);
    let mut once = plain.clone();
    once.set_path(&without_repeats(plain.path()));
    add(&once);
    let mut bare = plain.clone();
    bare.set_path("");
    add(&bare);
    let other = if plain.scheme() == "https" {
        "http"
    } else {
        "https"
    };
    let mut schemes = vec![once.clone()];
    let mut turned = once.clone();
    // From one of these two schemes to the other is always allowed.
    if turned.set_scheme(other).is_ok() {
        add(&turned);
        schemes.push(turned);
    }
    if matches!(plain.host_str(), Some("127.0.0.1" | "[::1]")) {
        for mut url in schemes {
            if url.set_host(Some("localhost")).is_ok() {
                add(&url);
            }
        }
    }
    list
}

/// A path in which nothing stands twice in a row: `/v1/v1`, `/api/api/chat`, `/v1/chat/completions/chat/completions`.
fn without_repeats(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        parts.push(part);
        for length in 1..=parts.len() / 2 {
            let (head, last) = parts.split_at(parts.len().saturating_sub(length));
            if head.ends_with(last) {
                parts.truncate(head.len());
                break;
            }
        }
    }
    format!("/{}", parts.join("/"))
}

fn parse(typed: &str) -> Option<Url> {
    let text = typed.trim();
    let text = if text.parse::<Ipv6Addr>().is_ok() {
        format!("http://[{text}]")
    } else if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    let mut url: Url = text.parse().ok()?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return None;
    }
    // An address to listen on, not one to go to.
    if matches!(url.host_str(), Some("0.0.0.0")) {
        url.set_host(Some("127.0.0.1")).ok()?;
    } else if matches!(url.host_str(), Some("[::]")) {
        url.set_host(Some("[::1]")).ok()?;
    } else if matches!(url.host_str(), Some("localhost.")) {
        // The same to a person; to a resolver a name that it may have to ask around for.
        url.set_host(Some("localhost")).ok()?;
    }
    Some(url)
}

/// Scheme, host and port.
fn origins(url: &Url, scheme_typed: bool) -> Vec<String> {
    let host = url.host_str().unwrap_or_default();
    let (scheme, port) = (url.scheme(), url.port());
    if let Some(port) = port {
        return vec![format!("{scheme}://{host}:{port}")];
    }
    if scheme == "https" {
        return vec![format!("https://{host}")];
    }
    let usual = USUAL_PORTS.map(|port| format!("http://{host}:{port}"));
    let plain = format!("http://{host}");
    match (Distance::of(url), scheme_typed) {
        (Distance::Internet, false) => {
            let mut origins = vec![format!("https://{host}"), plain];
            origins.extend(usual);
            origins
        }
        (_, true) => std::iter::once(plain).chain(usual).collect(),
        (Distance::ThisMachine | Distance::LocalNetwork, false) => {
            usual.into_iter().chain([plain]).collect()
        }
    }
}

/// The path without the endpoint at its end.
fn base_path(path: &str) -> String {
    const ENDPOINTS: [&str; 14] = [
        "/messages",
        "/chat/completions",
        "/completions",
        "/embeddings",
        "/responses",
        "/models",
        "/api/chat",
        "/api/generate",
        "/api/tags",
        "/api/show",
        "/api/ps",
        "/api/version",
        "/api/pull",
        "/api/embed",
    ];
    let path = path.trim_end_matches('/');
    ENDPOINTS
        .iter()
        .find_map(|endpoint| without_end(path, endpoint))
        .unwrap_or(path)
        .trim_end_matches('/')
        .to_owned()
}

fn place(origin: &str, path: &str) -> Place {
    let root = ["/api/v1", "/v1", "/api"]
        .iter()
        .find_map(|end| without_end(path, end))
        .unwrap_or(path);
    let (as_typed, versioned) = (format!("{origin}{path}"), format!("{origin}{root}/v1"));
    let last = path.rsplit('/').next().unwrap_or_default();
    let is_base = last.starts_with(['v', 'V'])
        && last
            .get(1..2)
            .is_some_and(|c| c.bytes().all(|b| b.is_ascii_digit()))
        || last == "openai";
    // Servers tell capitals from small letters, and "V1" is what a phone's keyboard makes of it.
    let mut openai = if is_base && !last.eq_ignore_ascii_case("v1") || last == "v1" {
        vec![as_typed, versioned]
    } else {
        vec![versioned, as_typed]
    };
    openai.dedup();
    Place {
        ollama: format!("{origin}{root}"),
        openai,
    }
}

/// `path` without `end`, in capitals or not.
fn without_end<'a>(path: &'a str, end: &str) -> Option<&'a str> {
    let at = path.len().checked_sub(end.len())?;
    let (root, last) = path.split_at_checked(at)?;
    last.eq_ignore_ascii_case(end).then_some(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(typed: &str) -> (String, String) {
        let place = places(typed).unwrap().remove(0);
        (place.ollama, place.openai[0].clone())
    }

    #[test]
    fn an_address_is_shown_without_a_password() {
        for (typed, shown) in [
            ("http://user:pass@box:1/v1", "http://box:1/v1"),
            ("user:p@ss@box", "box"),
            ("http://box/a@b?c@d", "http://box/a@b?c@d"),
            ("box", "box"),
        ] {
            assert_eq!(without_secret(typed), shown, "{typed}");
        }
    }

    #[test]
    fn every_way_to_write_an_address_means_the_same_bases() {
        for typed in [
            "127.0.0.1:11434",
            " 127.0.0.1:11434/ ",
            "http://127.0.0.1:11434",
            "http://127.0.0.1:11434/",
            "http://127.0.0.1:11434/v1",
            "http://127.0.0.1:11434/v1/",
            "http://127.0.0.1:11434/v1/chat/completions",
            "http://127.0.0.1:11434/v1/models",
            "http://127.0.0.1:11434/api",
            "http://127.0.0.1:11434/api/",
            "http://127.0.0.1:11434/api/chat",
            "http://127.0.0.1:11434/V1",
            "http://127.0.0.1:11434/V1/Chat/Completions",
            "http://127.0.0.1:11434/API/chat",
            "0.0.0.0:11434",
        ] {
            assert_eq!(
                first(typed),
                (
                    "http://127.0.0.1:11434".into(),
                    "http://127.0.0.1:11434/v1".into()
                ),
                "{typed}"
            );
        }
    }

    #[test]
    fn a_path_that_a_proxy_needs_is_kept() {
        for (typed, ollama, openai) in [
            (
                "http://h:1/openai/v1",
                "http://h:1/openai",
                "http://h:1/openai/v1",
            ),
            (
                "http://h:1/proxy/x/v1",
                "http://h:1/proxy/x",
                "http://h:1/proxy/x/v1",
            ),
            (
                "http://h:1/proxy/x",
                "http://h:1/proxy/x",
                "http://h:1/proxy/x/v1",
            ),
            (
                "http://h:1/proxy/abc/v1beta/openai/",
                "http://h:1/proxy/abc/v1beta/openai",
                "http://h:1/proxy/abc/v1beta/openai",
            ),
            (
                "https://h/api/v4/chat/completions?x=1",
                "https://h/api/v4",
                "https://h/api/v4",
            ),
        ] {
            assert_eq!(first(typed), (ollama.into(), openai.into()), "{typed}");
        }
    }

    #[test]
    fn an_api_below_api_is_asked_as_it_is_typed_and_an_ollama_at_its_root() {
        for typed in [
            "http://h:1/api/v1",
            "http://h:1/api/v1/",
            "http://h:1/api/v1/chat/completions",
        ] {
            let place = places(typed).unwrap().remove(0);
            assert_eq!(place.ollama, "http://h:1", "{typed}");
            assert_eq!(
                place.openai,
                ["http://h:1/api/v1", "http://h:1/v1"],
                "{typed}"
            );
        }
        let capital = places("http://h:1/x/V1").unwrap().remove(0);
        assert_eq!(capital.openai, ["http://h:1/x/v1", "http://h:1/x/V1"]);
    }

    #[test]
    fn an_address_may_have_been_meant_without_what_stands_twice_and_with_the_other_scheme() {
        for (base, meant) in [
            ("http://h:1/v1/v1", "http://h:1/v1"),
            ("http://h:1/api/api/chat", "http://h:1/api/chat"),
            (
                "http://h:1/v1/chat/completions/chat/completions",
                "http://h:1/v1/chat/completions",
            ),
            ("http://h:1/proxy/x/v1/v1", "http://h:1/proxy/x/v1"),
            ("http://h:1/wrong/path", "http://h:1"),
            ("http://h:1/v1", "https://h:1/v1"),
            ("https://h/v1", "http://h/v1"),
            ("http://127.0.0.1:1/v1", "http://localhost:1/v1"),
            ("http://[::1]:1", "http://localhost:1"),
        ] {
            let list = variants(base);
            assert_eq!(list.first().map(String::as_str), Some(base));
            assert!(list.contains(&meant.to_owned()), "{base}: {list:?}");
        }
        assert_eq!(variants("no address"), ["no address"]);
    }

    #[test]
    fn localhost_with_the_root_dot_is_localhost() {
        for typed in [
            "localhost.:8080",
            "http://localhost.:8080",
            "LOCALHOST.:8080/v1",
        ] {
            assert_eq!(
                first(typed),
                (
                    "http://localhost:8080".into(),
                    "http://localhost:8080/v1".into()
                ),
                "{typed}"
            );
        }
    }

    #[test]
    fn a_bare_host_means_the_usual_ports_and_a_port_or_https_means_itself() {
        let roots = |typed| -> Vec<String> {
            places(typed)
                .unwrap()
                .into_iter()
                .map(|p| p.ollama)
                .collect()
        };
        assert_eq!(
            roots("gpubox"),
            [
                "http://gpubox:11434",
                "http://gpubox:8080",
                "http://gpubox:1234",
                "http://gpubox:8000",
                "http://gpubox:5001",
                "http://gpubox",
            ]
        );
        assert_eq!(
            roots("http://gpubox/")[..2],
            ["http://gpubox", "http://gpubox:11434"]
        );
        assert_eq!(roots("api.example.com/v1")[0], "https://api.example.com");
        assert_eq!(roots("https://gpubox"), ["https://gpubox"]);
        assert_eq!(roots("gpubox:9"), ["http://gpubox:9"]);
        assert_eq!(roots("::1")[0], "http://[::1]:11434");
        assert_eq!(roots("[::1]:9"), ["http://[::1]:9"]);
    }

    #[test]
    fn what_is_no_address_is_refused_in_words() {
        for typed in [
            "",
            "   ",
            "http://",
            "ftp://host",
            "ht tp://x",
            "http://u:p@host",
        ] {
            let failure = places(typed).unwrap_err();
            assert!(!failure.message.contains("u:p"), "{typed}");
        }
    }
}
