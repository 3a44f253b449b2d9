//! The line codec under both dialects: bytes in, whole lines out.
//!
//! Invariant: lines do not depend on how bytes arrive. `\n`, `\r\n` and a lone `\r` end a line, a byte order mark is
//! dropped, a line becomes text only when it is whole, so no character is ever cut; bytes that are not UTF-8 become
//! `U+FFFD`. One line holds as many bytes of memory as it is allowed, [`LINE_BYTES_MAX`] everywhere but in tests.

use std::borrow::Cow;

use memchr::memchr2;

/// Ollama's own limit for one line is 8 MB; nothing a server says has a right to more of our memory.
pub(super) const LINE_BYTES_MAX: usize = 8 * 1024 * 1024;

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// A line was longer than it is allowed to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Cuts bytes into lines.
#[derive(Debug)]
pub(super) struct Lines {
    line_bytes_max: usize,
    partial: Vec<u8>,
    /// The last byte was `\r`: a `\n` right after it belongs to it.
    after_cr: bool,
    /// The first line is out, so a byte order mark is text from here on.
    begun: bool,
}

impl Lines {
    pub(super) fn new(line_bytes_max: usize) -> Self {
        Self {
            line_bytes_max,
            partial: Vec::new(),
            after_cr: false,
            begun: false,
        }
    }

    /// Tells `each` line that ends in `bytes`. A line that lies whole in them is not copied.
    ///
    /// # Errors
    /// [`TooLong`], or what `each` returned; the lines before have been told.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(&str) -> Result<(), TooLong>,
    ) -> Result<(), TooLong> {
        let mut rest = bytes;
        if self.after_cr && !rest.is_empty() {
            self.after_cr = false;
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(end) = memchr2(b'\n', b'\r', rest) {
            let (line, ended) = rest.split_at(end);
            if self.partial.is_empty() {
                if line.len() > self.line_bytes_max {
                    return Err(TooLong);
                }
                each(self.text(line).as_ref())?;
            } else {
                self.keep(line)?;
                each(&self.take())?;
            }
            rest = match ended {
                [b'\r', b'\n', after @ ..] => after,
                [b'\r'] => {
                    self.after_cr = true;
                    &[]
                }
                [_, after @ ..] => after,
                [] => &[],
            };
        }
        self.keep(rest)
    }

    /// What came after the last line end, if anything.
    pub(super) fn finish(&mut self) -> Option<String> {
        if self.partial.is_empty() {
            None
        } else {
            Some(self.take())
        }
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        if self.partial.len().saturating_add(bytes.len()) > self.line_bytes_max {
            return Err(TooLong);
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    fn take(&mut self) -> String {
        let bytes = std::mem::take(&mut self.partial);
        self.text(&bytes).into_owned()
    }

    /// A whole line as text.
    fn text<'a>(&mut self, line: &'a [u8]) -> Cow<'a, str> {
        let line = if std::mem::replace(&mut self.begun, true) {
            line
        } else {
            line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line)
        };
        String::from_utf8_lossy(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(pieces: &[&[u8]]) -> (Vec<String>, Option<String>) {
        let (mut codec, mut lines) = (Lines::new(LINE_BYTES_MAX), Vec::new());
        for piece in pieces {
            codec
                .feed(piece, |line| {
                    lines.push(line.to_owned());
                    Ok(())
                })
                .unwrap();
        }
        (lines, codec.finish())
    }

    #[test]
    fn every_kind_of_line_end_is_one_line_end_wherever_the_read_was_cut() {
        let text = "\u{feff}a\r\nb\nc\rd\r\r\nnaïve 日本語 👩‍👩‍👧‍👦".as_bytes();
        let want = (
            ["a", "b", "c", "d", ""].map(String::from).to_vec(),
            Some("naïve 日本語 👩‍👩‍👧‍👦".to_owned()),
        );
        assert_eq!(cut(&[text]), want);
        for at in 0..=text.len() {
            let (head, tail) = text.split_at(at);
            assert_eq!(cut(&[head, tail]), want, "cut at {at}");
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(cut(&bytes), want);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced_and_the_rest_of_the_line_is_kept() {
        assert_eq!(cut(&[b"a\xff\xe6b\n"]).0, vec!["a\u{fffd}\u{fffd}b"]);
    }

    #[test]
    fn a_line_over_the_limit_is_refused_and_the_lines_before_it_are_kept() {
        let (mut codec, mut lines) = (Lines::new(64), Vec::new());
        let mut feed = |bytes: &[u8]| {
            codec.feed(bytes, |line| {
                lines.push(line.to_owned());
                Ok(())
            })
        };
        assert_eq!(feed(b"one\n"), Ok(()));
        let block = [b'x'; 64];
        assert_eq!(feed(&block), Ok(()));
        assert_eq!(feed(b"\n"), Ok(()));
        assert_eq!(feed([&block[..], b"x\n"].concat().as_slice()), Err(TooLong));
        assert_eq!(feed(&block), Ok(()));
        assert_eq!(feed(b"x"), Err(TooLong));
        assert_eq!(lines, vec!["one".to_owned(), "x".repeat(64)]);
    }
}
