use std::collections::BTreeSet;
use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead, Generate, KeyInit, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use serde_json::Value;
use tower_agent::Checkpoint;

use super::saved::Saved;
use crate::lock::lock;

const NONCE: usize = 24;

/// The time in which an interrupted call can be continued.
const LIFE: Duration = Duration::from_secs(24 * 60 * 60);

/// The maximum number of continued calls that are remembered, so that clients cannot fill the
/// memory.
const REMEMBERED: usize = 100_000;

/// Seals the checkpoints of interrupted calls, and accepts each once.
pub(super) struct Seal {
    key: XChaCha20Poly1305,
    used: Mutex<Used>,
}

/// The calls that were continued and have not expired.
#[derive(Default)]
struct Used {
    /// The expiry and the id of each: the first is the one to forget next.
    ids: BTreeSet<(u64, String)>,
    /// The latest expiry of a forgotten call. Anything that expires no later is rejected, since it
    /// may be one that was used.
    forgotten: u64,
}

impl Used {
    /// Adds a call. Returns `false` if it was used before, or may have been.
    fn insert(&mut self, expires: u64, id: String) -> bool {
        if expires <= self.forgotten || !self.ids.insert((expires, id)) {
            return false;
        }
        let now = now();
        while let Some((oldest, _)) = self.ids.first()
            && (*oldest < now || self.ids.len() > REMEMBERED)
        {
            self.forgotten = *oldest;
            self.ids.pop_first();
        }
        true
    }
}

/// The reason not to accept a sealed checkpoint.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It was not sealed here for this call.
    Invalid,
    Expired,
    Used,
}

impl Seal {
    pub(super) fn new(key: Option<[u8; 32]>) -> Self {
        let key = key.map_or_else(Key::generate, Key::from);
        Self {
            key: XChaCha20Poly1305::new(&key),
            used: Mutex::default(),
        }
    }

    /// Seals a checkpoint for a call of `tool` with these arguments.
    pub(super) fn seal(
        &self,
        tool: &str,
        arguments: &Value,
        checkpoint: Checkpoint,
    ) -> Option<String> {
        // 24 random bytes never repeat, so that the nonce is a unique id as well.
        let nonce = XNonce::generate();
        let id = URL_SAFE_NO_PAD.encode(nonce);
        let saved = Saved {
            id,
            expires: now() + LIFE.as_secs(),
            checkpoint,
        };
        let text = serde_json::to_vec(&saved).ok()?;
        // Authenticated with the checkpoint: an approval of one call must not continue another.
        let aad = bound_to(tool, arguments);
        let sealed = self
            .key
            .encrypt(
                &nonce,
                Payload {
                    msg: &text,
                    aad: &aad,
                },
            )
            .ok()?;
        let mut bytes = nonce.to_vec();
        bytes.extend_from_slice(&sealed);
        Some(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Opens a checkpoint that was sealed for exactly this call.
    pub(super) fn open(
        &self,
        tool: &str,
        arguments: &Value,
        sealed: &str,
    ) -> Result<Checkpoint, Refusal> {
        let saved = self
            .decrypt(tool, arguments, sealed)
            .ok_or(Refusal::Invalid)?;
        if saved.expires < now() {
            return Err(Refusal::Expired);
        }
        // Used from now on, even if the call then fails: running it twice is worse.
        let mut used = lock(&self.used);
        if !used.insert(saved.expires, saved.id) {
            return Err(Refusal::Used);
        }
        Ok(saved.checkpoint)
    }

    fn decrypt(&self, tool: &str, arguments: &Value, sealed: &str) -> Option<Saved> {
        let bytes = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE)?;
        let nonce = XNonce::from(<[u8; NONCE]>::try_from(nonce).ok()?);
        let aad = bound_to(tool, arguments);
        let text = self
            .key
            .decrypt(
                &nonce,
                Payload {
                    msg: sealed,
                    aad: &aad,
                },
            )
            .ok()?;
        serde_json::from_slice(&text).ok()
    }
}

/// Returns the data that a seal is bound to: each part with its length, since without it one pair
/// could be read as another.
fn bound_to(tool: &str, arguments: &Value) -> Vec<u8> {
    let mut bound = b"tower-agent-mcp.1.".to_vec();
    for part in [tool, &arguments.to_string()] {
        bound.extend_from_slice(&(part.len() as u64).to_le_bytes());
        bound.extend_from_slice(part.as_bytes());
    }
    bound
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal")
    }
}
