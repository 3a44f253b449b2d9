//! Which session a word on the command line means.

use protocol::{LibraryPage, Place, SessionId, SessionSummary};

/// The newest session on the shelf.
const LAST: &str = "last";

/// Why a word means no session.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoSession {
    #[error("there is no session yet")]
    NoneAtAll,
    #[error("there is no session ‘{0}’; `holdfast list` shows what there is")]
    Unknown(String),
    #[error("‘{prefix}’ is the beginning of {} sessions: {}; say more of it", .ids.len(), some(.ids))]
    Ambiguous { prefix: String, ids: Vec<SessionId> },
}

/// The session that is meant by an id, by the beginning of exactly one, or by `last`.
///
/// # Errors
/// [`NoSession`], in words.
pub(super) fn session<'a>(
    library: &'a LibraryPage,
    word: &str,
) -> Result<&'a SessionSummary, NoSession> {
    let word = word.trim();
    if word == LAST {
        return library
            .sessions
            .iter()
            .filter(|session| session.place == Place::Shelf)
            .max_by_key(|session| (session.active_at, session.session))
            .ok_or(NoSession::NoneAtAll);
    }
    let prefix = word.to_ascii_lowercase();
    let meant: Vec<_> = library
        .sessions
        .iter()
        .filter(|session| session.session.to_string().starts_with(&prefix))
        .collect();
    match meant.as_slice() {
        [] => Err(NoSession::Unknown(word.to_owned())),
        [session] => Ok(session),
        several => Err(NoSession::Ambiguous {
            prefix: word.to_owned(),
            ids: several.iter().map(|session| session.session).collect(),
        }),
    }
}

fn some(ids: &[SessionId]) -> String {
    let shown: Vec<_> = ids.iter().take(4).map(ToString::to_string).collect();
    let more = if ids.len() > shown.len() { " …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use protocol::{Cursor, LogId, Origin, SessionState, Timestamp};

    use super::*;

    fn summary(bits: u128, active_at: i64, place: Place) -> SessionSummary {
        SessionSummary {
            session: SessionId::from_bits(bits),
            title: String::new(),
            origin: Origin::Conversation,
            created_at: Timestamp::from_millis(0),
            active_at: Timestamp::from_millis(active_at),
            state: SessionState::Empty,
            unread: None,
            place,
        }
    }

    #[test]
    fn an_id_its_beginning_and_last_name_a_session() {
        let a = 0xaaaa_0000_0000_0000_0000_0000_0000_0001;
        let b = 0xaabb_0000_0000_0000_0000_0000_0000_0002;
        let binned = 0xcccc_0000_0000_0000_0000_0000_0000_0003;
        let mut library = LibraryPage {
            sessions: vec![
                summary(a, 20, Place::Shelf),
                summary(b, 10, Place::Shelf),
                summary(binned, 30, Place::Bin),
            ],
            providers: vec![],
            last_model: None,
            limits: None,
            fallbacks: Vec::new(),
            model_options: Vec::new(),
            pulls: Vec::new(),
            prices: None,
            salvages: Vec::new(),
            as_of: Cursor::at_start(LogId::from_bits(1)),
        };
        let found = |word: &str| session(&library, word).map(|found| found.session.bits());
        assert_eq!(found("aaaa0000000000000000000000000001"), Ok(a));
        assert_eq!(found("AABB"), Ok(b));
        assert_eq!(found("cc"), Ok(binned), "the bin is reached by name");
        assert_eq!(
            found("last"),
            Ok(a),
            "but what was thrown away is not the last one"
        );
        assert_eq!(found("dd"), Err(NoSession::Unknown("dd".to_owned())));
        let ambiguous = found("aa").expect_err("two").to_string();
        assert!(
            ambiguous.starts_with("‘aa’ is the beginning of 2 sessions: aaaa0"),
            "{ambiguous}"
        );
        library.sessions.clear();
        assert_eq!(session(&library, "last"), Err(NoSession::NoneAtAll));
    }
}
