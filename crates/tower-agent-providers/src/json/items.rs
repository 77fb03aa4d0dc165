use serde::Serialize;

use super::write::{self, close};
use tower_agent::error::Result;
use tower_agent::model::ModelRequest;

/// Writes the items of a JSON array one by one; created by [`Object::array`](super::Object::array).
#[derive(Debug)]
pub struct Items<'a> {
    out: &'a mut Vec<u8>,
}

impl Items<'_> {
    /// Appends an array whose items are appended by `write`.
    pub(super) fn array(
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Items<'_>) -> Result<()>,
    ) -> Result<()> {
        out.push(b'[');
        write(&mut Items { out })?;
        close(out, b']');
        Ok(())
    }

    /// Appends an item.
    ///
    /// # Errors
    ///
    /// Fails if the value cannot be serialised.
    pub fn item(&mut self, value: impl Serialize) -> Result<()> {
        self.item_with(|out| write::write(out, value))
    }

    /// Appends an item whose bytes are appended by `write`.
    ///
    /// # Errors
    ///
    /// Returns the error of `write`.
    pub fn item_with(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
        write(self.out)?;
        // After the item, not before the next one: the bytes of a message are then the same
        // wherever it stands, and can be copied from the request before.
        self.out.push(b',');
        Ok(())
    }

    /// Appends the items of all messages. `write` appends those of the message at an index; it is
    /// called once for a message in an agent's run, as in
    /// [`write_messages`](ModelRequest::write_messages).
    ///
    /// # Errors
    ///
    /// Returns the error of `write`.
    pub fn messages(
        &mut self,
        request: &ModelRequest,
        protocol: &'static str,
        mut write: impl FnMut(usize, &mut Items<'_>) -> Result<()>,
    ) -> Result<()> {
        request.write_messages(protocol, self.out, |index, out| {
            write(index, &mut Items { out })
        })
    }

    /// Appends the items of the available tools, which are written once in an agent's run, as in
    /// [`write_tools`](ModelRequest::write_tools).
    ///
    /// # Errors
    ///
    /// Returns the error of `write`.
    pub fn tools(
        &mut self,
        request: &ModelRequest,
        protocol: &'static str,
        write: impl FnOnce(&mut Items<'_>) -> Result<()>,
    ) -> Result<()> {
        request.write_tools(protocol, self.out, |out| write(&mut Items { out }))
    }
}

/// Appends an array, each item of which is appended by `write`.
///
/// # Errors
///
/// Returns the error of `write`.
pub fn array<T>(
    out: &mut Vec<u8>,
    items: impl IntoIterator<Item = T>,
    write: impl Fn(T, &mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    Items::array(out, |array| {
        for item in items {
            array.item_with(|out| write(item, out))?;
        }
        Ok(())
    })
}
