//! Addresses of model files, as people paste them, and what such a file is called here.

use reqwest::Url;

/// Longer names do not fit every disk.
const NAME_CHARS_MAX: usize = 180;

/// The address of a file and its name; a page that shows one on Hugging Face is turned into the address of the file.
pub(crate) fn address(typed: &str) -> Result<(Url, String), &'static str> {
    const WANTED: &str =
        "Paste the whole address of a model file; it begins with https:// and ends in .gguf.";
    let mut url = Url::parse(typed.trim()).map_err(|_| WANTED)?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(WANTED);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("An address must not have a password in it; it would stand in the log.");
    }
    url.set_fragment(None);
    if url.query() == Some("download=true") {
        url.set_query(None);
    }
    if matches!(url.host_str(), Some("huggingface.co" | "hf.co")) {
        let path = url.path().replacen("/blob/", "/resolve/", 1);
        url.set_path(&path);
    }
    let segment = url.path_segments().and_then(|mut path| path.next_back());
    let name = file_name(segment.unwrap_or_default());
    if name.is_empty() {
        return Err(WANTED);
    }
    Ok((url, name))
}

/// A name that every disk takes, whatever the address says.
fn file_name(segment: &str) -> String {
    let mut name: String = unescaped(segment)
        .chars()
        .map(|sign| match sign {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '-' | '_' => sign,
            _ => '_',
        })
        .collect();
    let bare = name.trim_start_matches(['.', '-']).len();
    name.drain(..name.len() - bare);
    if name.to_ascii_lowercase().ends_with(".gguf") {
        name.truncate(name.len() - ".gguf".len());
    }
    name.truncate(NAME_CHARS_MAX);
    if name.is_empty() {
        name
    } else {
        name + ".gguf"
    }
}

/// `%20` and the like.
fn unescaped(segment: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = segment.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = (*first == b'%')
            .then(|| after.get(..2))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match code {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_name_that_every_disk_takes() {
        for (typed, url, name) in [
            (
                " https://h.example/a/kelp-7b.Q4.gguf ",
                "https://h.example/a/kelp-7b.Q4.gguf",
                "kelp-7b.Q4.gguf",
            ),
            (
                "https://huggingface.co/o/r/blob/main/a%20b.GGUF?download=true#x",
                "https://huggingface.co/o/r/resolve/main/a%20b.GGUF",
                "a_b.gguf",
            ),
            (
                "http://h/..%2F..%2Fetc%2Fpasswd",
                "http://h/..%2F..%2Fetc%2Fpasswd",
                "_.._etc_passwd.gguf",
            ),
            ("http://h/kelp?key=1", "http://h/kelp?key=1", "kelp.gguf"),
        ] {
            let (found, file) = address(typed).expect("an address");
            assert_eq!((found.as_str(), file.as_str()), (url, name));
        }
        for typed in [
            "",
            "kelp",
            "file:///a.gguf",
            "https://h/",
            "https://u:p@h/a.gguf",
            "ftp://h/a.gguf",
        ] {
            assert!(address(typed).is_err(), "{typed}");
        }
        let long = format!("https://h/{}.gguf", "k".repeat(400));
        assert_eq!(
            address(&long).expect("an address").1.len(),
            NAME_CHARS_MAX + 5
        );
    }
}
