use crate::json::{Items, Object};
use tower_agent::error::Result;

/// Writes a text as a block.
pub(super) fn write_text(text: &str, items: &mut Items<'_>) -> Result<()> {
    items.item_with(|out| {
        let mut json = Object::new(out);
        json.field("text", text)?;
        json.end()
    })
}
