use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

use super::hide::{self, Replacements};
use super::mapper::RedactMapper;
use super::vault::Vault;
use super::{Hider, Redact, Replacement, UndecidedPlaceholder, UnknownPlaceholder};
use crate::flow::{is_guarded, note_shortened, note_shortened_answer, note_shortened_response};
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

impl Redact {
    fn in_run(&self, context: &RunContext) -> Result<Hider> {
        let vault = if self.is_numbered() {
            Some(Vault::of(context, self.rules.kinds())?)
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

    /// Returns the callbacks for a model that is called outside an agent, which are a layer. They
    /// hide what is inside that layer.
    ///
    /// In an agent, pass the redaction itself to
    /// [`global_callbacks`](tower_agent::AgentBuilder::global_callbacks).
    #[must_use]
    pub fn around_model(&self) -> Callbacks<ModelRequest> {
        Callbacks::new().with(self.part("Redact(at model)", Self::before_model))
    }

    /// Returns the callbacks for a tool that is called outside an agent, as
    /// [`around_model`](Self::around_model) does for a model.
    #[must_use]
    pub fn around_tool(&self) -> Callbacks<ToolRequest> {
        Callbacks::new().with(self.part("Redact(at tool)", Self::before_tool))
    }

    /// Returns the part of the redaction that does this before a call. Its name says what is
    /// hidden there, since several parts are around one call.
    fn part<R>(&self, name: &'static str, act: fn(&Self, &mut R) -> Result<()>) -> RedactPart<R> {
        let redact = self.clone();
        RedactPart { redact, name, act }
    }

    /// Reserves the placeholders of a conversation: a resumed run may start with a tool call,
    /// before any model call.
    fn before_agent(&self, request: &mut AgentRequest) -> Result<()> {
        request.extensions_mut().note_hiding();
        self.in_run(request.context())?.reserve(request.messages());
        Ok(())
    }

    /// Hides deltas from everything outside the agent: also those of a model that a layer calls
    /// instead, and those that the mappers of other callbacks write.
    fn hide_deltas(&self, request: &mut ModelRequest) -> Result<()> {
        let hider = self.in_run(request.context())?;
        let tools: Arc<[_]> = request.tools().into();
        request.extensions_mut().note_hiding();
        request.extensions_mut().insert(HidesDeltas(self.clone()));
        request.map_deltas(move || RedactMapper::new(hider.clone(), tools.clone()));
        Ok(())
    }

    /// Hides the conversation from everything inside.
    fn hide_input(&self, request: &mut ModelRequest) -> Result<()> {
        let hider = self.in_model_call(request)?;
        if self.has_input {
            let tools: Arc<[_]> = request.tools().into();
            hider.input(request, &tools);
        }
        Ok(())
    }

    /// Acts directly before the model.
    fn before_model(&self, request: &mut ModelRequest) -> Result<()> {
        let hider = self.in_model_call(request)?;
        let tools: Arc<[_]> = request.tools().into();
        if self.has_input {
            hider.input(request, &tools);
        }
        request.extensions_mut().note_hidden_output();
        let mappers = request.delta_sender().map_or(0, DeltaSender::mappers);
        let outside = request.extensions().get::<HidesDeltas>();
        let is_hidden_outside = outside.is_some_and(|HidesDeltas(by)| self.is_same(by));
        // With one, no mapper of another callback could see the deltas between here and there.
        if mappers != 1 || !is_hidden_outside {
            // The response that is hidden afterwards has been streamed by then.
            request.map_deltas(move || RedactMapper::new(hider.clone(), tools.clone()));
        }
        Ok(())
    }

    /// Acts directly before the tool.
    fn before_tool(&self, request: &mut ToolRequest) -> Result<()> {
        match &self.replacement {
            Replacement::Numbered => self.restore(request)?,
            Replacement::Kind => self.check_kinds(request)?,
            // What the function returns is for whoever receives it.
            Replacement::Function(_) => {}
        }
        request.extensions_mut().note_hidden_output();
        Ok(())
    }

    /// Fails if the arguments have a placeholder without a number, which nothing can restore.
    fn check_kinds(&self, request: &ToolRequest) -> Result<()> {
        let is_found = Cell::new(false);
        // Nothing is replaced: this only visits every text.
        let look = |text: &str| {
            // Few arguments have a bracket.
            if text.contains('[') {
                let mut kinds = self.rules.kinds().iter();
                let is_in = kinds.any(|kind| text.contains(&format!("[{kind}]")));
                is_found.set(is_found.get() || is_in);
            }
            None
        };
        drop(hide::value(request.arguments(), &look));
        if is_found.get() {
            return Err(undecided(request));
        }
        Ok(())
    }

    /// Lets approvers read the original arguments of a call.
    fn reveal(&self, request: &mut ToolRequest) -> Result<()> {
        request.extensions_mut().note_hiding();
        if self.reveals_to.is_empty() {
            return Ok(());
        }
        let redact = self.clone();
        Reveals::add(request, move |request, to, arguments| {
            let role = to.role()?;
            if !redact.reveals_to.iter().any(|known| **known == *role) {
                return None;
            }
            // Without its texts the question shows the placeholders.
            let kinds = redact.rules.kinds();
            let vault = Vault::of(request.context(), kinds).ok()?;
            hide::value(arguments, &|text| vault.reveal(kinds, text))
        });
        Ok(())
    }

    /// Fails if a placeholder has no original text; otherwise restores the originals if the tool
    /// may receive them.
    fn restore(&self, request: &mut ToolRequest) -> Result<()> {
        let vault = Vault::of(request.context(), self.rules.kinds())?;
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
        let Some(restored) = restored else {
            return Ok(());
        };
        let Some(restore_when) = &self.restore_when else {
            return Err(undecided(request));
        };
        if restore_when(request) {
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
            keeps_arguments: self.redact.keeps_arguments,
        }
    }

    /// Redacts every text. The names of tools are left to the call of the model that made them up.
    fn any_change(&self) -> Replacements<'_> {
        Replacements {
            text: Box::new(|text| self.text(text)),
            name: Box::new(|_| None),
            keeps_arguments: self.redact.keeps_arguments,
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
            keeps_arguments: self.redact.keeps_arguments,
        };
        for message in messages {
            // The result is dropped: this only visits every text.
            drop(hide::message(message, &look));
        }
    }
}

/// The error of a call that would be made with a placeholder although nobody has wanted that.
fn undecided(request: &ToolRequest) -> Error {
    let undecided = UndecidedPlaceholder {
        tool: request.name().to_owned(),
    };
    // The model reads it as well, and can do nothing about it.
    let context = request.context();
    tracing::warn!(
        run_id = context.run_id(),
        agent = context.path(),
        "{undecided}"
    );
    Error::new(ErrorKind::Denied, undecided.to_string()).with_source(undecided)
}

/// Marks a call whose deltas a redaction hides outside everything else.
struct HidesDeltas(Redact);

/// A call whose responses are redacted.
trait Hidden: Request {
    /// Returns the response without what is found in it, if something is.
    fn hide(&self, response: &Self::Response, hider: &Hider) -> Option<Self::Response>;
}

impl Hidden for AgentRequest {
    fn hide(&self, response: &AgentResponse, hider: &Hider) -> Option<AgentResponse> {
        let change = hider.any_change();
        response.map_messages(|message| {
            let hidden = hide::message(message, &change)?;
            note_shortened_answer(self, [(message.clone(), hidden.clone())]);
            Some(hidden)
        })
    }
}

impl Hidden for ModelRequest {
    fn hide(&self, response: &ModelResponse, hider: &Hider) -> Option<ModelResponse> {
        let message = hide::message(response.message(), &hider.change(self.tools()))?;
        note_shortened_response(self, response.message(), &message);
        let mut response = response.clone();
        *response.message_mut() = message;
        Some(response)
    }
}

impl Hidden for ToolRequest {
    fn hide(&self, response: &ToolResponse, hider: &Hider) -> Option<ToolResponse> {
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
        hidden
    }
}

/// A part of a redaction: acts before a call, and hides what leaves it, its response or its error,
/// from everything outside.
struct RedactPart<R> {
    redact: Redact,
    name: &'static str,
    act: fn(&Redact, &mut R) -> Result<()>,
}

impl<R: Hidden> Callback<R> for RedactPart<R> {
    async fn before(&self, request: &mut R) -> Result<Action<R::Response>> {
        (self.act)(&self.redact, request)?;
        Ok(Action::Continue)
    }

    async fn after(&self, request: &R, response: &R::Response) -> Result<Action<R::Response>> {
        let hider = self.redact.in_run(request.context())?;
        let hidden = request.hide(response, &hider);
        Ok(hidden.map_or(Action::Continue, Action::Respond))
    }

    async fn on_error(&self, request: &mut R, error: &Error) -> Result<Recovery<R::Response>> {
        let hidden = self.redact.in_run(request.context())?.error(error);
        Ok(hidden.map_or(Recovery::Propagate, Recovery::Fail))
    }

    fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed(self.name)
    }

    fn is_guard(&self) -> bool {
        true
    }
}

impl From<Redact> for Bundle {
    fn from(redact: Redact) -> Self {
        // What is outside it matters only if it hides what the model is sent.
        let around_model = if redact.has_input {
            "Redact(prompt)"
        } else {
            "Redact(response)"
        };
        Self::new()
            // Whoever writes something into a response or an error, nothing but these sees it.
            .outermost_agent(redact.part("Redact(answer)", Redact::before_agent))
            .outermost_model(redact.part("Redact(answer)", Redact::hide_deltas))
            .outermost_tool(redact.part("Redact(result)", Redact::reveal))
            .on_model(redact.part(around_model, Redact::hide_input))
            .on_tool(redact.part("Redact(result inside)", |_, _| Ok(())))
            // Directly around the targets as well: callbacks and logs inside the agent see only
            // what is hidden.
            .innermost_model(redact.part("Redact(at model)", Redact::before_model))
            .innermost_tool(redact.part("Redact(at tool)", Redact::before_tool))
    }
}
