use std::io;

use serde::Serialize;
use sha2::{Digest, Sha256};

use tower_agent::error::Result;

/// The hash of everything that a response depends on.
pub(super) type CacheKey = [u8; 32];

/// A hash of values.
#[derive(Debug, Default)]
pub struct Hash(Sha256);

impl Hash {
    /// Adds a value as JSON, whose texts have an end: none can continue into the next.
    pub(super) fn add(&mut self, value: &(impl Serialize + ?Sized)) -> Result<()> {
        serde_json::to_writer(&mut *self, value)?;
        Ok(())
    }

    pub(super) fn into_key(self) -> CacheKey {
        self.0.finalize().into()
    }
}

impl io::Write for Hash {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
