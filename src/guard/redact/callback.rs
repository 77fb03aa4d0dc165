use super::mapper::RedactMapper;
use super::vault::Vault;
use super::{Hider, Redact, hide};
use crate::agent::{AgentRequest, AgentResponse};
use crate::callback::{Action, Bundle, Callback, Recovery};
use crate::context::RunContext;
use crate::error::{Error, Result};
use crate::message::{Message, Messages, Part, Role};
use crate::model::{ModelRequest, ModelResponse};
use crate::request::Request;
use crate::tool::{ToolRequest, ToolResponse};

impl Redact {
    fn in_run(&self, context: &RunContext) -> Result<Hider> {
        let vault = match self.is_numbered() {
            true => Some(Vault::of(context)?),
            false => None,
        };
        Ok(Hider { redact: self.clone(), vault })
    }
}

impl Hider {
    fn messages(&self, messages: &mut Messages) {
        for index in 0..messages.len() {
            let hidden = messages
                .get(index)
                .filter(|message| message.role() != Role::System)
                .and_then(|message| hide::message(message, &|text| self.text(text)));
            if let (Some(hidden), Some(message)) = (hidden, messages.get_mut(index)) {
                *message = hidden;
            }
        }
    }

    /// Keeps away from the placeholders that stand in a conversation.
    fn reserve(&self, messages: &Messages) {
        let Some(vault) = &self.vault else { return };
        let reserve = |text: &str| {
            vault.reserve(self.redact.rules.kinds(), text);
            None
        };
        for message in messages {
            // Nothing is changed: it only looks at every text.
            drop::<Option<Message>>(hide::message(message, &reserve));
        }
    }

    fn error(&self, error: &Error) -> Option<Error> {
        let message = self.text(error.message())?;
        let hidden = Error::new(error.kind(), message)
            .with_retryable(error.is_retryable())
            .with_metadata(error.metadata().clone());
        Some(match error.retry_after() {
            Some(after) => hidden.with_retry_after(after),
            None => hidden,
        })
    }

    fn recovery<T>(&self, error: &Error) -> Recovery<T> {
        self.error(error).map_or(Recovery::Propagate, Recovery::Fail)
    }
}

/// The first call of a run that resumes may be one of a tool, of which nobody asks a model.
#[diagnostic::do_not_recommend]
impl Callback<AgentRequest> for Redact {
    async fn before(&self, request: &mut AgentRequest) -> Result<Action<AgentResponse>> {
        self.in_run(request.context())?.reserve(request.messages());
        Ok(Action::Continue)
    }

    fn is_guard(&self) -> bool {
        true
    }
}

#[diagnostic::do_not_recommend]
impl Callback<ModelRequest> for Redact {
    async fn before(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        let hider = self.in_run(request.context())?;
        if request.context().iteration() == 0 {
            hider.reserve(request.messages());
        }
        if self.has_input {
            hider.messages(request.messages_mut());
        }
        request.map_deltas(move || RedactMapper::new(hider.clone()));
        Ok(Action::Continue)
    }

    async fn after(
        &self,
        request: &ModelRequest,
        response: &ModelResponse,
    ) -> Result<Action<ModelResponse>> {
        let hider = self.in_run(request.context())?;
        let hidden = hide::message(response.message(), &|text| hider.text(text));
        Ok(hidden.map_or(Action::Continue, |message| {
            let mut response = response.clone();
            *response.message_mut() = message;
            Action::Respond(response)
        }))
    }

    async fn on_error(
        &self,
        request: &mut ModelRequest,
        error: &Error,
    ) -> Result<Recovery<ModelResponse>> {
        Ok(self.in_run(request.context())?.recovery(error))
    }

    fn is_guard(&self) -> bool {
        true
    }
}

#[diagnostic::do_not_recommend]
impl Callback<ToolRequest> for Redact {
    async fn before(&self, request: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        if let Some(when) = &self.restore_when
            && when(request)
        {
            let vault = Vault::of(request.context())?;
            let restored = hide::value(request.arguments(), &|text| vault.restore(text));
            if let Some(restored) = restored {
                *request.arguments_mut() = restored;
            }
        }
        Ok(Action::Continue)
    }

    async fn after(
        &self,
        request: &ToolRequest,
        response: &ToolResponse,
    ) -> Result<Action<ToolResponse>> {
        let hider = self.in_run(request.context())?;
        let change = |text: &str| hider.text(text);
        let mut hidden = None;
        if let Some(value) = hide::value(response.value(), &change) {
            *hidden.get_or_insert_with(|| response.clone()).value_mut() = value;
        }
        // What the model is shown is the value, unless it is something else.
        let shown = response.parts();
        if shown != [Part::from(response.value())]
            && let Some(shown) = hide::parts(&shown, &change)
        {
            hidden = Some(hidden.unwrap_or_else(|| response.clone()).shown(shown));
        }
        Ok(hidden.map_or(Action::Continue, Action::Respond))
    }

    async fn on_error(
        &self,
        request: &mut ToolRequest,
        error: &Error,
    ) -> Result<Recovery<ToolResponse>> {
        Ok(self.in_run(request.context())?.recovery(error))
    }

    fn is_guard(&self) -> bool {
        true
    }
}

impl From<Redact> for Bundle {
    fn from(redact: Redact) -> Self {
        Self::new().on_agent(redact.clone()).on_model(redact.clone()).on_tool(redact)
    }
}
