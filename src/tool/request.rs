use std::sync::Arc;

use serde_json::Value;

use super::arguments::wrapped;
use super::{Effect, ToolDeclaration, ToolResponse};
use crate::call::Extensions;
use crate::call::Request;
use crate::call::{CallKind, Origin};
use crate::context::RunContext;
use crate::message::ToolCall;

/// What a tool is asked. Cloning is O(1).
///
/// ```
/// use serde_json::json;
/// use tower_agent::ToolRequest;
/// use tower_agent::message::ToolCall;
///
/// let mut request = ToolRequest::new(ToolCall::new("call_1", "add", json!({ "a": 1, "b": 2 })));
/// request.arguments_mut()["b"] = json!(3);
/// assert_eq!(request.arguments()["b"], 3);
/// assert_eq!(request.call().arguments["b"], 2); // what the model asked for
/// ```
#[derive(Clone, Debug)]
pub struct ToolRequest {
    call: ToolCall,
    /// Those of the call, until they are changed.
    arguments: Option<Arc<Value>>,
    declaration: Option<Arc<ToolDeclaration>>,
    extensions: Extensions,
    context: RunContext,
}

impl ToolRequest {
    /// A request in a run of its own.
    #[must_use]
    pub fn new(call: ToolCall) -> Self {
        Self::in_run(RunContext::default(), call)
    }

    pub(crate) fn in_run(context: RunContext, call: ToolCall) -> Self {
        let (arguments, declaration) = (None, None);
        Self { call, arguments, declaration, extensions: Extensions::new(), context }
    }

    /// The same request as part of a run.
    #[must_use]
    pub fn with_context(mut self, context: RunContext) -> Self {
        self.context = context;
        self
    }

    /// Sets what the model was told of the tool.
    ///
    /// Arguments that the model has sent bare, such as `"disk"` to a tool that takes the one
    /// property `value`, are put into that: all that looks at them finds them where the tool's
    /// [parameters](ToolDeclaration::parameters) say.
    #[must_use]
    pub fn with_declaration(mut self, declaration: Option<Arc<ToolDeclaration>>) -> Self {
        if let Some(tool) = &declaration
            && let Some(object) = wrapped(self.arguments(), tool.parameters())
        {
            self.arguments = Some(Arc::new(object));
        }
        self.declaration = declaration;
        self
    }

    /// What the model asked for, unchanged by any callback.
    #[must_use]
    pub fn call(&self) -> &ToolCall {
        &self.call
    }

    /// The provider's name for the call.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.call.id
    }

    /// The tool.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.call.name
    }

    /// The arguments that the tool will be given, as its
    /// [parameters](ToolDeclaration::parameters) describe them: an object, in which arguments of a
    /// type that is none, such as a number or a list, are the property `value`.
    #[must_use]
    pub fn arguments(&self) -> &Value {
        self.arguments.as_ref().unwrap_or(&self.call.arguments)
    }

    /// The arguments that the tool will be given, to change. They keep their form: an object.
    pub fn arguments_mut(&mut self) -> &mut Value {
        Arc::make_mut(self.arguments.get_or_insert_with(|| self.call.arguments.clone()))
    }

    /// What the model was told of the tool. `None` for a tool that does not exist.
    #[must_use]
    pub fn declaration(&self) -> Option<&Arc<ToolDeclaration>> {
        self.declaration.as_ref()
    }

    /// Data of this call.
    #[must_use]
    pub fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Data of this call, to change.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extensions
    }
}

impl Request for ToolRequest {
    type Response = ToolResponse;
    const CALL: CallKind = CallKind::Tool;

    fn context(&self) -> &RunContext {
        &self.context
    }

    fn name(&self) -> Option<&str> {
        Some(&self.call.name)
    }

    /// If what the model was told of the tool says so.
    fn is_repeatable(&self) -> bool {
        let declaration = self.declaration.as_ref();
        declaration.is_some_and(|tool| tool.effect() != Effect::Mutating)
    }

    fn is_changed_from(&self, earlier: &Self) -> bool {
        self.call != earlier.call || self.arguments() != earlier.arguments()
    }

    fn mark(&self, response: &mut ToolResponse, replaced: Option<&ToolResponse>, origin: Origin) {
        if origin != Origin::Service {
            response.set_origin(origin);
        }
        let inner = replaced.and_then(|response| response.changed_arguments().cloned());
        response.note_arguments(inner.or_else(|| self.arguments.clone()));
    }
}
