//! The declaration of a tool by the program.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use tower_agent::Effect;
use tower_agent::tool::ToolDeclaration;

use super::label::{Label, Readers};
use super::pointer::PointerPattern;

/// Declares the part of a tool in the flow of data: the label of its result, and what its arguments
/// decide.
///
/// Declared by the program, by the name of the tool: see [`Flow::tool`](super::Flow::tool). A tool
/// without a declaration returns what anybody could have written and the user alone may read.
/// Unless its [effect](Effect) is [`Pure`](Effect::Pure), it is consequential, and each of its
/// arguments decides what happens; if it is pure, its arguments may be what everybody may read.
///
/// ```
/// use tower_agent_middleware::flow::{Readers, ToolFlow};
///
/// let today = ToolFlow::trusted();
/// let read_mail = ToolFlow::source().trusted_at("/*/id").readers(Readers::user());
/// let send_mail = ToolFlow::action().data(["/subject", "/body"]).recipients("/to");
/// # drop((today, read_mail, send_mail));
/// ```
#[derive(Clone)]
pub struct ToolFlow {
    pub(super) result: Label,
    pub(super) parts: Vec<(PointerPattern, Label)>,
    keys: Vec<Arc<str>>,
    pub(super) is_consequential: bool,
    roles: Vec<(PointerPattern, Role)>,
    pub(super) sends: Sends,
    pub(super) hides: Option<bool>,
    pub(super) trusts_description: bool,
    pub(super) is_agent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Control,
    Data,
}

/// The receivers of what the arguments say.
#[derive(Clone)]
pub(super) enum Sends {
    /// Nobody: the arguments stay in the program.
    Nothing,
    /// It is not known.
    Unknown,
    /// The readers named by the arguments at these places.
    To(Vec<PointerPattern>),
    /// The readers named by a function of the arguments.
    Computed(Arc<Recipients>),
}

type Recipients = dyn Fn(&Value) -> Vec<String> + Send + Sync;

impl ToolFlow {
    fn new(result: Label) -> Self {
        Self {
            result,
            parts: Vec::new(),
            keys: Vec::new(),
            is_consequential: false,
            roles: Vec::new(),
            sends: Sends::Nothing,
            hides: None,
            trusts_description: false,
            is_agent: false,
        }
    }

    /// Declares a tool whose result is the program's own, such as a calculator or a clock, and
    /// whose arguments have no effect. The result still has the labels of the arguments: a tool
    /// that repeats untrusted text returns untrusted text.
    #[must_use]
    pub fn trusted() -> Self {
        Self::new(Label::trusted())
    }

    /// Declares a tool whose result anybody could have written, and the user alone may read, and
    /// whose arguments have no effect: one that reads mails, files, records.
    ///
    /// An address that is fetched tells somebody what it contains: declare such a tool
    /// [`consequential`](Self::consequential) as well.
    #[must_use]
    pub fn source() -> Self {
        Self::new(Label::unknown())
    }

    /// Declares a consequential tool: one that sends, pays, changes or deletes. It is called only
    /// from a trusted context and with trusted arguments, except those that are
    /// [`data`](Self::data). Its result is the program's own.
    #[must_use]
    pub fn action() -> Self {
        Self::trusted().consequential()
    }

    /// Declares an agent that is used as a tool, or the tool that transfers to a sub-agent, if the
    /// guard is registered with [`global_callbacks`](tower_agent::AgentBuilder::global_callbacks)
    /// and so checks the agent's own calls. Its result has the label of what the agent has read.
    ///
    /// Without this declaration, both are consequential. A tool of the name that is another one is
    /// an error of [`build`](tower_agent::AgentBuilder::build), or of the run that brings it.
    #[must_use]
    pub fn agent() -> Self {
        Self {
            is_agent: true,
            ..Self::trusted()
        }
    }

    /// Returns the declaration of a tool about which the program says nothing.
    pub(super) fn by_default(tool: Option<&ToolDeclaration>) -> Self {
        let is_pure = tool.is_some_and(|tool| tool.effect() == Effect::Pure);
        let is_agent = tool.is_some_and(ToolDeclaration::is_agent);
        let is_transfer = tool.is_some_and(ToolDeclaration::is_transfer);
        let result = if is_agent || is_transfer {
            Label::trusted()
        } else {
            Label::unknown()
        };
        Self {
            is_consequential: !is_pure,
            // A pure tool may send its arguments to a server that it asks.
            sends: if is_pure {
                Sends::Unknown
            } else {
                Sends::Nothing
            },
            is_agent,
            ..Self::new(result)
        }
    }

    /// Sets the label of the result.
    #[must_use]
    pub fn label(mut self, label: Label) -> Self {
        self.result = label;
        self
    }

    /// Sets who may read the result.
    #[must_use]
    pub fn readers(mut self, readers: Readers) -> Self {
        self.result = self.result.with_readers(readers);
        self
    }

    /// Sets the label of a part of the result, by a JSON pointer in which `*` stands for any
    /// element. The most exact pointer counts.
    #[must_use]
    pub fn label_at(mut self, pointer: &str, label: Label) -> Self {
        self.parts.push((PointerPattern::new(pointer), label));
        self
    }

    /// Declares that a part of the result is the program's own, such as an id that it has made, and
    /// that everybody may read it. The model reads it even if the result is [hidden](super::Hide).
    #[must_use]
    pub fn trusted_at(self, pointer: &str) -> Self {
        self.label_at(pointer, Label::trusted())
    }

    /// Names keys of the result that the model may read when the result is hidden. The content has
    /// chosen the others, perhaps. The keys in pointers of parts count as named.
    #[must_use]
    pub fn keys(mut self, keys: impl IntoIterator<Item = impl Into<Arc<str>>>) -> Self {
        self.keys.extend(keys.into_iter().map(Into::into));
        self
    }

    /// Declares that the tool is consequential, and each argument decides what happens unless it is
    /// [`data`](Self::data).
    #[must_use]
    pub fn consequential(mut self) -> Self {
        self.is_consequential = true;
        self
    }

    /// Declares that the arguments at these JSON pointers do not decide what happens, and may be
    /// untrusted: the text of a message, and not who receives it.
    #[must_use]
    pub fn data<'a>(mut self, pointers: impl IntoIterator<Item = &'a str>) -> Self {
        self.add_roles(pointers, Role::Data);
        self
    }

    /// Declares that the arguments at these JSON pointers decide what happens, where they are a
    /// part of an argument that is [`data`](Self::data). All others do so anyway. The most exact
    /// pointer counts.
    #[must_use]
    pub fn control<'a>(mut self, pointers: impl IntoIterator<Item = &'a str>) -> Self {
        self.add_roles(pointers, Role::Control);
        self
    }

    fn add_roles<'a>(&mut self, pointers: impl IntoIterator<Item = &'a str>, role: Role) {
        for pointer in pointers {
            self.roles.push((PointerPattern::new(pointer), role));
        }
    }

    /// Declares that the argument at this JSON pointer, a name or a list of names, says who
    /// receives the others: each must be a reader of all that is sent. The tool is consequential.
    #[must_use]
    pub fn recipients(mut self, pointer: &str) -> Self {
        let pattern = PointerPattern::new(pointer);
        match &mut self.sends {
            Sends::To(patterns) => patterns.push(pattern),
            sends => *sends = Sends::To(vec![pattern]),
        }
        self.consequential()
    }

    /// Declares who receives the arguments, by a function of all of them, with each reference
    /// replaced by its value. If it panics, the call fails. The tool is consequential.
    ///
    /// ```
    /// use serde_json::Value;
    /// use tower_agent_middleware::flow::ToolFlow;
    ///
    /// let post = ToolFlow::action().data(["/text"]).recipients_by(|arguments: &Value| {
    ///     match arguments["channel"].as_str() {
    ///         Some(channel) => vec![format!("members of {channel}")],
    ///         None => vec!["anyone".to_owned()],
    ///     }
    /// });
    /// # drop(post);
    /// ```
    #[must_use]
    pub fn recipients_by(
        mut self,
        recipients: impl Fn(&Value) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.sends = Sends::Computed(Arc::new(recipients));
        self.consequential()
    }

    /// Keeps the result out of the model's sight if reading it would taint the context, whatever
    /// [`Flow::hide`](super::Flow::hide) says.
    #[must_use]
    pub fn hidden(mut self) -> Self {
        self.hides = Some(true);
        self
    }

    /// Lets the model read the result, whatever [`Flow::hide`](super::Flow::hide) says.
    #[must_use]
    pub fn shown(mut self) -> Self {
        self.hides = Some(false);
        self
    }

    /// Declares that the description and the parameters of a tool of others, such as an MCP
    /// server's, are to be trusted, whatever the server makes of them. Otherwise a model that reads
    /// them is tainted from its first call on.
    #[must_use]
    pub fn trust_description(mut self) -> Self {
        self.trusts_description = true;
        self
    }

    /// Returns the label of what is returned, whichever part of it.
    pub(super) fn label_of_any(&self) -> Label {
        let parts = self.parts.iter().map(|(_, label)| label);
        parts.fold(self.result.clone(), |all, part| all.join(part))
    }

    /// Returns whether the program has named this key of the result.
    pub(super) fn names_key(&self, key: &str) -> bool {
        let mut in_parts = self.parts.iter().flat_map(|(pattern, _)| pattern.keys());
        self.keys.iter().any(|known| **known == *key) || in_parts.any(|known| known == key)
    }

    /// Returns whether the value at this path of the arguments decides what happens, or has a part
    /// that does.
    pub(super) fn controls(&self, path: &[String]) -> bool {
        if let Sends::To(recipients) = &self.sends
            && recipients
                .iter()
                .any(|to| to.covers(path) || to.is_inside(path))
        {
            return true;
        }
        let covering = self.roles.iter().filter(|(at, _)| at.covers(path));
        // Of two that are equally exact, the stricter one.
        let most_exact = covering.max_by_key(|(at, role)| (at.exactness(), *role == Role::Control));
        let is_data = most_exact.is_some_and(|(_, role)| *role == Role::Data);
        let has_control_inside = self
            .roles
            .iter()
            .any(|(at, role)| *role == Role::Control && at.is_inside(path));
        !is_data || has_control_inside
    }

    /// Returns the declared place of the value at this path, in the program's own words: the model
    /// may have chosen the keys of a path.
    pub(super) fn place(&self, path: &[String], tool: Option<&ToolDeclaration>) -> String {
        let recipients = match &self.sends {
            Sends::To(patterns) => &patterns[..],
            _ => &[],
        };
        let declared = self.roles.iter().map(|(at, _)| at).chain(recipients);
        let covering = declared.filter(|at| at.covers(path) || at.is_inside(path));
        if let Some(pattern) = covering.max_by_key(|at| at.exactness()) {
            return pattern.to_string();
        }
        let name = path.first().map_or("", |name| name);
        let is_parameter = tool.is_some_and(|tool| {
            let properties = tool.parameters().get("properties");
            properties.is_some_and(|properties| properties.get(name).is_some())
        });
        if is_parameter {
            format!("/{name}")
        } else {
            "an argument that the tool does not declare".to_owned()
        }
    }
}

impl fmt::Debug for ToolFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolFlow")
            .field("result", &self.result)
            .field("is_consequential", &self.is_consequential)
            .field("roles", &self.roles)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::pointer::steps;

    #[test]
    fn the_most_exact_pointer_decides_and_what_none_names_is_control() {
        let tool = ToolFlow::action()
            .data(["/body", "/items"])
            .control(["/items/*/to"])
            .recipients("/body/cc");
        for (path, controls) in [
            ("/to", true),
            ("", true),
            ("/body", true),
            ("/body/text", false),
            ("/body/cc", true),
            ("/body/cc/0", true),
            ("/items", true),
            ("/items/0", true),
            ("/items/0/text", false),
            ("/items/0/to", true),
            ("/items/0/to/name", true),
        ] {
            assert_eq!(tool.controls(&steps(path)), controls, "{path}");
        }
    }
}
