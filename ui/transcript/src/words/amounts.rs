//! Amounts as a reader writes them: counts, rates, short times, money, and what of a conversation a model did not see.

use protocol::{Image, Unread};

/// "4,096"
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// "1 token", "4,096 tokens"
pub fn tokens(number: u64) -> String {
    how_many(number, "token", "tokens")
}

/// A number and what it counts.
pub fn how_many(number: u64, one: &str, many: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        _ => format!("{} {many}", count(number)),
    }
}

/// "38 tokens/s"
pub fn rate(tokens_per_second: f64) -> String {
    if tokens_per_second < 9.95 {
        format!("{tokens_per_second:.1} tokens/s")
    } else {
        // `as` saturates; a rate that large was refused before.
        format!("{} tokens/s", count(tokens_per_second.round() as u64))
    }
}

/// "340 ms", "1.2 s", "14 s", "2 min 5 s", "3 h 10 min"
pub fn took(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..10_000 => format!("{:.1} s", ms as f64 / 1_000.0),
        10_000..60_000 => format!("{} s", ms / 1_000),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms / 1_000 % 60),
        _ => format!("{} h {} min", count(ms / 3_600_000), ms / 60_000 % 60),
    }
}

/// "image kelp.jpg, 1024 × 768, 48 kB"
pub fn image(image: &Image) -> String {
    let Image {
        name,
        width,
        height,
        ..
    } = image;
    format!(
        "image {name}, {width} × {height}, {}",
        super::size(image.bytes)
    )
}

/// Millionths of a currency: "$0.0042", "$12.30", "12.30 EUR". A sign stands before the number, letters behind it.
pub fn money(micros: u64, currency: &str) -> String {
    let (whole, rest) = (micros / 1_000_000, micros % 1_000_000);
    let amount = match micros {
        0 => "0".to_owned(),
        // Less than a hundredth of a cent is said as such, never as nothing.
        1..100 => "less than 0.0001".to_owned(),
        100..1_000_000 => format!("0.{:04}", rest / 100),
        _ => format!("{}.{:02}", count(whole), rest / 10_000),
    };
    let currency = currency.trim();
    match currency.chars().all(char::is_alphabetic) {
        _ if currency.is_empty() => amount,
        true => format!("{amount} {currency}"),
        false => match amount.strip_prefix("less than ") {
            Some(least) => format!("less than {currency}{least}"),
            None => format!("{currency}{amount}"),
        },
    }
}

/// That a model was told in words of earlier images; none, if there were none.
pub fn unseen_images(images: u64) -> Option<String> {
    match images {
        0 => None,
        1 => Some(
            "The model sees no images: of the one shown earlier it was told only the name."
                .to_owned(),
        ),
        more => Some(format!(
            "The model sees no images: of the {} shown earlier it was told only the names.",
            count(more)
        )),
    }
}

/// That a model was not offered the tools of its session; none, if it was. The clock is a tool of every session, and
/// nobody misses it where it is the only one.
pub fn untold_tools(tools: u64) -> Option<String> {
    (tools > 1).then(|| {
        "The model takes no tools: it could not look at the files of this chat's folder.".to_owned()
    })
}

/// What of a conversation a model did not get, a line each; most get all of it.
pub fn shortfalls(
    unread: Option<&Unread>,
    images_unseen: u64,
    tools_untold: u64,
) -> impl Iterator<Item = String> {
    let unread = unread.map(|unread| self::unread(unread, None));
    let lines = [
        unread,
        unseen_images(images_unseen),
        untold_tools(tools_untold),
    ];
    lines.into_iter().flatten()
}

/// That a model did not see all of a conversation, and what of it. `last` begins the last message that it did not see.
pub fn unread(unread: &Unread, last: Option<&str>) -> String {
    let mut said = format!(
        "The model did not see all of this conversation: its server read {} of at least {}, and left out the beginning \
         without a word.",
        count(unread.read_tokens),
        tokens(unread.sent_tokens_min)
    );
    let up_to = last.map(|last| format!(", up to “{}”", beginning(last)));
    let up_to = up_to.unwrap_or_default();
    said.push_str(&match (unread.turns, unread.partly) {
        (0, Some(_)) => {
            " It probably read only the end of the first message and what came after it.".to_owned()
        }
        (0, None) => String::new(),
        (1, partly) => format!(
            " It probably did not read the first message and its answer{up_to}{}.",
            half(partly.is_some())
        ),
        (turns, partly) => format!(
            " It probably did not read the first {} messages and their answers{up_to}{}.",
            count(turns),
            half(partly.is_some())
        ),
    });
    if unread.preamble {
        said.push_str(
            " The instructions or the summary before them may have been left out as well.",
        );
    }
    said.push_str(match unread.context_tokens {
        Some(_) => " A larger context in the server's settings, or a new chat, gives it room.",
        None => " The server's own context is too small for it: a larger one can be set in the server's settings.",
    });
    said
}

const fn half(partly: bool) -> &'static str {
    if partly {
        ", and of the next one only the end"
    } else {
        ""
    }
}

/// The first words of a message, on one line.
fn beginning(text: &str) -> String {
    const CHARS_MAX: usize = 48;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let short: String = line.chars().take(CHARS_MAX).collect();
    if short.len() < line.len() {
        format!("{} …", short.trim_end())
    } else {
        short
    }
}

#[cfg(test)]
mod tests {
    use protocol::TurnId;

    use super::*;

    #[test]
    fn amounts_read_as_written_by_hand() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(4_096), "4,096");
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(tokens(1), "1 token");
        assert_eq!(rate(9.94), "9.9 tokens/s");
        assert_eq!(rate(37.6), "38 tokens/s");
        assert_eq!(took(0), "0 ms");
        assert_eq!(took(1_240), "1.2 s");
        assert_eq!(took(125_000), "2 min 5 s");
        assert_eq!(took(11_400_000), "3 h 10 min");
    }

    #[test]
    fn a_small_sum_of_money_is_never_said_to_be_nothing() {
        assert_eq!(money(0, "$"), "$0");
        assert_eq!(money(1, "$"), "less than $0.0001");
        assert_eq!(money(4_250, "$"), "$0.0042");
        assert_eq!(money(12_300_000, "EUR"), "12.30 EUR");
        assert_eq!(money(1_234_567_890_000, ""), "1,234,567.89");
        assert_eq!(money(99, "EUR"), "less than 0.0001 EUR");
    }

    #[test]
    fn tools_that_a_model_was_not_offered_are_missed_if_they_are_more_than_the_clock() {
        assert_eq!(untold_tools(0), None);
        assert_eq!(untold_tools(1), None);
        let said = untold_tools(6).expect("a line");
        assert!(said.contains("takes no tools"), "{said}");
        assert_eq!(shortfalls(None, 0, 1).count(), 0);
        assert_eq!(shortfalls(None, 2, 6).count(), 2);
    }

    #[test]
    fn images_that_a_model_did_not_see_are_counted() {
        assert_eq!(unseen_images(0), None);
        assert_eq!(
            unseen_images(1).as_deref(),
            Some("The model sees no images: of the one shown earlier it was told only the name.")
        );
        assert_eq!(
            unseen_images(1_200).as_deref(),
            Some(
                "The model sees no images: of the 1,200 shown earlier it was told only the names."
            )
        );
    }

    #[test]
    fn what_a_model_did_not_see_is_said_with_its_last_message() {
        let cut = Unread {
            sent_tokens_min: 5_210,
            read_tokens: 4_096,
            context_tokens: Some(4_096),
            through: Some(TurnId::new(3)),
            turns: 3,
            partly: Some(TurnId::new(4)),
            preamble: true,
        };
        assert_eq!(
            unread(&cut, Some("And how does kelp\nhold on?")),
            "The model did not see all of this conversation: its server read 4,096 of at least 5,210 tokens, and left \
             out the beginning without a word. It probably did not read the first 3 messages and their answers, up to \
             “And how does kelp hold on?”, and of the next one only the end. The instructions or the summary before \
             them may have been left out as well. A larger context in the server's settings, or a new chat, gives it room."
        );
        let first = Unread {
            through: None,
            turns: 0,
            preamble: false,
            ..cut
        };
        let said = unread(&first, None);
        assert!(said.contains("only the end of the first message"), "{said}");
    }
}
