//! Questions in the system's own dialogs, which need no page that lives.
//!
//! Invariant: at most one is open, and nothing waits for it: a signal or a logout goes past it. Enter and Escape choose
//! what interrupts nothing.

use tauri::AppHandle;

use super::goings::Words;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Whether to quit, though something runs.
    Quitting(Words),
    /// Whether to go on without a window.
    Closing(Words),
}

/// What was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// Go on without a window.
    GoOn,
    /// Quit, and interrupt what runs.
    Interrupt,
    /// Everything stays as it is.
    Nothing,
}

impl Question {
    const fn words(&self) -> &Words {
        match self {
            Self::Quitting(words) | Self::Closing(words) => words,
        }
    }

    /// Its buttons, in the order of the platform's reading direction; the last one is the harmless one.
    const fn buttons(&self) -> &'static [(&'static str, Reply)] {
        match self {
            Self::Quitting(_) => &[
                ("Quit and interrupt", Reply::Interrupt),
                ("Keep working", Reply::Nothing),
            ],
            Self::Closing(_) => &[
                ("Cancel", Reply::Nothing),
                ("Quit and interrupt", Reply::Interrupt),
                ("Go on without a window", Reply::GoOn),
            ],
        }
    }
}

#[cfg(target_os = "linux")]
thread_local! {
    /// GTK lives on the main thread.
    static OPEN: std::cell::RefCell<Option<gtk::MessageDialog>> = const { std::cell::RefCell::new(None) };
}

/// Asks, above the given window. Call it on the main thread. While another question is open, that one comes to the front
/// and this one is not asked.
#[cfg(target_os = "linux")]
pub(super) fn ask(
    _: &AppHandle,
    above: Option<&tauri::WebviewWindow>,
    question: &Question,
    answered: impl FnOnce(Reply) + Send + 'static,
) {
    use gtk::{ButtonsType, DialogFlags, MessageDialog, MessageType, ResponseType, prelude::*};

    if let Some(open) = OPEN.with(|open| open.borrow().clone()) {
        open.present();
        return;
    }
    let words = question.words();
    let parent = above.and_then(|window| window.gtk_window().ok());
    let dialog = MessageDialog::new(
        parent.as_ref(),
        DialogFlags::MODAL,
        MessageType::Question,
        ButtonsType::None,
        &words.title,
    );
    dialog.set_title("Holdfast");
    dialog.set_secondary_text(Some(&words.text));
    let buttons = question.buttons();
    for ((label, _), number) in buttons.iter().zip(0_u16..) {
        let button = dialog.add_button(label, ResponseType::Other(number));
        if usize::from(number) + 1 == buttons.len() {
            dialog.set_default_response(ResponseType::Other(number));
            button.grab_focus();
        }
    }
    let answered = std::cell::RefCell::new(Some(answered));
    dialog.connect_response(move |dialog, response| {
        // Escape and the window's own cross are no answer, so nothing happens.
        let reply = match response {
            ResponseType::Other(number) => {
                buttons.get(usize::from(number)).map(|(_, reply)| *reply)
            }
            _ => None,
        };
        OPEN.with(|open| open.borrow_mut().take());
        dialog.close();
        if let Some(answered) = answered.borrow_mut().take() {
            answered(reply.unwrap_or(Reply::Nothing));
        }
    });
    if parent.is_none() {
        dialog.set_position(gtk::WindowPosition::Center);
        dialog.set_keep_above(true);
    }
    OPEN.with(|open| *open.borrow_mut() = Some(dialog.clone()));
    dialog.show_all();
    dialog.present();
}

/// The same by the platform's own means.
#[cfg(not(target_os = "linux"))]
pub(super) fn ask(
    _: &AppHandle,
    above: Option<&tauri::WebviewWindow>,
    question: &Question,
    answered: impl FnOnce(Reply) + Send + 'static,
) {
    use std::sync::atomic::{AtomicBool, Ordering};

    use rfd::{AsyncMessageDialog, MessageButtons, MessageDialogResult, MessageLevel};

    static OPEN: AtomicBool = AtomicBool::new(false);
    if OPEN.swap(true, Ordering::SeqCst) {
        return;
    }
    let words = question.words();
    let labels: Vec<String> = question
        .buttons()
        .iter()
        .rev()
        .map(|(label, _)| (*label).to_owned())
        .collect();
    let buttons = match labels.as_slice() {
        [yes, no, cancel] => {
            MessageButtons::YesNoCancelCustom(yes.clone(), no.clone(), cancel.clone())
        }
        [yes, no] => MessageButtons::OkCancelCustom(yes.clone(), no.clone()),
        _ => MessageButtons::Ok,
    };
    let mut dialog = AsyncMessageDialog::new()
        .set_level(MessageLevel::Warning)
        .set_title(&words.title)
        .set_description(&words.text)
        .set_buttons(buttons);
    if let Some(above) = above {
        dialog = dialog.set_parent(above);
    }
    // Some systems allow a dialog from their main thread alone; it is waited for elsewhere.
    let shown = dialog.show();
    let buttons = question.buttons();
    tauri::async_runtime::spawn(async move {
        let result = shown.await;
        OPEN.store(false, Ordering::SeqCst);
        let reply = match result {
            MessageDialogResult::Custom(label) => buttons
                .iter()
                .find(|(name, _)| *name == label)
                .map(|(_, reply)| *reply),
            // Closed without an answer.
            MessageDialogResult::Yes
            | MessageDialogResult::No
            | MessageDialogResult::Ok
            | MessageDialogResult::Cancel => None,
        };
        answered(reply.unwrap_or(Reply::Nothing));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_button_that_enter_presses_interrupts_nothing() {
        let words = Words {
            title: String::new(),
            text: String::new(),
        };
        for question in [Question::Quitting(words.clone()), Question::Closing(words)] {
            let last = question.buttons().last();
            assert!(
                last.is_some_and(|(_, reply)| *reply != Reply::Interrupt),
                "{question:?}"
            );
            let interrupting = question.buttons().iter();
            let interrupting = interrupting.filter(|(_, reply)| *reply == Reply::Interrupt);
            assert_eq!(interrupting.count(), 1, "{question:?}");
        }
    }
}
