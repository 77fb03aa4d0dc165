use std::sync::{Arc, Mutex, Weak};

use crate::error::Result;
use crate::lock::lock;
use crate::message::{Message, Messages};
use crate::tool::ToolDeclaration;

type Tools = Arc<Vec<Arc<ToolDeclaration>>>;

/// The bytes reserved for the fields that follow the messages in a body, beside the tools.
const RESERVE: usize = 1 << 10;

/// The serialised messages and tools of one loop's model calls. Dropped with the loop.
#[derive(Default)]
pub(crate) struct Written(Arc<FormsByProtocol>);

/// The written forms, each with the name of its protocol. A list: a run uses one or two protocols.
type FormsByProtocol = Mutex<Vec<(&'static str, WrittenForm)>>;

#[derive(Default)]
struct WrittenForm {
    /// Each message, and where its bytes end.
    messages: Vec<(Message, usize)>,
    bytes: Vec<u8>,
    tools: Option<(Tools, Vec<u8>)>,
}

/// A request's access to what was serialised for earlier ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Earlier(Weak<FormsByProtocol>);

impl From<&Written> for Earlier {
    fn from(written: &Written) -> Self {
        Self(Arc::downgrade(&written.0))
    }
}

impl WrittenForm {
    /// Returns how many messages are written and have not changed since.
    fn known(&self, messages: &Messages) -> usize {
        // Compared by identity: equal texts would take a pass over every byte, and a message that
        // was only copied is merely written again.
        let pairs = self.messages.iter().zip(messages);
        let known = pairs.take_while(|((written, _), message)| written.is_clone_of(message));
        known.count()
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
            // Everything from the first changed message on is written again: a protocol may write a
            // message differently depending on those before it.
            let known = form.known(messages);
            form.messages.truncate(known);
            form.bytes
                .truncate(form.messages.last().map_or(0, |(_, end)| *end));
            for (index, message) in (known..).zip(messages.range(known)) {
                write(index, &mut form.bytes)?;
                form.messages.push((message.clone(), form.bytes.len()));
            }
            // Reserved at once, so that what follows does not move the messages again.
            let tools_len = form.tools.as_ref().map_or(0, |(_, bytes)| bytes.len());
            body.reserve(form.bytes.len() + tools_len + RESERVE);
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
            // By identity: a list that was changed for one call is another allocation.
            let known = form
                .tools
                .take()
                .filter(|(written, _)| Arc::ptr_eq(written, tools));
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

    /// Calls `write` with the form of a protocol, or with `None` if the loop has ended.
    ///
    /// The form is taken out meanwhile: no lock is held while foreign code runs, and a failure
    /// leaves nothing half written behind. A concurrent call, such as a hedge, starts with an empty
    /// form.
    fn with(
        &self,
        protocol: &'static str,
        write: impl FnOnce(Option<&mut WrittenForm>) -> Result<()>,
    ) -> Result<()> {
        let Some(shared) = self.0.upgrade() else {
            return write(None);
        };
        let mut form = {
            let mut forms = lock(&shared);
            match forms.iter().position(|(name, _)| *name == protocol) {
                Some(index) => forms.swap_remove(index).1,
                None => WrittenForm::default(),
            }
        };
        write(Some(&mut form))?;
        lock(&shared).push((protocol, form));
        Ok(())
    }
}
