use std::borrow::Cow;
use std::sync::Arc;

/// A tool that a callback names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedTool {
    /// The name of the callback.
    pub(crate) by: Cow<'static, str>,
    pub(crate) tool: Arc<str>,
    /// It takes the tool to be an agent, if there is one of the name.
    pub(crate) as_agent: bool,
}
