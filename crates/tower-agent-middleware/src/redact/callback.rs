use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

use super::hide::{self, Replacements};
use super::mapper::RedactMapper;
use super::vault::Vault;
use super::{Hider, Redact, UnknownPlaceholder};
use crate::flow::{is_guarded, note_shortened};
use crate::reveal::Reveals;
use tower_agent::call::Request;
use tower_agent::callback::{Action, Bundle, Callback, Callbacks, Recovery};
use tower_agent::context::RunContext;
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::message::{Messages, Part, Role};
use tower_agent::model::{ModelRequest, ModelResponse};
use tower_agent::stream::DeltaSender;
use tower_agent::tool::{ToolDeclaration, ToolRequest, ToolResponse};
use tower_agent::{AgentRequest, AgentResponse};

/// The name of each part of a redaction.
const NAME: &str = "Redact";

impl Redact {
    fn in_run(&self, context: &RunContext) -> Result<Hider> {
        let vault = if self.is_numbered() {
            Some(Vault::of(context)?)
        } else {
            None
        };
        Ok(Hider {
            redact: self.clone(),
            vault,
        })
    }

    /// Returns the redaction of a model call, which knows the placeholders of its conversation.
    fn in_model_call(&self, request: &ModelRequest) -> Result<Hider> {
        let hider = self.in_run(request.context())?;
        // Once for each agent: what its later calls add has passed through the redaction.
        if request.context().iteration() == 0 {
            hider.reserve(request.messages());
        }
        Ok(hider)
    }

    /// Returns whether another redaction finds the same.
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.rules, &other.rules) && self.max_len == other.max_len
    }

    /// Redacts the error of a call of any kind.
    fn hide_error<R: Request>(&self, request: &R, error: &Error) -> Result<Recovery<R::Response>> {
        let hidden = self.in_run(request.context())?.error(error);
        Ok(hidden.map_or(Recovery::Propagate, Recovery::Fail))
    }

    fn hide_answer(
        &self,
        request: &ModelRequest,
        response: &ModelResponse,
    ) -> Result<Action<ModelResponse>> {
        let hider = self.in_run(request.context())?;
        let hidden = hide::message(response.message(), &hider.change(request.tools()));
        Ok(hidden.map_or(Action::Continue, |message| {
            let mut response = response.clone();
            *response.message_mut() = message;
            Action::Respond(response)
        }))
    }

    fn hide_result(
        &self,
        request: &ToolRequest,
        response: &ToolResponse,
    ) -> Result<Action<ToolResponse>> {
        let hider = self.in_run(request.context())?;
        let mut hidden = None;
        if let Some(value) = hide::value(response.value(), &|text| hider.text(text)) {
            *hidden.get_or_insert_with(|| response.clone()).value_mut() = value;
        }
        // The model is sent the value, unless the response has parts of its own.
        let shown = response.parts();
        if shown != [Part::from(response.value())]
            && let Some(shown) = hide::parts(&shown, &hider.change(&[]))
        {
            hidden = Some(hidden.unwrap_or_else(|| response.clone()).with_parts(shown));
        }
        Ok(hidden.map_or(Action::Continue, Action::Respond))
    }

    /// Returns the callbacks for a model that is called outside an agent, which are a layer. They
    /// hide what is inside that layer.
    ///
    /// In an agent, pass the redaction itself to
    /// [`global_callbacks`](tower_agent::AgentBuilder::global_callbacks).
    #[must_use]
    pub fn around_model(&self) -> Callbacks<ModelRequest> {
        Callbacks::new().with(Innermost(self.clone()))
    }

    /// Returns the callbacks for a tool that is called outside an agent, as
    /// [`around_model`](Self::around_model) does for a model.
    #[must_use]
    pub fn around_tool(&self) -> Callbacks<ToolRequest> {
        Callbacks::new().with(Innermost(self.clone()))
    }

    /// Fails if a placeholder has no original text; otherwise restores the originals if the tool
    /// may receive them.
    fn restore(&self, request: &mut ToolRequest) -> Result<()> {
        let vault = Vault::of(request.context())?;
        // A cell, because a replacement is a `Fn`.
        let unknown = RefCell::new(None);
        let restored = hide::value(request.arguments(), &|text| {
            vault
                .restore(self.rules.kinds(), text)
                .unwrap_or_else(|placeholder| {
                    unknown.borrow_mut().get_or_insert(placeholder);
                    None
                })
        });
        if let Some(placeholder) = unknown.into_inner() {
            let unknown = UnknownPlaceholder { placeholder };
            let error = Error::new(ErrorKind::InvalidArguments, unknown.to_string());
            return Err(error.with_source(unknown));
        }
        // Checked for every tool, restored for few: a made-up placeholder is wrong in any call.
        let is_restored = self.restore_when.as_ref().is_some_and(|when| when(request));
        if let Some(restored) = restored.filter(|_| is_restored) {
            *request.arguments_mut() = restored;
        }
        Ok(())
    }
}

impl Hider {
    /// Redacts the conversation of a request.
    fn input(&self, request: &mut ModelRequest, tools: &[Arc<ToolDeclaration>]) {
        let earlier = request.messages().clone();
        if !self.messages(request.messages_mut(), tools) {
            return;
        }
        // A recording outside has seen the texts: it must not write them to its file.
        request.extensions().note_hidden_input();
        if is_guarded(request) {
            let now = request.messages().clone();
            let pairs = earlier.iter().zip(&now);
            note_shortened(request, pairs.filter(|(earlier, now)| earlier != now));
        }
    }

    /// Returns whether a message contained a match.
    fn messages(&self, messages: &mut Messages, tools: &[Arc<ToolDeclaration>]) -> bool {
        let mut is_changed = false;
        for index in 0..messages.len() {
            let hidden = messages
                .get(index)
                // Instructions are the application's own words.
                .filter(|message| message.role() != Role::System)
                .and_then(|message| hide::message(message, &self.change(tools)));
            // Taken to be changed only if there is something to hide: it copies a shared chunk.
            if let Some(hidden) = hidden
                && let Some(message) = messages.get_mut(index)
            {
                *message = hidden;
                is_changed = true;
            }
        }
        is_changed
    }

    /// Redacts every text, and the names of tools that are not among `tools`.
    fn change<'a>(&'a self, tools: &'a [Arc<ToolDeclaration>]) -> Replacements<'a> {
        Replacements {
            text: Box::new(|text| self.text(text)),
            name: Box::new(|name| self.tool_name(tools, name)),
        }
    }

    /// Redacts every text. The names of tools are left to the call of the model that made them up.
    fn any_change(&self) -> Replacements<'_> {
        Replacements {
            text: Box::new(|text| self.text(text)),
            name: Box::new(|_| None),
        }
    }

    /// Reserves the placeholders that occur in a conversation.
    fn reserve(&self, messages: &Messages) {
        let Some(vault) = &self.vault else { return };
        let look = Replacements {
            text: Box::new(|text| {
                vault.reserve(self.redact.rules.kinds(), text);
                None
            }),
            name: Box::new(|_| None),
        };
        for message in messages {
            // The result is dropped: this only visits every text.
            drop(hide::message(message, &look));
        }
    }
}

/// The part of a redaction directly around the model or the tools.
#[derive(Clone)]
struct Innermost(Redact);

impl Callback<ModelRequest> for Innermost {
    async fn before(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        let hider = self.0.in_model_call(request)?;
        let tools: Arc<[_]> = request.tools().into();
        if self.0.has_input {
            hider.input(request, &tools);
        }
        request.extensions_mut().note_hidden_output();
        let mappers = request.delta_sender().map_or(0, DeltaSender::mappers);
        let outside = request.extensions().get::<HidesDeltas>();
        let is_hidden_outside = outside.is_some_and(|HidesDeltas(by)| self.0.is_same(by));
        if mappers == 1 && is_hidden_outside {
            // No mapper of another callback could see the deltas between here and there.
            return Ok(Action::Continue);
        }
        // The response that `after` hides has been streamed by then, so the deltas are hidden as
        // well.
        request.map_deltas(move || RedactMapper::new(hider.clone(), tools.clone()));
        Ok(Action::Continue)
    }

    async fn after(
        &self,
        request: &ModelRequest,
        response: &ModelResponse,
    ) -> Result<Action<ModelResponse>> {
        self.0.hide_answer(request, response)
    }

    async fn on_error(
        &self,
        request: &mut ModelRequest,
        error: &Error,
    ) -> Result<Recovery<ModelResponse>> {
        self.0.hide_error(request, error)
    }

    fn name(&self) -> Cow<'static, str> {
        NAME.into()
    }

    fn is_guard(&self) -> bool {
        true
    }
}

impl Callback<ToolRequest> for Innermost {
    async fn before(&self, request: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        if self.0.is_numbered() {
            self.0.restore(request)?;
        }
        request.extensions_mut().note_hidden_output();
        Ok(Action::Continue)
    }

    async fn after(
        &self,
        request: &ToolRequest,
        response: &ToolResponse,
    ) -> Result<Action<ToolResponse>> {
        self.0.hide_result(request, response)
    }

    async fn on_error(
        &self,
        request: &mut ToolRequest,
        error: &Error,
    ) -> Result<Recovery<ToolResponse>> {
        self.0.hide_error(request, error)
    }

    fn name(&self) -> Cow<'static, str> {
        NAME.into()
    }

    fn is_guard(&self) -> bool {
        true
    }
}

/// The part of a redaction that hides deltas from everything outside the agent: also those of a
/// model that a layer calls instead, and those that the mappers of other callbacks write.
struct RedactDeltas(Redact);

/// Marks a call whose deltas a redaction hides outside everything else.
struct HidesDeltas(Redact);

impl Callback<ModelRequest> for RedactDeltas {
    async fn before(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        let hider = self.0.in_run(request.context())?;
        let tools: Arc<[_]> = request.tools().into();
        request.extensions_mut().insert(HidesDeltas(self.0.clone()));
        request.map_deltas(move || RedactMapper::new(hider.clone(), tools.clone()));
        Ok(Action::Continue)
    }

    fn name(&self) -> Cow<'static, str> {
        NAME.into()
    }

    fn is_guard(&self) -> bool {
        true
    }
}

/// The part of a redaction that sees what leaves a call. It hides what callbacks and layers add to
/// responses, and their errors, from everything outside.
#[derive(Clone)]
struct Outside(Redact);

impl Callback<AgentRequest> for Outside {
    async fn before(&self, request: &mut AgentRequest) -> Result<Action<AgentResponse>> {
        // A resumed run may start with a tool call, before any model call.
        let hider = self.0.in_run(request.context())?;
        hider.reserve(request.messages());
        Ok(Action::Continue)
    }

    async fn after(
        &self,
        request: &AgentRequest,
        response: &AgentResponse,
    ) -> Result<Action<AgentResponse>> {
        let hider = self.0.in_run(request.context())?;
        let change = hider.any_change();
        let hidden = response.map_messages(|message| hide::message(message, &change));
        Ok(hidden.map_or(Action::Continue, Action::Respond))
    }

    async fn on_error(
        &self,
        request: &mut AgentRequest,
        error: &Error,
    ) -> Result<Recovery<AgentResponse>> {
        self.0.hide_error(request, error)
    }

    fn name(&self) -> Cow<'static, str> {
        NAME.into()
    }

    fn is_guard(&self) -> bool {
        true
    }
}

impl Callback<ModelRequest> for Outside {
    async fn after(
        &self,
        request: &ModelRequest,
        response: &ModelResponse,
    ) -> Result<Action<ModelResponse>> {
        self.0.hide_answer(request, response)
    }

    async fn on_error(
        &self,
        request: &mut ModelRequest,
        error: &Error,
    ) -> Result<Recovery<ModelResponse>> {
        self.0.hide_error(request, error)
    }

    fn name(&self) -> Cow<'static, str> {
        NAME.into()
    }

    fn is_guard(&self) -> bool {
        true
    }
}

impl Callback<ToolRequest> for Outside {
    async fn after(
        &self,
        request: &ToolRequest,
        response: &ToolResponse,
    ) -> Result<Action<ToolResponse>> {
        self.0.hide_result(request, response)
    }

    async fn on_error(
        &self,
        request: &mut ToolRequest,
        error: &Error,
    ) -> Result<Recovery<ToolResponse>> {
        self.0.hide_error(request, error)
    }

    fn name(&self) -> Cow<'static, str> {
        NAME.into()
    }

    fn is_guard(&self) -> bool {
        true
    }
}

/// The part of a redaction that acts where it is registered. It hides the conversation from
/// everything inside.
struct Input(Redact);

impl Callback<ModelRequest> for Input {
    async fn before(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        let hider = self.0.in_model_call(request)?;
        if self.0.has_input {
            let tools: Arc<[_]> = request.tools().into();
            hider.input(request, &tools);
        }
        Ok(Action::Continue)
    }

    fn name(&self) -> Cow<'static, str> {
        NAME.into()
    }

    fn is_guard(&self) -> bool {
        true
    }
}

/// The part of a redaction that lets approvers read the original arguments of a call.
struct Revealing(Redact);

impl Callback<ToolRequest> for Revealing {
    async fn before(&self, request: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        let redact = self.0.clone();
        Reveals::add(request, move |request, to, arguments| {
            let role = to.role()?;
            if !redact.reveals_to.iter().any(|known| **known == *role) {
                return None;
            }
            // Without its texts the question shows the placeholders.
            let vault = Vault::of(request.context()).ok()?;
            let kinds = redact.rules.kinds();
            hide::value(arguments, &|text| vault.reveal(kinds, text))
        });
        Ok(Action::Continue)
    }

    fn name(&self) -> Cow<'static, str> {
        NAME.into()
    }

    fn is_guard(&self) -> bool {
        true
    }
}

impl From<Redact> for Bundle {
    fn from(redact: Redact) -> Self {
        let outside = Outside(redact.clone());
        let innermost = Innermost(redact.clone());
        let mut bundle = Self::new();
        if !redact.reveals_to.is_empty() {
            bundle = bundle.outermost_tool(Revealing(redact.clone()));
        }
        bundle
            // Whoever writes something into a response or an error, nothing but these sees it.
            .outermost_agent(outside.clone())
            .outermost_model(RedactDeltas(redact.clone()))
            .outermost_model(outside.clone())
            .outermost_tool(outside.clone())
            .on_model(Input(redact))
            .on_model(outside.clone())
            .on_tool(outside)
            // Directly around the targets as well: callbacks and logs inside the agent see only
            // what is hidden.
            .innermost_model(innermost.clone())
            .innermost_tool(innermost)
    }
}
