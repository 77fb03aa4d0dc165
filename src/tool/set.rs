use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::task::{Context, Poll};

use serde_json::Value;
use tower::Service;

use super::declaration::ToolDeclaration;
use super::request::ToolRequest;
use super::response::ToolResponse;
use super::service::BoxTool;
use super::tool::Tool;
use crate::call::BoxCallFuture;
use crate::error::{CallSite, Error, ErrorKind, Result};
use crate::message::Messages;

/// A service that routes each call to the tool with its name.
///
/// It is always ready: a call waits for its own tool inside, so a busy tool does not block the
/// others.
///
/// ```
/// use serde_json::{Value, json};
/// use tower::ServiceExt;
/// use tower_agent::{ErrorKind, Tool, ToolRequest, ToolSet};
/// use tower_agent::message::ToolCall;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_agent::BoxError> {
/// let mut tools = ToolSet::new();
/// tools.insert(Tool::function("echo", "Says it again.", |text: Value| text))?;
///
/// let call = ToolCall::new("call_1", "echo", json!("hello"));
/// assert_eq!(tools.clone().oneshot(ToolRequest::new(call)).await?.value(), "hello");
///
/// let call = ToolCall::new("call_2", "ecko", json!("hello"));
/// let error = tools.oneshot(ToolRequest::new(call)).await.unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::UnknownTool);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct ToolSet(Arc<Tools>);

#[derive(Clone, Debug, Default)]
struct Tools {
    declarations: Arc<Vec<Arc<ToolDeclaration>>>,
    // With the index of its declaration: that list keeps the order of registration, in which models
    // read the tools.
    services: BTreeMap<Arc<str>, (usize, BoxTool)>,
    gives_answer: bool,
}

/// The reason why a tool cannot be offered to a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTool {
    /// Two tools have the same name.
    #[error("duplicate tool name `{0}`; rename one of the tools")]
    Duplicate(Arc<str>),
    /// Some providers would reject the name. An agent used as a tool has the agent's name.
    #[error(
        "invalid tool name `{0}`: providers accept 1 to 64 letters (`a` to `z`, `A` to `Z`), \
         digits, `_` and `-`"
    )]
    Name(Arc<str>),
    /// The parameters are not the schema of an object.
    #[error(
        "the parameters of tool `{0}` must be the JSON Schema of an object, with \
         `\"type\": \"object\"`; make it with `ToolDeclaration::with_arguments`, or put what the \
         tool takes into a property"
    )]
    Parameters(Arc<str>),
}

impl InvalidTool {
    fn check(declaration: &ToolDeclaration) -> Result<(), Self> {
        let name = declaration.name();
        let has_valid_characters = name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        if !(1..=64).contains(&name.len()) || !has_valid_characters {
            return Err(Self::Name(name.into()));
        }
        match declaration.parameters().get("type").and_then(Value::as_str) {
            Some("object") => Ok(()),
            _ => Err(Self::Parameters(name.into())),
        }
    }
}

impl Tools {
    fn add(&mut self, tool: &Arc<ToolDeclaration>, service: BoxTool) -> Result<(), InvalidTool> {
        match self.services.entry(tool.name().into()) {
            Entry::Occupied(known) => Err(InvalidTool::Duplicate(known.key().clone())),
            Entry::Vacant(free) => {
                free.insert((self.declarations.len(), service));
                self.gives_answer |= tool.gives_answer();
                Arc::make_mut(&mut self.declarations).push(tool.clone());
                Ok(())
            }
        }
    }
}

impl ToolSet {
    /// Creates an empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool.
    ///
    /// # Errors
    ///
    /// Fails if a tool has the same name, or if a provider would reject the name or the parameters.
    pub fn insert(&mut self, tool: Tool) -> Result<(), InvalidTool> {
        InvalidTool::check(tool.declaration())?;
        let declaration = tool.declaration().clone();
        Arc::make_mut(&mut self.0).add(&declaration, tool.into_service())
    }

    /// Returns the declarations that the model receives, in registration order.
    #[must_use]
    pub fn declarations(&self) -> &Arc<Vec<Arc<ToolDeclaration>>> {
        &self.0.declarations
    }

    /// Returns the declaration of the tool named `name`.
    #[must_use]
    pub fn declaration(&self, name: &str) -> Option<&Arc<ToolDeclaration>> {
        Some(self.find(name)?.0)
    }

    /// Returns these tools followed by those of `others`.
    ///
    /// # Errors
    ///
    /// Fails if both contain a tool with the same name.
    pub fn union(&self, others: &Self) -> Result<Self, InvalidTool> {
        let mut all = self.clone();
        all.add_all(others, |_| true)?;
        Ok(all)
    }

    fn add_all(
        &mut self,
        others: &Self,
        is_wanted: impl Fn(&ToolDeclaration) -> bool,
    ) -> Result<(), InvalidTool> {
        let tools = Arc::make_mut(&mut self.0);
        for declaration in others.declarations().iter().filter(|tool| is_wanted(tool)) {
            if let Some((_, service)) = others.find(declaration.name()) {
                tools.add(declaration, service.clone())?;
            }
        }
        Ok(())
    }

    /// Returns the set with this tool, in place of one with the same name.
    pub(crate) fn with(&self, tool: Tool) -> Result<Self, InvalidTool> {
        let mut with = Self::new();
        with.add_all(self, |known| known.name() != tool.declaration().name())?;
        with.insert(tool)?;
        Ok(with)
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.services.is_empty()
    }

    pub(crate) fn find(&self, name: &str) -> Option<(&Arc<ToolDeclaration>, &BoxTool)> {
        let (index, tool) = self.0.services.get(name)?;
        Some((self.0.declarations.get(*index)?, tool))
    }

    pub(crate) fn gives_answer(&self) -> bool {
        self.0.gives_answer
    }

    /// Returns the answer of the run that a tool has given in the last turn, once all its calls
    /// have results.
    pub(crate) fn answer(&self, messages: &Messages) -> Option<String> {
        let turn = messages.last_turn()?;
        let mut calls = turn.calling.tool_calls();
        let answer = calls.find_map(|call| {
            let (declaration, _) = self.find(&call.name)?;
            let mut results = turn.results();
            let result = results.find(|result| result.call_id == call.id)?;
            (declaration.gives_answer() && !result.is_error).then(|| result.text())
        });
        answer.filter(|_| turn.open_calls().is_empty())
    }

    /// Makes a call of the tool that was found for it, or of the one that it names.
    pub(crate) fn make(&self, mut request: ToolRequest) -> BoxCallFuture<ToolRequest> {
        // The loop has looked the tool up already; a request from elsewhere only names it.
        let tool = request
            .take_tool()
            .or_else(|| Some(self.find(request.name())?.1.clone()));
        if let Some(tool) = tool {
            return tool.make(request);
        }
        // No service adds the call to this error, so it is added here.
        let unknown = self.unknown(request.name());
        Box::pin(std::future::ready(Err(
            unknown.in_call(|| CallSite::of(&request))
        )))
    }

    pub(crate) fn unknown(&self, name: &str) -> Error {
        let known: Vec<_> = self.0.declarations.iter().map(|tool| tool.name()).collect();
        let message = match &known[..] {
            [] => format!("`{name}` is not registered; there are no tools"),
            known => format!(
                "`{name}` is not registered; available tools: {}",
                known.join(", ")
            ),
        };
        Error::new(ErrorKind::UnknownTool, message)
    }
}

impl Service<ToolRequest> for ToolSet {
    type Response = ToolResponse;
    type Error = Error;
    type Future = BoxCallFuture<ToolRequest>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: ToolRequest) -> Self::Future {
        self.make(request)
    }
}
