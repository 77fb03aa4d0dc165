use serde::Serialize;
use serde_json::{Map, Value};

use tower_agent::error::Result;

/// Writes a JSON object field by field, without an intermediate tree.
pub(super) struct Object<'a> {
    out: &'a mut Vec<u8>,
    /// These replace fields of the same name.
    more: Option<&'a Map<String, Value>>,
}

impl<'a> Object<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>, more: Option<&'a Map<String, Value>>) -> Self {
        out.push(b'{');
        Self { out, more }
    }

    pub(super) fn field(&mut self, name: &str, value: impl Serialize) -> Result<()> {
        self.field_with(name, |out| write(out, value))
    }

    pub(super) fn some(&mut self, name: &str, value: Option<impl Serialize>) -> Result<()> {
        value.map_or(Ok(()), |value| self.field(name, value))
    }

    pub(super) fn field_with(
        &mut self,
        name: &str,
        value: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        if self.more.is_some_and(|more| more.contains_key(name)) {
            return Ok(());
        }
        self.key(name)?;
        value(self.out)?;
        self.out.push(b',');
        Ok(())
    }

    fn key(&mut self, name: &str) -> Result<()> {
        write(self.out, name)?;
        self.out.push(b':');
        Ok(())
    }

    /// Writes the remaining fields. `takes` returns which of the external fields belong there.
    pub(super) fn end_with(mut self, takes: impl Fn(&Value) -> bool) -> Result<()> {
        for (name, value) in self.more.take().into_iter().flatten().filter(|(_, it)| takes(it)) {
            self.field(name, value)?;
        }
        close(self.out, b'}');
        Ok(())
    }

    pub(super) fn end(self) -> Result<()> {
        self.end_with(|_| true)
    }
}

pub(super) fn write(out: &mut Vec<u8>, value: impl Serialize) -> Result<()> {
    Ok(serde_json::to_writer(out, &value)?)
}

/// Ends a list or an object, each item of which ends with a comma.
pub(super) fn close(out: &mut Vec<u8>, with: u8) {
    if out.last() == Some(&b',') {
        out.pop();
    }
    out.push(with);
}
