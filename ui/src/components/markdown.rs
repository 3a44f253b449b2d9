//! Markdown as views. A model's text becomes text nodes and elements of our choosing, never HTML.
//!
//! Growing text is drawn as pieces that are cut at fixed places, so that what stands already is not touched: a selection
//! in it survives, and the browser lays out the end only.
//! Nothing is fetched: a link is a link, and an image is a link to itself. Both open outside.

use leptos::{either::Either, ev, prelude::*};
use transcript::markdown::{Align, Block, Inline, ListItem};

use crate::{
    components::icons::{Glyph, Icon},
    desk::use_desk,
    prose::{BlockCell, Cells, Prose, Shape},
};

/// Long enough that a paragraph is a handful of pieces, short enough that the last one is cheap to replace.
const PIECE_BYTES: usize = 160;
/// Code comes faster, and its pieces end with a line.
const CODE_PIECE_BYTES: usize = 512;
/// How long the copy button says that it worked.
const COPIED_MS: u64 = 1_500;

/// A growing text.
#[component]
pub(crate) fn Markdown(prose: Prose) -> impl IntoView {
    view! {
        <For each=move || prose.blocks.get() key=|cell| cell.key let:cell>
            <BlockOf cell />
        </For>
    }
    .into_any()
}

#[component]
fn BlockOf(cell: BlockCell) -> impl IntoView {
    match cell.shape {
        Shape::Code { language, text } => view! { <CodeBlock language text /> }.into_any(),
        Shape::List { start, items } => view! { <ListBlock start items /> }.into_any(),
        Shape::Table { align, head, rows } => view! { <TableBlock align head rows /> }.into_any(),
        Shape::Whole(block) => (move || block.with(block_view)).into_any(),
    }
}

#[component]
fn CodeBlock(
    #[prop(into)] language: Signal<Option<String>>,
    #[prop(into)] text: Signal<String>,
) -> impl IntoView {
    let desk = use_desk();
    let copied = RwSignal::new(false);
    let label = move || match language.get() {
        Some(language) => language,
        None => "code".to_owned(),
    };
    let copy = move |_| {
        let code = text.get_untracked();
        crate::ipc::spawn(async move {
            if desk.copy_quietly(code).await {
                copied.try_set(true);
                crate::ipc::sleep(COPIED_MS).await;
                copied.try_set(false);
            }
        });
    };
    // The label is drawn by the style sheet: it is no part of what the model said.
    view! {
        <figure class="md-code" dir="ltr">
            <div class="md-code-head" data-language=label>
                <button
                    type="button"
                    class="icon-button"
                    aria-label="Copy code"
                    title="Copy code"
                    data-testid="copy-code"
                    on:click=copy
                >
                    {move || {
                        let icon = if copied.get() { Icon::Check } else { Icon::Copy };
                        view! { <Glyph icon /> }
                    }}
                </button>
            </div>
            <pre tabindex="0">
                <code>{move || text.with(|text| pieces(text, CODE_PIECE_BYTES, '\n'))}</code>
            </pre>
        </figure>
    }
    .into_any()
}

#[component]
fn ListBlock(
    start: RwSignal<Option<u64>>,
    items: RwSignal<Vec<RwSignal<ListItem>>>,
) -> impl IntoView {
    // An item keeps its place: lists grow at their end.
    let rows = move || {
        view! {
            <For
                each=move || items.get().into_iter().enumerate()
                key=|(at, _)| *at
                children=|(_, item)| {
                    view! {
                        <li class:md-task=move || item.with(|item| item.task.is_some())>
                            {move || item.with(item_view)}
                        </li>
                    }
                }
            />
        }
    };
    move || match start.get() {
        Some(first) => Either::Left(view! {
            <ol start=first.to_string() dir="auto">
                {rows()}
            </ol>
        }),
        None => Either::Right(view! { <ul dir="auto">{rows()}</ul> }),
    }
}

#[component]
fn TableBlock(
    align: RwSignal<Vec<Align>>,
    head: RwSignal<Cells>,
    rows: RwSignal<Vec<RwSignal<Cells>>>,
) -> impl IntoView {
    view! {
        <div class="md-table" tabindex="0" role="region" aria-label="Table">
            <table dir="auto">
                <thead>
                    <tr>
                        {move || {
                            let align = align.get();
                            head.with(|cells| {
                                cells
                                    .iter()
                                    .enumerate()
                                    .map(|(at, cell)| {
                                        view! {
                                            <th scope="col" class=align_class(&align, at)>
                                                {inlines_view(cell)}
                                            </th>
                                        }
                                    })
                                    .collect_view()
                            })
                        }}
                    </tr>
                </thead>
                <tbody>
                    <For
                        each=move || rows.get().into_iter().enumerate()
                        key=|(at, _)| *at
                        children=move |(_, row)| {
                            view! {
                                <tr>
                                    {move || {
                                        let align = align.get();
                                        row.with(|cells| cells_view(cells, &align))
                                    }}
                                </tr>
                            }
                        }
                    />
                </tbody>
            </table>
        </div>
    }
    .into_any()
}

fn cells_view(cells: &Cells, align: &[Align]) -> impl IntoView + use<> {
    cells
        .iter()
        .enumerate()
        .map(|(at, cell)| view! { <td class=align_class(align, at)>{inlines_view(cell)}</td> })
        .collect_view()
}

fn align_class(align: &[Align], at: usize) -> &'static str {
    match align.get(at) {
        Some(Align::Center) => "is-center",
        Some(Align::Right) => "is-right",
        Some(Align::Left | Align::None) | None => "",
    }
}

fn item_view(item: &ListItem) -> AnyView {
    // A tight item's one paragraph stands without its own space.
    let blocks = item.blocks.iter().map(block_view).collect_view();
    match item.task {
        Some(done) => view! {
            <input
                type="checkbox"
                disabled
                prop:checked=done
                aria-label=if done { "done" } else { "to do" }
            />
            {blocks}
        }
        .into_any(),
        None => blocks.into_any(),
    }
}

/// A block as it stands.
fn block_view(block: &Block) -> AnyView {
    match block {
        Block::Paragraph(inlines) => view! { <p dir="auto">{inlines_view(inlines)}</p> }.into_any(),
        Block::Heading { level, inlines } => {
            let inlines = inlines_view(inlines);
            match level {
                1 => view! { <h3 class="md-h1" dir="auto">{inlines}</h3> }.into_any(),
                2 => view! { <h4 class="md-h2" dir="auto">{inlines}</h4> }.into_any(),
                3 => view! { <h5 class="md-h3" dir="auto">{inlines}</h5> }.into_any(),
                _ => view! { <h6 class="md-h4" dir="auto">{inlines}</h6> }.into_any(),
            }
        }
        Block::Code { language, text, .. } => {
            let language = Signal::stored(language.clone());
            let text = Signal::stored(text.clone());
            view! { <CodeBlock language text /> }.into_any()
        }
        Block::List { start, items } => {
            let items = items
                .iter()
                .map(|item| {
                    view! { <li class:md-task=item.task.is_some()>{item_view(item)}</li> }
                })
                .collect_view();
            match start {
                Some(first) => view! {
                    <ol start=first.to_string() dir="auto">
                        {items}
                    </ol>
                }
                .into_any(),
                None => view! { <ul dir="auto">{items}</ul> }.into_any(),
            }
        }
        Block::Table { align, head, rows } => {
            let heads = head
                .iter()
                .enumerate()
                .map(|(at, cell)| {
                    view! {
                        <th scope="col" class=align_class(align, at)>
                            {inlines_view(cell)}
                        </th>
                    }
                })
                .collect_view();
            let rows = rows
                .iter()
                .map(|cells| view! { <tr>{cells_view(cells, align)}</tr> })
                .collect_view();
            view! {
                <div class="md-table" tabindex="0" role="region" aria-label="Table">
                    <table dir="auto">
                        <thead>
                            <tr>{heads}</tr>
                        </thead>
                        <tbody>{rows}</tbody>
                    </table>
                </div>
            }
            .into_any()
        }
        Block::Quote(blocks) => {
            let blocks = blocks.iter().map(block_view).collect_view();
            view! { <blockquote dir="auto">{blocks}</blockquote> }.into_any()
        }
        Block::Rule => view! { <hr /> }.into_any(),
        Block::Html(text) => {
            view! { <pre class="md-html" dir="auto">{text.clone()}</pre> }.into_any()
        }
    }
}

fn inlines_view(inlines: &[Inline]) -> AnyView {
    inlines.iter().map(inline_view).collect_view().into_any()
}

fn inline_view(inline: &Inline) -> AnyView {
    match inline {
        Inline::Text(text) => pieces(text, PIECE_BYTES, ' ').into_any(),
        Inline::Code(text) => {
            view! { <code class="md-inline-code">{text.clone()}</code> }.into_any()
        }
        Inline::Emphasis(inlines) => view! { <em>{inlines_view(inlines)}</em> }.into_any(),
        Inline::Strong(inlines) => view! { <strong>{inlines_view(inlines)}</strong> }.into_any(),
        Inline::Strike(inlines) => view! { <s>{inlines_view(inlines)}</s> }.into_any(),
        Inline::Link {
            href,
            title,
            inlines,
        } => link_view(href, title, inlines_view(inlines)),
        Inline::Image { src, alt } => {
            let words = if alt.trim().is_empty() {
                "image".to_owned()
            } else {
                format!("image: {alt}")
            };
            if src.starts_with("https://") || src.starts_with("http://") {
                link_view(src, "", words.into_any())
            } else {
                view! { <span class="md-image">{words}</span> }.into_any()
            }
        }
        Inline::SoftBreak => "\n".into_any(),
        Inline::HardBreak => view! { <br /> }.into_any(),
        Inline::Html(text) => view! { <span class="md-html">{text.clone()}</span> }.into_any(),
    }
}

fn link_view(href: &str, title: &str, words: AnyView) -> AnyView {
    let desk = use_desk();
    let tip = if title.is_empty() {
        href.to_owned()
    } else {
        format!("{title} – {href}")
    };
    let opened = href.to_owned();
    let middle = href.to_owned();
    // The address stays an address, for the menu of the right button; following it is the system browser's business.
    view! {
        <a
            href=href.to_owned()
            title=tip
            rel="noreferrer"
            on:click=move |event: ev::MouseEvent| {
                event.prevent_default();
                desk.open_link(opened.clone());
            }
            on:auxclick=move |event: ev::MouseEvent| {
                event.prevent_default();
                if event.button() == 1 {
                    desk.open_link(middle.clone());
                }
            }
        >
            {words}
        </a>
    }
    .into_any()
}

/// A text in pieces that only depend on what stands before their end, so a growing text keeps all but its last one.
pub(crate) fn pieces(text: &str, least_bytes: usize, end: char) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while rest.len() > least_bytes {
        let from = (0..=least_bytes)
            .rev()
            .find(|at| rest.is_char_boundary(*at))
            .unwrap_or(0);
        let cut = rest
            .get(from..)
            .and_then(|tail| tail.find(end))
            .map(|at| from + at + end.len_utf8());
        let Some((piece, after)) = cut.and_then(|cut| rest.split_at_checked(cut)) else {
            break;
        };
        pieces.push(piece.to_owned());
        rest = after;
    }
    pieces.push(rest.to_owned());
    pieces
}

#[cfg(test)]
mod tests {
    use super::pieces;

    #[test]
    fn pieces_of_a_growing_text_stay_the_same_but_for_the_last() {
        let text = "eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf ".repeat(20);
        let whole = pieces(&text, 50, ' ');
        assert_eq!(whole.concat(), text, "nothing is lost");
        for (end, _) in text.char_indices() {
            let part = pieces(&text[..end], 50, ' ');
            let standing = &part[..part.len() - 1];
            assert_eq!(standing, &whole[..standing.len()], "at byte {end}");
        }
    }

    #[test]
    fn a_text_without_an_end_to_cut_at_is_one_piece() {
        assert_eq!(pieces(&"ü".repeat(100), 51, ' '), ["ü".repeat(100)]);
        assert_eq!(pieces("", 51, ' '), [""]);
    }
}
