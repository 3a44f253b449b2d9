//! A document that grows, against the same text read at once.

use proptest::prelude::*;

use super::{Align, Block, Document, Inline, ListItem, Update, Within, parse};

fn text(text: &str) -> Inline {
    Inline::Text(text.to_owned())
}

fn link(address: &str) -> Inline {
    Inline::Link {
        href: address.to_owned(),
        title: String::new(),
        inlines: vec![text(address)],
    }
}

fn paragraph(words: &str) -> Block {
    Block::Paragraph(vec![text(words)])
}

fn code(language: Option<&str>, text: &str, closed: bool) -> Block {
    Block::Code {
        language: language.map(str::to_owned),
        text: text.to_owned(),
        closed,
    }
}

/// The whole text, read once by the parser, without anything of what makes a document grow.
fn read_at_once(source: &str) -> Vec<Block> {
    let mut source = source
        .replace("\r\n", "\n")
        .replace('\r', "\n")
        .replace('\0', "\u{fffd}");
    loop {
        let before = source.clone();
        let blocks = parse::blocks(&mut source).blocks;
        if source == before {
            return blocks;
        }
    }
}

/// Pushes the pieces, checks what every update promises, and gives the finished blocks.
fn grow<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Vec<Block> {
    let mut document = Document::new();
    let mut before: Vec<Block> = Vec::new();
    for piece in pieces {
        let update = document.push(piece);
        check_promise(&before, document.blocks(), update);
        before = document.blocks().to_vec();
    }
    let update = document.finish();
    check_promise(&before, document.blocks(), update);
    document.blocks().to_vec()
}

fn check_promise(before: &[Block], after: &[Block], update: Update) {
    assert_eq!(
        before[..update.kept],
        after[..update.kept],
        "a kept block changed"
    );
    match (
        before.get(update.kept),
        after.get(update.kept),
        update.within,
    ) {
        (_, _, Within::Nothing) => {}
        (
            Some(Block::List { items: old, .. }),
            Some(Block::List { items: new, .. }),
            Within::Items(kept),
        ) => assert_eq!(old[..kept], new[..kept], "a kept item changed"),
        (
            Some(Block::Table {
                head: old_head,
                rows: old,
                ..
            }),
            Some(Block::Table { head, rows, .. }),
            Within::Rows(kept),
        ) => {
            assert_eq!(old_head, head, "a kept head changed");
            assert_eq!(old[..kept], rows[..kept], "a kept row changed");
        }
        (
            Some(Block::Code { text: old, .. }),
            Some(Block::Code { text: new, .. }),
            Within::CodeBytes(kept),
        ) => {
            assert_eq!(old.len(), kept, "all of the code that was shown is kept");
            assert!(new.starts_with(old.as_str()), "code that was shown is gone");
        }
        odd => panic!("an update names what is not there: {odd:?}"),
    }
}

fn characters(source: &str) -> impl Iterator<Item = &str> {
    source
        .char_indices()
        .map(|(at, char)| &source[at..at + char.len_utf8()])
}

#[test]
fn every_kind_of_block_and_inline_is_read() {
    let source = "# A *title*\n\nOne **two** ~~three~~ `four`\\\nfive ![six](seven.png) <b>eight</b>\n\n\
        1. first\n2. [x] done\n   - inner\n\n> quoted\n\n| a | b |\n|:--|--:|\n| 1 | 2 |\n\n---\n\n\
        ```rust,ignore\nfn main() {}\n```\n\n    indented\n\n<div>\nraw\n</div>\n";
    let expected = vec![
        Block::Heading {
            level: 1,
            inlines: vec![text("A "), Inline::Emphasis(vec![text("title")])],
        },
        Block::Paragraph(vec![
            text("One "),
            Inline::Strong(vec![text("two")]),
            text(" "),
            Inline::Strike(vec![text("three")]),
            text(" "),
            Inline::Code("four".to_owned()),
            Inline::HardBreak,
            text("five "),
            Inline::Image {
                src: "seven.png".to_owned(),
                alt: "six".to_owned(),
            },
            text(" "),
            Inline::Html("<b>".to_owned()),
            text("eight"),
            Inline::Html("</b>".to_owned()),
        ]),
        Block::List {
            start: Some(1),
            items: vec![
                ListItem {
                    task: None,
                    blocks: vec![paragraph("first")],
                },
                ListItem {
                    task: Some(true),
                    blocks: vec![
                        paragraph("done"),
                        Block::List {
                            start: None,
                            items: vec![ListItem {
                                task: None,
                                blocks: vec![paragraph("inner")],
                            }],
                        },
                    ],
                },
            ],
        },
        Block::Quote(vec![paragraph("quoted")]),
        Block::Table {
            align: vec![Align::Left, Align::Right],
            head: vec![vec![text("a")], vec![text("b")]],
            rows: vec![vec![vec![text("1")], vec![text("2")]]],
        },
        Block::Rule,
        code(Some("rust"), "fn main() {}", true),
        code(None, "indented", true),
        Block::Html("<div>\nraw\n</div>\n".to_owned()),
    ];
    assert_eq!(Document::from_text(source).blocks(), expected);
    assert_eq!(grow(characters(source)), expected);
}

#[test]
fn only_web_and_mail_addresses_become_links() {
    for (source, href) in [
        ("[a](https://x.y)", Some("https://x.y")),
        ("[a](HTTP://x.y)", Some("HTTP://x.y")),
        ("[a](mailto:b@c.d)", Some("mailto:b@c.d")),
        ("<https://x.y>", Some("https://x.y")),
        ("<b@c.de>", Some("mailto:b@c.de")),
        ("[a](javascript:alert(1))", None),
        ("[a](JavaScript:alert(1))", None),
        ("[a](data:text/html,x)", None),
        ("[a](file:///etc/passwd)", None),
        ("[a](vbscript:x)", None),
        ("[a](//x.y)", None),
        ("[a](relative)", None),
        ("[a](java&#10;script:x)", None),
        ("[a](&#1;https://x.y)", None),
        ("<javascript:alert(1)>", None),
    ] {
        let document = Document::from_text(source);
        let [Block::Paragraph(inlines)] = document.blocks() else {
            panic!("{source} is no paragraph: {document:?}");
        };
        let found = match inlines.as_slice() {
            [Inline::Link { href, .. }] => Some(href.as_str()),
            _ => None,
        };
        assert_eq!(found, href, "{source}");
        assert!(!parse::plain(inlines).is_empty(), "{source} lost its words");
    }
}

#[test]
fn a_bare_web_address_is_a_link_without_the_marks_around_it() {
    for (source, before, address, after) in [
        ("https://x.y", "", "https://x.y", ""),
        (
            "see http://x.y/a_b_c?d=1&e=2.",
            "see ",
            "http://x.y/a_b_c?d=1&e=2",
            ".",
        ),
        ("(https://x.y/z)", "(", "https://x.y/z", ")"),
        ("https://x.y/z_(w), so", "", "https://x.y/z_(w)", ", so"),
        (
            "at http://[::1]:11434/api!",
            "at ",
            "http://[::1]:11434/api",
            "!",
        ),
        (
            "http http:// https://ü.de",
            "http http:// ",
            "https://ü.de",
            "",
        ),
    ] {
        let document = Document::from_text(source);
        let mut expected = vec![text(before), link(address), text(after)];
        expected.retain(|inline| *inline != text(""));
        assert_eq!(document.blocks(), [Block::Paragraph(expected)], "{source}");
    }
    for source in ["xhttps://x.y", "https://", "`https://x.y`", "ftp://x.y"] {
        let document = format!("{:?}", Document::from_text(source));
        assert!(!document.contains("Link"), "{source}");
    }
    assert_eq!(
        Document::from_text("[https://a.b](https://x.y)").blocks(),
        [Block::Paragraph(vec![Inline::Link {
            href: "https://x.y".to_owned(),
            title: String::new(),
            inlines: vec![text("https://a.b")],
        }])],
        "no link within a link"
    );
}

#[test]
fn html_stays_text_and_dollars_are_not_maths() {
    assert_eq!(
        Document::from_text("a <script>x</script> $b_1$ and $$c$$").blocks(),
        [Block::Paragraph(vec![
            text("a "),
            Inline::Html("<script>".to_owned()),
            text("x"),
            Inline::Html("</script>".to_owned()),
            text(" $b_1$ and $$c$$"),
        ])]
    );
}

#[test]
fn a_link_definition_is_shown_as_the_text_it_is_and_changes_nothing_before_it() {
    let source = "see [it][1]\n\n[1]: https://x.y\n[1]: https://again\n\n> [q]: /quoted\n";
    let expected = vec![
        paragraph("see [it][1]"),
        Block::Paragraph(vec![
            text("[1]: "),
            link("https://x.y"),
            Inline::SoftBreak,
            text("[1]: "),
            link("https://again"),
        ]),
        Block::Quote(vec![paragraph("[q]: /quoted")]),
    ];
    assert_eq!(Document::from_text(source).blocks(), expected);
    assert_eq!(grow(characters(source)), expected);
}

#[test]
fn a_fence_shows_its_lines_as_they_come_and_holds_only_what_may_close_it() {
    let mut document = Document::new();
    let mut shown = |piece: &str| {
        document.push(piece);
        match document.blocks().last() {
            Some(Block::Code { text, closed, .. }) => (text.clone(), *closed),
            other => panic!("not code: {other:?}"),
        }
    };
    assert_eq!(shown("```py\n"), (String::new(), false));
    assert_eq!(shown("a ="), ("a =".to_owned(), false));
    assert_eq!(shown(" 1\n"), ("a = 1".to_owned(), false));
    assert_eq!(shown("``"), ("a = 1".to_owned(), false));
    assert_eq!(shown("x\n"), ("a = 1\n``x".to_owned(), false));
    assert_eq!(shown("  ``` "), ("a = 1\n``x".to_owned(), false));
    assert_eq!(shown("\n"), ("a = 1\n``x".to_owned(), true));
}

#[test]
fn text_after_a_closed_fence_is_markdown_again() {
    let source = "~~~~\n~~~\n```\n~~~~~\n**a**";
    let expected = vec![
        code(None, "~~~\n```", true),
        Block::Paragraph(vec![Inline::Strong(vec![text("a")])]),
    ];
    assert_eq!(Document::from_text(source).blocks(), expected);
    assert_eq!(grow(characters(source)), expected);
}

#[test]
fn what_looks_like_a_table_half_way_through_its_second_line_ends_no_paragraph() {
    let source = "code\n|<\n|---|:-:|\n";
    let expected = read_at_once(source);
    assert_eq!(
        expected.len(),
        1,
        "the head has one column and the line two"
    );
    assert_eq!(grow(characters(source)), expected);
}

#[test]
fn an_unfinished_fence_says_that_it_is_open() {
    assert_eq!(
        Document::from_text("```\na\n\n").blocks(),
        [code(None, "a\n", false)]
    );
    assert_eq!(
        Document::from_text("```\na\n```").blocks(),
        [code(None, "a", true)]
    );
    assert_eq!(
        Document::from_text("- x\n  ```\n  a\n").blocks(),
        [Block::List {
            start: None,
            items: vec![ListItem {
                task: None,
                blocks: vec![paragraph("x"), code(None, "a", false)],
            }],
        }]
    );
}

#[test]
fn nesting_without_end_is_drawn_flat_and_loses_no_word() {
    for source in [
        format!("{}deep", "> ".repeat(5_000)),
        format!("{}deep", "- ".repeat(2_000)),
        format!("{}deep{}", "*a ".repeat(2_000), "*".repeat(2_000)),
        format!("{}deep{}", "[".repeat(5_000), "](https://x)".repeat(5_000)),
        format!("{}deep", "1. > ".repeat(1_000)),
    ] {
        let blocks = Document::from_text(&source).blocks().to_vec();
        let drawn = format!("{blocks:?}");
        assert_eq!(drawn.matches("deep").count(), 1, "{}", &source[..12]);
    }
}

/// How many bytes of source are read for each byte that is pushed.
fn source_read_per_byte(source: &str) -> f64 {
    let mut document = Document::new();
    let mut rest = source;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.len().min(7));
        document.push(piece);
        rest = after;
    }
    document.read_in_all as f64 / source.len() as f64
}

#[test]
fn the_cost_of_a_push_does_not_grow_with_the_text() {
    let many = |line: &str, count: usize| line.repeat(count);
    for (name, source) in [
        ("paragraphs", many("Some words, *as usual*.\n\n", 2_000)),
        ("a fence", format!("```\n{}", many("let x = 1;\n", 5_000))),
        (
            "a table",
            format!("|a|b|\n|-|-|\n{}", many("| 1 | 2 |\n", 5_000)),
        ),
        ("a list", many("- an item that says something\n", 2_000)),
        (
            "a loose list",
            many("1. an item\n\n   with code\n\n", 2_000),
        ),
        ("one paragraph", many("word ", 10_000)),
        ("one quotation", many("> quoted *words*\n", 3_000)),
        (
            "nested items",
            format!("- a\n{}", many("  - inner\n", 5_000)),
        ),
        ("html", format!("<pre>\n{}", many("raw\n", 12_000))),
        ("blank lines", many("\n", 25_000)),
    ] {
        let short = source_read_per_byte(&source[..source.len() / 8]);
        let long = source_read_per_byte(&source);
        assert!(
            long < 200.0 && long < short * 1.2 + 20.0,
            "{name}: {short:.1} bytes read per byte pushed, then {long:.1}"
        );
    }
}

#[test]
fn items_and_rows_become_final_one_by_one_and_the_last_is_always_read() {
    let bold = || vec![Inline::Strong(vec![text("b")])];
    let mut list = Document::new();
    let mut table = Document::new();
    table.push("| a |\n|---|\n");
    for count in 1..2_000_usize {
        list.push("- **b**\n");
        let update = list.push("");
        let Some(Block::List { items, .. }) = list.blocks().last() else {
            panic!("no list");
        };
        assert_eq!(items.len(), count);
        assert_eq!(
            items.last().map(|item| item.blocks.as_slice()),
            Some([Block::Paragraph(bold())].as_slice())
        );
        if count > 1 {
            assert_eq!(update.within, Within::Items(count - 1));
        }

        table.push("| **b** |\n");
        let update = table.push("");
        let Some(Block::Table { rows, .. }) = table.blocks().last() else {
            panic!("no table");
        };
        assert_eq!((rows.len(), rows.last()), (count, Some(&vec![bold()])));
        assert_eq!(update.within, Within::Rows(count));
    }
}

/// Lines that meet in every odd way.
const LINES: &[&str] = &[
    "",
    "",
    "",
    "a",
    "word *em* and",
    "**strong",
    "closed** `code`",
    "`` ` ``",
    "# heading",
    "## h ##",
    "===",
    "---",
    "- item",
    "- [ ] task",
    "-",
    "* other",
    "+ plus",
    "  - nested",
    "    - deeper",
    "1. one",
    "2. two",
    "10) ten",
    "   three",
    "    indented",
    "\tindented",
    "> quote",
    "> - in quote",
    "> ```",
    ">",
    "```",
    "```rust",
    "````",
    "~~~",
    "   ```",
    " ```",
    "  code",
    "| a | b |",
    "|---|:-:|",
    "a | b",
    "--|--",
    "|",
    "| x",
    "<div>",
    "</div>",
    "<!-- c",
    "-->",
    "<pre>",
    "</pre>",
    "[a]: https://x.y",
    "[a]: /u 'title",
    "title'",
    "[a][b] [a]",
    "[a](https://x.y \"t\")",
    "[b](javascript:x)",
    "![i](u)",
    "<https://x.y>",
    "a\\",
    "two  ",
    "***",
    "_a_ ~~b~~",
    "&amp; &#0; \\*",
    "$x$",
    "ünï → 漢字 🦀",
    "1986\\. a",
    "***a** b*",
    "\t- tab item",
    "-\ttab",
    "> > deep",
    "- - - x",
    "  ",
    "     ",
    "``` not `a` fence",
    "\u{0}",
    "a\u{b}",
];

fn source() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        8 => proptest::sample::select(LINES).prop_map(str::to_owned),
        1 => "[-*_`~#>|<\\[\\]()!:\\\\ \t\na1.+=\"]{0,12}",
    ];
    let end = prop_oneof![12 => Just("\n"), 1 => Just("\r\n"), 1 => Just("\r"), 1 => Just("")];
    proptest::collection::vec((line, end), 0..24)
        .prop_map(|lines| lines.into_iter().map(|(line, end)| line + end).collect())
}

fn pieces(source: &str, cuts: &[proptest::sample::Index]) -> Vec<String> {
    let mut ends: Vec<usize> = cuts
        .iter()
        .map(|cut| cut.index(source.len() + 1))
        .filter(|end| source.is_char_boundary(*end))
        .collect();
    ends.extend([0, source.len()]);
    ends.sort_unstable();
    ends.windows(2)
        .map(|pair| source[pair[0]..pair[1]].to_owned())
        .collect()
}

#[test]
fn a_line_that_was_nearly_a_table_stays_a_part_of_its_paragraph() {
    let source = "```closed** `code`\n|\\\n|---|:-:|\n";
    assert_eq!(grow(characters(source)), read_at_once(source));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn however_a_text_is_cut_it_is_read_the_same(
        source in source(),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..12),
    ) {
        let expected = read_at_once(&source);
        prop_assert_eq!(grow([source.as_str()]), expected.clone(), "at once");
        let pieces = pieces(&source, &cuts);
        prop_assert_eq!(grow(pieces.iter().map(String::as_str)), expected.clone(), "in pieces {:?}", pieces);
        prop_assert_eq!(grow(characters(&source)), expected, "by characters");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_long_text_is_read_the_same_too(
        sources in proptest::collection::vec((source(), 1..40_usize), 1..8),
        piece in 1..200_usize,
    ) {
        let source: String = sources.iter().map(|(source, times)| source.repeat(*times)).collect();
        let expected = read_at_once(&source);
        let mut document = Document::new();
        let mut piece_text = String::new();
        for char in source.chars() {
            piece_text.push(char);
            if piece_text.len() >= piece {
                document.push(&piece_text);
                piece_text.clear();
            }
        }
        document.push(&piece_text);
        document.finish();
        prop_assert_eq!(document.blocks(), &expected[..]);
    }
}
