//! `RunMessages: where the messages of a run's latest request are`
//!
//! A message is stored once. The messages that the run's session or thread has are not copied: the
//! run refers to the entries of a version of it, which never change, whatever the session does
//! later. The others belong to the run. A store of sessions that is another database has nothing to
//! refer to, and all messages are the run's own.

use serde::{Deserialize, Serialize};
use tower_agent::message::Messages;
use tower_agent_conversations::{ConversationKey, to_json};

use super::error::JournalError;
use super::fingerprint::{self, Hash};
use super::known_messages::KnownMessages;
use super::stored_messages::{SessionPart, StoredMessages};
use crate::database::{ConversationVersion, Dialect, EntryMessage, Row, Sql, Transaction};
use tower_agent_conversations::StoreError;

const OWN: &str =
    "SELECT position, message FROM tower_agent_run_messages WHERE run = $1 ORDER BY position";

const CUT: &str = "\
    DELETE FROM tower_agent_run_messages WHERE run = $1 AND (position < $2 OR position >= $3)";

// In one statement, however many there are: a server answers each of them.
#[cfg(feature = "postgres")]
const ADD_TO_POSTGRES: &str = "\
    INSERT INTO tower_agent_run_messages (run, position, message) \
    SELECT $1, $2 + e.number - 1, e.message \
    FROM json_array_elements_text(CAST($3::TEXT AS JSON)) WITH ORDINALITY AS e (message, number)";

#[cfg(feature = "sqlite")]
const ADD_TO_SQLITE: &str = "\
    INSERT INTO tower_agent_run_messages (run, position, message) \
    SELECT $1, $2 + key, value FROM json_each($3)";

/// The place where the messages of a request are stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RunMessages {
    /// The number of messages.
    length: usize,
    /// The hash of all of them, by which a change in the database is noticed.
    digest: String,
    /// The first of them, if a session has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<SessionPart>,
}

impl RunMessages {
    /// Finds out which messages of a request a session of this database has. Returns where the
    /// messages are to be, and those that the session does not have, each as JSON.
    ///
    /// Not in the transaction that starts the run: entries of a version do not change.
    pub(super) async fn find(
        database: &dyn Sql,
        messages: &Messages,
        known: &KnownMessages,
        session: Option<&ConversationKey>,
    ) -> Result<(Self, Vec<String>), JournalError> {
        let key = session.filter(|key| key.check().is_ok() && !messages.is_empty());
        let stored = match key {
            Some(key) => find_stored(database, key, messages, known).await?,
            None => None,
        };
        let (session, before) = match stored {
            Some(stored) => (Some(stored.part), stored.digest),
            None => (None, Hash::default()),
        };
        let shared = session.as_ref().map_or(0, SessionPart::length);
        let mut own = Vec::new();
        for message in messages.range(shared) {
            own.push(to_json(message)?);
        }
        let found = Self {
            length: messages.len(),
            digest: fingerprint::digits(&digest_after(before, &own)),
            session,
        };
        Ok((found, own))
    }

    /// Returns the number of messages.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// Returns where the first messages of these are, which are all as JSON.
    pub(super) fn first(&self, length: usize, texts: &[String]) -> Self {
        let length = length.min(texts.len());
        Self {
            length,
            digest: digest(&texts[..length]),
            session: self.session.as_ref().map(|part| part.first(length)),
        }
    }

    /// Deletes what the run has beside these messages.
    pub(super) async fn cut(&self, tx: &mut dyn Transaction, run: i64) -> Result<(), JournalError> {
        let own = [index(self.length_in_session()), index(self.length)];
        tx.execute(CUT, &[run.into(), own[0].into(), own[1].into()])
            .await?;
        Ok(())
    }

    /// Stores the messages that are the run's own, in the place of those of an earlier request.
    pub(super) async fn write(
        &self,
        tx: &mut dyn Transaction,
        dialect: Dialect,
        run: i64,
        own: &[String],
    ) -> Result<(), JournalError> {
        let from = self.length_in_session();
        let first = index(from);
        let earlier = tx.fetch_all(OWN, &[run.into()]).await?;
        let mut same = 0;
        for row in &earlier {
            let position: i64 = row.number("position")?;
            // A session may have them now, or may have lost them.
            if position < first {
                continue;
            }
            let next = own.get(same).map(String::as_str);
            if position != index(from + same) || next != Some(row.text("message")?) {
                break;
            }
            same += 1;
        }
        let next = index(from + same);
        if earlier.len() > same {
            tx.execute(CUT, &[run.into(), first.into(), next.into()])
                .await?;
        }
        let new = &own[same..];
        if !new.is_empty() {
            let new = serde_json::to_string(new).map_err(StoreError::data)?;
            let add = match dialect {
                #[cfg(feature = "postgres")]
                Dialect::Postgres => ADD_TO_POSTGRES,
                #[cfg(feature = "sqlite")]
                Dialect::Sqlite => ADD_TO_SQLITE,
            };
            tx.execute(add, &[run.into(), next.into(), (&new).into()])
                .await?;
        }
        Ok(())
    }

    /// Returns the messages, each as JSON.
    ///
    /// Fails with [`SessionDeleted`](JournalError::SessionDeleted) if the session that has some of
    /// them is gone.
    pub(super) async fn read(
        &self,
        database: &dyn Sql,
        run: i64,
        name: &str,
    ) -> Result<Vec<String>, JournalError> {
        let entries = match &self.session {
            Some(part) => part.conversation.messages(database).await?,
            None => Vec::new(),
        };
        let own = database.read(OWN, &[run.into()]).await?;
        self.collect(entries, &own, name)
    }

    /// Returns the messages as [`read`](Self::read) does, in a transaction.
    pub(super) async fn read_in(
        &self,
        tx: &mut dyn Transaction,
        run: i64,
        name: &str,
    ) -> Result<Vec<String>, JournalError> {
        let entries = match &self.session {
            Some(part) => part.conversation.messages_in(tx).await?,
            None => Vec::new(),
        };
        let own = tx.fetch_all(OWN, &[run.into()]).await?;
        self.collect(entries, &own, name)
    }

    fn collect(
        &self,
        entries: Vec<EntryMessage>,
        own: &[Row],
        name: &str,
    ) -> Result<Vec<String>, JournalError> {
        let mut texts = Vec::with_capacity(self.length);
        if let Some(part) = &self.session {
            for (position, entry) in entries.into_iter().enumerate() {
                if part.has(position) {
                    texts.push(entry.text);
                }
            }
            if texts.len() != part.length() {
                return Err(JournalError::SessionDeleted { run: name.into() });
            }
        }
        for row in own {
            texts.push(row.text("message")?.to_owned());
        }
        if texts.len() != self.length || digest(&texts) != self.digest {
            let why = format!("messages of run `{name}` were changed in the database");
            return Err(StoreError::data(why).into());
        }
        Ok(texts)
    }

    fn length_in_session(&self) -> usize {
        self.session.as_ref().map_or(0, SessionPart::length)
    }
}

/// Returns the messages of these texts.
pub(super) fn parse(texts: &[String]) -> Result<Messages, JournalError> {
    let messages = texts.iter().map(|text| serde_json::from_str(text));
    let messages: Result<Messages, _> = messages.collect();
    Ok(messages.map_err(StoreError::data)?)
}

/// Returns the number of messages, from the first on, that are these texts.
pub(super) fn common(messages: &Messages, texts: &[String]) -> Result<usize, JournalError> {
    let mut same = 0;
    for (message, text) in messages.iter().zip(texts) {
        if to_json(message)? != *text {
            break;
        }
        same += 1;
    }
    Ok(same)
}

/// Returns the entries of a session that are the first of these messages.
///
/// Looks only at what has come since this process has done so last.
async fn find_stored(
    database: &dyn Sql,
    key: &ConversationKey,
    messages: &Messages,
    known: &KnownMessages,
) -> Result<Option<StoredMessages>, JournalError> {
    let Some(conversation) = ConversationVersion::find(database, key).await? else {
        return Ok(None);
    };
    let mut stored = StoredMessages {
        part: SessionPart {
            conversation,
            entries: Vec::new(),
        },
        last: -1,
        digest: Hash::default(),
    };
    let mut entries = None;
    if let Some(earlier) = known.stored(messages) {
        let version = earlier.part.conversation;
        entries = conversation
            .messages_after(database, version, earlier.last)
            .await?;
        if entries.is_some() {
            stored = earlier;
            stored.part.conversation = conversation;
        }
    }
    let entries = match entries {
        Some(new) => new,
        None => conversation.messages(database).await?,
    };
    let first = stored.part.entries.last().map_or(0, |range| range.end);
    let mut new = messages.range(stored.part.length());
    let mut next = new.next().map(to_json).transpose()?;
    for (position, entry) in (first..).zip(&entries) {
        let Some(text) = next.take_if(|text| *text == entry.text) else {
            continue;
        };
        stored.part.push(position);
        stored.last = entry.position;
        stored.digest = fingerprint::hash_of(text.as_bytes(), &stored.digest);
        next = new.next().map(to_json).transpose()?;
    }
    let stored = Some(stored).filter(|stored| !stored.part.entries.is_empty());
    known.note_stored(stored.clone());
    Ok(stored)
}

fn digest(texts: &[String]) -> String {
    fingerprint::digits(&digest_after(Hash::default(), texts))
}

/// Returns the hash of these messages and of those before them.
fn digest_after(before: Hash, texts: &[String]) -> Hash {
    let mut hash = before;
    for text in texts {
        hash = fingerprint::hash_of(text.as_bytes(), &hash);
    }
    hash
}

fn index(position: usize) -> i64 {
    i64::try_from(position).unwrap_or(i64::MAX)
}
