use std::collections::BTreeSet;
use std::fmt;
use std::sync::Mutex;
use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chacha20poly1305::aead::{Aead, Generate, KeyInit, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use serde_json::Value;
use tower_agent::Checkpoint;

use super::bounds::{CONTINUED, CONTINUED_WITHIN};
use super::saved::Saved;
use crate::lock::lock;

const NONCE: usize = 24;

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
            && (*oldest < now || self.ids.len() > CONTINUED)
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

    /// Seals a checkpoint for a call of `tool` with these arguments by this principal.
    pub(super) fn seal(
        &self,
        principal: Option<&str>,
        tool: &str,
        arguments: &Value,
        checkpoint: Checkpoint,
    ) -> Option<String> {
        // 24 random bytes never repeat, so that the nonce is a unique id as well.
        let nonce = XNonce::generate();
        let id = URL_SAFE_NO_PAD.encode(nonce);
        let saved = Saved {
            id,
            expires: now() + CONTINUED_WITHIN.as_secs(),
            checkpoint,
        };
        let text = serde_json::to_vec(&saved).ok()?;
        // Authenticated with the checkpoint: an approval of one call must not continue another.
        let aad = bound_to_call(principal, tool, arguments);
        self.encrypt(&nonce, &text, &aad)
    }

    /// Opens a checkpoint that was sealed for exactly this call.
    pub(super) fn open(
        &self,
        principal: Option<&str>,
        tool: &str,
        arguments: &Value,
        sealed: &str,
    ) -> Result<Checkpoint, Refusal> {
        let saved = self
            .decrypt(principal, tool, arguments, sealed)
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

    fn decrypt(
        &self,
        principal: Option<&str>,
        tool: &str,
        arguments: &Value,
        sealed: &str,
    ) -> Option<Saved> {
        let aad = bound_to_call(principal, tool, arguments);
        serde_json::from_slice(&self.decrypt_bytes(sealed, &aad)?).ok()
    }

    /// Returns a proof that this server has given a session to this principal.
    pub(super) fn session_proof(&self, session: &str, principal: &str) -> Option<String> {
        self.encrypt(
            &XNonce::generate(),
            &[],
            &bound_to_session(session, principal),
        )
    }

    pub(super) fn proves_session(&self, session: &str, principal: &str, proof: &str) -> bool {
        self.decrypt_bytes(proof, &bound_to_session(session, principal))
            .is_some()
    }

    fn encrypt(&self, nonce: &XNonce, msg: &[u8], aad: &[u8]) -> Option<String> {
        let sealed = self.key.encrypt(nonce, Payload { msg, aad }).ok()?;
        let mut bytes = nonce.to_vec();
        bytes.extend_from_slice(&sealed);
        Some(URL_SAFE_NO_PAD.encode(bytes))
    }

    fn decrypt_bytes(&self, sealed: &str, aad: &[u8]) -> Option<Vec<u8>> {
        let bytes = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, msg) = bytes.split_at_checked(NONCE)?;
        let nonce = XNonce::from(<[u8; NONCE]>::try_from(nonce).ok()?);
        self.key.decrypt(&nonce, Payload { msg, aad }).ok()
    }
}

fn bound_to_call(principal: Option<&str>, tool: &str, arguments: &Value) -> Vec<u8> {
    // Nobody is not the principal with an empty name.
    let has_principal = if principal.is_some() { "1" } else { "0" };
    bound_to([
        "call",
        has_principal,
        principal.unwrap_or_default(),
        tool,
        &arguments.to_string(),
    ])
}

fn bound_to_session(session: &str, principal: &str) -> Vec<u8> {
    bound_to(["session", session, principal])
}

/// Returns the data that a seal is bound to: each part with its length, since without it one list
/// could be read as another.
fn bound_to<'a>(parts: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    let mut bound = b"tower-agent-mcp.1.".to_vec();
    for part in parts {
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
