use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead, Generate, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

use serde_json::value::RawValue;

use super::log::Log;
use super::thread::Thread;
use crate::key::ConversationKey;
use crate::lock::lock;

/// The prefix of a sealed thread: the envelope and its version.
const PREFIX: &str = "tower-agent.1.";
const NONCE: usize = 24;

/// A secret key of 32 bytes that seals threads.
///
/// Use random bytes, and the same key in every process that serves the same threads.
///
/// ```
/// use tower_agent_conversations::SealKey;
///
/// let key = SealKey::new([7; 32]);
/// assert_eq!(format!("{key:?}"), "SealKey");
/// ```
#[derive(Clone)]
pub struct SealKey(Arc<XChaCha20Poly1305>);

impl SealKey {
    /// Creates a key from these bytes, which must be secret and random.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Arc::new(XChaCha20Poly1305::new(&bytes.into())))
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey")
    }
}

/// The keys of a server: the first one seals, all of them unseal.
///
/// To rotate the key, pass the new one and [accept](Self::and_accept) the old one until no client
/// has a thread sealed with it.
///
/// ```
/// use tower_agent_conversations::{SealKey, SealKeys};
///
/// let keys = SealKeys::from(SealKey::new([2; 32])).and_accept(SealKey::new([1; 32]));
/// # drop(keys);
/// ```
#[derive(Clone, Debug)]
pub struct SealKeys(Vec<SealKey>);

impl SealKeys {
    /// Also accepts threads sealed with this key.
    #[must_use]
    pub fn and_accept(mut self, key: SealKey) -> Self {
        self.0.push(key);
        self
    }

    pub(crate) fn seal(&self, key: &ConversationKey, thread: &Thread) -> Option<String> {
        // The log is not part of what a thread serialises to.
        let items = thread.log.write_from(0).ok()?.into_iter();
        let items: Vec<_> = items
            .map(RawValue::from_string)
            .collect::<Result<_, _>>()
            .ok()?;
        let text = serde_json::to_vec(&(thread, items)).ok()?;
        // 24 random bytes never repeat, so that no process has to count.
        let nonce = XNonce::generate();
        // Authenticated with the thread: what is sealed for one key must not open under another.
        let aad = bound_to(key);
        let payload = Payload {
            msg: &text,
            aad: &aad,
        };
        let sealed = self.0.first()?.0.encrypt(&nonce, payload).ok()?;
        let mut bytes = Vec::with_capacity(NONCE + sealed.len());
        bytes.extend_from_slice(&nonce);
        bytes.extend_from_slice(&sealed);
        let mut envelope = String::from(PREFIX);
        URL_SAFE_NO_PAD.encode_string(bytes, &mut envelope);
        Some(envelope)
    }

    /// Returns the thread, if one of the keys has sealed it under exactly this name.
    pub(crate) fn open(&self, key: &ConversationKey, envelope: &str) -> Option<Thread> {
        let bytes = URL_SAFE_NO_PAD
            .decode(envelope.strip_prefix(PREFIX)?)
            .ok()?;
        // The client may have sent anything.
        let (nonce, sealed) = bytes.split_at_checked(NONCE)?;
        let nonce = XNonce::from(<[u8; NONCE]>::try_from(nonce).ok()?);
        let aad = bound_to(key);
        let text = self.0.iter().find_map(|key| {
            let payload = Payload {
                msg: sealed,
                aad: &aad,
            };
            key.0.decrypt(&nonce, payload).ok()
        })?;
        let (thread, items): (Thread, Vec<&RawValue>) = serde_json::from_slice(&text).ok()?;
        let mut log = Log::default();
        for item in items {
            log.read(item.get()).ok()?;
        }
        Some(Thread { log, ..thread })
    }
}

impl From<SealKey> for SealKeys {
    fn from(key: SealKey) -> Self {
        Self(vec![key])
    }
}

pub(crate) fn is_sealed(value: &str) -> bool {
    value.starts_with(PREFIX)
}

/// Returns the data that a sealed thread is bound to, each part with its length, so that it is
/// unambiguous.
fn bound_to(key: &ConversationKey) -> Vec<u8> {
    let parts = [&*key.app, &*key.user, &*key.id];
    let mut bound = PREFIX.as_bytes().to_vec();
    for part in parts {
        bound.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bound.extend_from_slice(part.as_bytes());
    }
    bound
}

/// The answers that this process has accepted, up to a maximum number.
#[derive(Clone, Debug, Default)]
pub(crate) struct UsedAnswers(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    answers: HashSet<Arc<str>>,
    /// Oldest first.
    order: VecDeque<Arc<str>>,
}

impl UsedAnswers {
    const MOST: usize = 100_000;

    /// Records these answers, unless one of them was recorded before.
    pub(crate) fn claim(&self, answers: &[Arc<str>]) -> bool {
        let seen = &mut *lock(&self.0);
        // All or none: a run that is refused must not use up its other answers.
        if answers.iter().any(|id| seen.answers.contains(id)) {
            return false;
        }
        for id in answers {
            seen.answers.insert(id.clone());
            seen.order.push_back(id.clone());
        }
        while seen.order.len() > Self::MOST {
            if let Some(oldest) = seen.order.pop_front() {
                seen.answers.remove(&oldest);
            }
        }
        true
    }
}
