//! Addresses: which may be followed, and which stand bare in a text.
//!
//! Invariant: a link leads to the web or to mail, whatever a model wrote.

use super::Inline;

/// An address that may be followed; anything but the web and mail may not.
pub(super) fn followed(address: &str) -> Option<String> {
    if address.chars().any(char::is_control) {
        return None;
    }
    let (scheme, _) = address.split_once(':')?;
    ["http", "https", "mailto"]
        .iter()
        .any(|known| scheme.eq_ignore_ascii_case(known))
        .then(|| address.to_owned())
}

/// Makes links of the web addresses that stand bare in a text, as models write them.
pub(super) fn linked(inlines: Vec<Inline>) -> Vec<Inline> {
    let mut result = Vec::with_capacity(inlines.len());
    for inline in inlines {
        match inline {
            Inline::Text(text) => link_text(text, &mut result),
            Inline::Emphasis(inner) => result.push(Inline::Emphasis(linked(inner))),
            Inline::Strong(inner) => result.push(Inline::Strong(linked(inner))),
            Inline::Strike(inner) => result.push(Inline::Strike(linked(inner))),
            // A link within a link leads nowhere.
            Inline::Link { .. }
            | Inline::Code(_)
            | Inline::Image { .. }
            | Inline::SoftBreak
            | Inline::HardBreak
            | Inline::Html(_) => result.push(inline),
        }
    }
    result
}

fn link_text(text: String, result: &mut Vec<Inline>) {
    let mut rest = text.as_str();
    while let Some((before, address, after)) = split_at_address(rest) {
        if !before.is_empty() {
            result.push(Inline::Text(before.to_owned()));
        }
        result.push(Inline::Link {
            href: address.to_owned(),
            title: String::new(),
            inlines: vec![Inline::Text(address.to_owned())],
        });
        rest = after;
    }
    if rest.len() == text.len() {
        result.push(Inline::Text(text));
    } else if !rest.is_empty() {
        result.push(Inline::Text(rest.to_owned()));
    }
}

/// The first web address of a text, with what is before and after it.
fn split_at_address(text: &str) -> Option<(&str, &str, &str)> {
    for (at, _) in text.match_indices("http") {
        let (before, rest) = text.split_at_checked(at)?;
        let Some(host) = rest
            .strip_prefix("https://")
            .or_else(|| rest.strip_prefix("http://"))
        else {
            continue;
        };
        let stands_alone = !before.ends_with(char::is_alphanumeric);
        if !stands_alone || !host.starts_with(|first: char| first.is_alphanumeric() || first == '[')
        {
            continue;
        }
        let end = rest
            .find(|char: char| {
                char.is_whitespace() || char.is_control() || matches!(char, '<' | '>' | '"' | '`')
            })
            .unwrap_or(rest.len());
        let (address, _) = rest.split_at_checked(end)?;
        let address = without_trailing_marks(address);
        let (_, after) = rest.split_at_checked(address.len())?;
        return Some((before, address, after));
    }
    None
}

/// An address without the marks that end the sentence around it. A closing bracket stays if it was opened within.
fn without_trailing_marks(address: &str) -> &str {
    let mut address = address;
    while let Some(last) = address.chars().next_back() {
        let belongs = match last {
            '.' | ',' | ';' | ':' | '!' | '?' | '*' | '_' | '~' | '\'' | '\u{2026}'
            | '\u{201d}' | '\u{2019}' => false,
            ')' => is_balanced(address, '(', ')'),
            ']' => is_balanced(address, '[', ']'),
            '}' => is_balanced(address, '{', '}'),
            _ => true,
        };
        if belongs {
            break;
        }
        address = address.strip_suffix(last).unwrap_or_default();
    }
    address
}

fn is_balanced(address: &str, opening: char, closing: char) -> bool {
    address.matches(closing).count() <= address.matches(opening).count()
}
