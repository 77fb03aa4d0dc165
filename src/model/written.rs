use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use crate::error::Result;
use crate::lock::lock;
use crate::message::{Message, Messages};
use crate::tool::ToolDeclaration;

type Tools = Arc<Vec<Arc<ToolDeclaration>>>;

/// The room for what follows the messages in a body, beside the tools.
const REST: usize = 1 << 10;

/// The serialised messages and tools of one loop's model calls. Dropped with the loop.
#[derive(Default)]
pub(crate) struct Written(Arc<Kept>);

/// Indexed by protocol.
type Kept = Mutex<Vec<(&'static str, Form)>>;

/// A conversation and its tools in a protocol's format.
#[derive(Default)]
struct Form {
    /// Each message, and where its bytes end.
    messages: Vec<(Message, usize)>,
    bytes: Vec<u8>,
    tools: Option<(Tools, Vec<u8>)>,
}

/// A request's access to what was serialised for earlier ones.
#[derive(Clone, Default)]
pub(super) struct Earlier(Weak<Kept>);

impl From<&Written> for Earlier {
    fn from(written: &Written) -> Self {
        Self(Arc::downgrade(&written.0))
    }
}

impl fmt::Debug for Earlier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Earlier").finish_non_exhaustive()
    }
}

impl Form {
    /// Returns how many messages are written and have not changed since.
    fn known(&self, messages: &Messages) -> usize {
        let mut known = 0;
        for chunk in messages.chunks() {
            let kept = self.messages[known..].iter();
            let same = kept
                .zip(chunk)
                .take_while(|((kept, _), it)| kept.is_clone_of(it))
                .count();
            known += same;
            if same < chunk.len() {
                break;
            }
        }
        known
    }
}

impl Earlier {
    pub(super) fn write_messages(
        &self,
        protocol: &'static str,
        messages: &Messages,
        body: &mut Vec<u8>,
        mut write: impl FnMut(usize, &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        self.with(protocol, |form| {
            let Some(form) = form else {
                return (0..messages.len()).try_for_each(|index| write(index, body));
            };
            let known = form.known(messages);
            form.messages.truncate(known);
            form.bytes
                .truncate(form.messages.last().map_or(0, |(_, end)| *end));
            for (index, message) in (known..).zip(messages.range(known)) {
                write(index, &mut form.bytes)?;
                form.messages.push((message.clone(), form.bytes.len()));
            }
            // With room for what follows, or the messages would be moved again.
            let tools = form.tools.as_ref().map_or(0, |(_, bytes)| bytes.len());
            body.reserve(form.bytes.len() + tools + REST);
            body.extend_from_slice(&form.bytes);
            Ok(())
        })
    }

    pub(super) fn write_tools(
        &self,
        protocol: &'static str,
        tools: &Tools,
        body: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        self.with(protocol, |form| {
            let Some(form) = form else { return write(body) };
            let known = form
                .tools
                .take()
                .filter(|(kept, _)| Arc::ptr_eq(kept, tools));
            let (tools, bytes) = match known {
                Some(known) => known,
                None => {
                    let mut bytes = Vec::new();
                    write(&mut bytes)?;
                    (tools.clone(), bytes)
                }
            };
            body.extend_from_slice(&bytes);
            form.tools = Some((tools, bytes));
            Ok(())
        })
    }

    /// The value is taken out while `write` works on it: no lock is held, and a failure leaves
    /// nothing behind.
    fn with(
        &self,
        protocol: &'static str,
        write: impl FnOnce(Option<&mut Form>) -> Result<()>,
    ) -> Result<()> {
        let Some(kept) = self.0.upgrade() else {
            return write(None);
        };
        let mut form = {
            let mut forms = lock(&kept);
            let at = forms.iter().position(|(of, _)| *of == protocol);
            at.map(|at| forms.swap_remove(at).1).unwrap_or_default()
        };
        write(Some(&mut form))?;
        lock(&kept).push((protocol, form));
        Ok(())
    }
}
