//! The icons: one drawn set on a 24-unit grid with round 1.5-unit strokes, inlined, coloured by the text around them.
//!
//! An icon never stands for a word: every control that shows one also has a name.

use leptos::prelude::*;

/// What is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Icon {
    Sidebar,
    Plus,
    Gear,
    Send,
    Stop,
    Copy,
    Check,
    Again,
    Pencil,
    Bin,
    Dots,
    Chevron,
    ArrowDown,
    Cross,
    Server,
    Tool,
    Search,
    Book,
    Warning,
    Info,
    Folder,
    ArrowUp,
    Window,
    Replay,
    Play,
    Pause,
    StepBack,
    StepForward,
    Bars,
    Picture,
    Download,
}

impl Icon {
    const fn strokes(self) -> &'static str {
        match self {
            Self::Sidebar => {
                "M5 4.5h14a1.5 1.5 0 0 1 1.5 1.5v12a1.5 1.5 0 0 1-1.5 1.5H5A1.5 1.5 0 0 1 3.5 18V6A1.5 1.5 0 0 1 5 4.5ZM9.5 4.5v15"
            }
            Self::Picture => {
                "M5.5 4.5h13A1.5 1.5 0 0 1 20 6v12a1.5 1.5 0 0 1-1.5 1.5h-13A1.5 1.5 0 0 1 4 18V6a1.5 1.5 0 0 1 1.5-1.5ZM8.5 7.75a1.25 1.25 0 1 1 0 2.5 1.25 1.25 0 0 1 0-2.5ZM4.5 17l4-4 3 3 3.5-4 4.5 5"
            }
            Self::Download => "M12 4.5v10.5M6.5 10 12 15.5 17.5 10M5 19.5h14",
            Self::Bars => "M4.5 6.5h7M8 12h8M13 17.5h6.5",
            Self::Plus => "M12 5v14M5 12h14",
            Self::Info => {
                "M12 3.75a8.25 8.25 0 1 1 0 16.5 8.25 8.25 0 0 1 0-16.5ZM12 11v5.5M12 7.75v.01"
            }
            Self::Window => {
                "M13.5 5.5h-7A1.5 1.5 0 0 0 5 7v10.5A1.5 1.5 0 0 0 6.5 19H17a1.5 1.5 0 0 0 1.5-1.5v-7M16 4.5h4v4M19.5 5 12.5 12"
            }
            Self::Gear => {
                "M4 7h9M17 7h3M4 17h3M11 17h9M15 4.75a2.25 2.25 0 1 1 0 4.5 2.25 2.25 0 0 1 0-4.5ZM9 14.75a2.25 2.25 0 1 1 0 4.5 2.25 2.25 0 0 1 0-4.5Z"
            }
            Self::Send => "M12 19.5v-15M5.5 11 12 4.5l6.5 6.5",
            Self::Stop => {
                "M8 6.5h8A1.5 1.5 0 0 1 17.5 8v8a1.5 1.5 0 0 1-1.5 1.5H8A1.5 1.5 0 0 1 6.5 16V8A1.5 1.5 0 0 1 8 6.5Z"
            }
            Self::Copy => {
                "M10 8.5h8.5A1.5 1.5 0 0 1 20 10v8.5a1.5 1.5 0 0 1-1.5 1.5H10a1.5 1.5 0 0 1-1.5-1.5V10A1.5 1.5 0 0 1 10 8.5ZM15.5 8.5V5.5A1.5 1.5 0 0 0 14 4H5.5A1.5 1.5 0 0 0 4 5.5V14a1.5 1.5 0 0 0 1.5 1.5h3"
            }
            Self::Check => "M5 12.5 9.5 17 19 7",
            Self::Again => {
                "M4.5 12a7.5 7.5 0 0 1 12.9-5.2L20 9.5M20 4.5v5h-5M19.5 12a7.5 7.5 0 0 1-12.9 5.2L4 14.5M4 19.5v-5h5"
            }
            Self::Pencil => {
                "M4.5 19.5l.9-4L16 4.9a1.6 1.6 0 0 1 2.3 0l.8.8a1.6 1.6 0 0 1 0 2.3L8.5 18.6l-4 .9ZM14.2 6.7l3.1 3.1"
            }
            Self::Bin => {
                "M4.5 7h15M9.5 7V4.5h5V7M6.5 7l.8 11.6a1.5 1.5 0 0 0 1.5 1.4h6.4a1.5 1.5 0 0 0 1.5-1.4L17.5 7M10 11v5M14 11v5"
            }
            Self::Dots => "M5.5 12h.01M12 12h.01M18.5 12h.01",
            Self::Chevron => "M9 6l6 6-6 6",
            Self::ArrowDown => "M12 5v14M6 13l6 6 6-6",
            Self::Cross => "M6 6l12 12M18 6 6 18",
            Self::Server => {
                "M5.5 4.5h13A1.5 1.5 0 0 1 20 6v4a1.5 1.5 0 0 1-1.5 1.5h-13A1.5 1.5 0 0 1 4 10V6a1.5 1.5 0 0 1 1.5-1.5ZM5.5 11.5h13A1.5 1.5 0 0 1 20 13v5a1.5 1.5 0 0 1-1.5 1.5h-13A1.5 1.5 0 0 1 4 18v-5a1.5 1.5 0 0 1 1.5-1.5ZM7.5 8h.01M7.5 15.5h.01M11 8h5M11 15.5h5"
            }
            Self::Tool => {
                "M14.3 6.7a4 4 0 0 1 4.6-1.3l-2.7 2.7.3 1.4 1.4.3 2.7-2.7a4 4 0 0 1-5.3 5l-6.7 6.7a1.9 1.9 0 0 1-2.7-2.7l6.7-6.7a4 4 0 0 1 1.7-2.7Z"
            }
            Self::Warning => {
                "M12 4.5c.5 0 1 .3 1.3.8l7 12.2a1.5 1.5 0 0 1-1.3 2.2H5a1.5 1.5 0 0 1-1.3-2.2l7-12.2c.3-.5.8-.8 1.3-.8ZM12 10v4M12 17h.01"
            }
            Self::Folder => {
                "M4 7A1.5 1.5 0 0 1 5.5 5.5H10l2 2.5h6.5A1.5 1.5 0 0 1 20 9.5V17a1.5 1.5 0 0 1-1.5 1.5h-13A1.5 1.5 0 0 1 4 17V7Z"
            }
            Self::Replay => {
                "M4.5 12a7.5 7.5 0 1 0 2.7-5.8L4.5 8.5M4.5 4.5v4h4M10.5 9.3v5.4l4.2-2.7-4.2-2.7Z"
            }
            Self::Play => "M8 5.5v13l10.5-6.5L8 5.5Z",
            Self::Pause => "M8.5 5.5v13M15.5 5.5v13",
            Self::StepBack => "M17 6v12l-8.5-6L17 6ZM6.5 6v12",
            Self::StepForward => "M7 6v12l8.5-6L7 6ZM17.5 6v12",
            Self::ArrowUp => "M12 19V5M6 11l6-6 6 6",
            Self::Search => "M10.5 4.5a6 6 0 1 1 0 12 6 6 0 0 1 0-12ZM15 15l4.5 4.5",
            Self::Book => {
                "M4.5 5.5c2.8-.8 5.3-.5 7.5 1 2.2-1.5 4.7-1.8 7.5-1v12.5c-2.8-.8-5.3-.5-7.5 1-2.2-1.5-4.7-1.8-7.5-1V5.5ZM12 6.5V19"
            }
        }
    }
}

/// Draws an icon. It has no name of its own: its control has one.
#[component]
pub(crate) fn Glyph(icon: Icon) -> impl IntoView {
    view! {
        <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
            <path d=icon.strokes() />
        </svg>
    }
    .into_any()
}

/// Holdfast's own mark, a root that grips a stone, in the colour of the text around it.
#[component]
pub(crate) fn Mark() -> impl IntoView {
    view! {
        <svg class="mark" viewBox="0 0 16 16" aria-hidden="true" focusable="false">
            <path d="M8 .8V6" />
            <path d="M8 4.6C4.6 5.2 1.9 7.4 1.9 10.6c0 2 .9 3.4 2.3 4.2" />
            <path d="M8 4.6c3.4.6 6.1 2.8 6.1 6 0 2-.9 3.4-2.3 4.2" />
            <ellipse class="mark-stone" cx="8" cy="11" rx="3.5" ry="3.2" />
        </svg>
    }
    .into_any()
}
