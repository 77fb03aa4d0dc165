use std::future::Future;

use super::key::{FoundNames, Identity};
use tower_agent::call::{Origin, Request};
use tower_agent::error::Result;
use tower_agent::message::{Message, Metadata};
use tower_agent::model::FinishReason;
use tower_agent::stream::{self, DeltaSender, EventStream, Streamed};
use tower_agent::tool::Effect;
use tower_agent::{ModelRequest, ModelResponse, ToolRequest, ToolResponse};

/// The number of events that may wait for those who follow a call.
const CAPACITY: usize = 16;

/// A call whose response can be cached: that of a model, or of a tool.
pub trait Cacheable: Replay {}

impl Cacheable for ModelRequest {}

impl Cacheable for ToolRequest {}

/// The parts of a call that a cache needs.
pub trait Replay: Request {
    /// Adds everything that the response depends on, and returns whether it may be cached.
    fn identify(&self, identity: &mut Identity<'_>) -> Result<bool>;

    /// Looks for names of the conversation in a response.
    fn find_names(response: &Self::Response, found: &mut FoundNames<'_>) -> Result<()>;

    /// Returns the request with a sink of its own and the events there, if it has a sink.
    fn watched(self) -> (Self, Option<EventStream>);

    /// Returns the sink of the request.
    fn sink(&self) -> Option<&DeltaSender>;

    /// Returns whether a response may be replayed later.
    fn is_kept(response: &Self::Response) -> bool;

    /// Returns the response of this call from that of another, as this call has streamed it or will
    /// stream it here. Only one of them `pays` for it.
    fn renew(
        &self,
        response: &Self::Response,
        streamed: Option<Streamed>,
        pays: bool,
    ) -> impl Future<Output = Result<Self::Response>> + Send;
}

impl Replay for ModelRequest {
    fn identify(&self, identity: &mut Identity<'_>) -> Result<bool> {
        identity.add("model")?;
        identity.add(&self.instructions())?;
        identity.add(&self.messages().len())?;
        for message in self.messages() {
            // Without its id, which is another in each conversation.
            identity.add(&(message.role(), message.parts(), message.provider()))?;
        }
        identity.add(self.tools())?;
        identity.add(self.settings())?;
        Ok(true)
    }

    fn find_names(response: &ModelResponse, found: &mut FoundNames<'_>) -> Result<()> {
        let message = response.message();
        found.look(&(message.parts(), message.provider()))
    }

    fn watched(self) -> (Self, Option<EventStream>) {
        if self.delta_sender().is_none() {
            return (self, None);
        }
        let (sink, events) = stream::channel(CAPACITY);
        (self.with_delta_sender(sink), Some(events))
    }

    fn sink(&self) -> Option<&DeltaSender> {
        self.delta_sender()
    }

    fn is_kept(response: &ModelResponse) -> bool {
        let is_whole = matches!(
            response.finish_reason(),
            FinishReason::Stop | FinishReason::ToolCalls
        );
        // A callback's own response is not the model's, and may not hold the next time.
        is_whole && !response.metadata().is_cut && response.origin() == Origin::Service
    }

    async fn renew(
        &self,
        response: &ModelResponse,
        streamed: Option<Streamed>,
        pays: bool,
    ) -> Result<ModelResponse> {
        let message = without_id(response.message());
        let renewed = match streamed {
            Some(streamed) => {
                let id = streamed.message.id().cloned();
                let mut renewed = ModelResponse::from(streamed);
                // With the provider's data, which deltas do not have.
                *renewed.message_mut() = match id {
                    Some(id) => message.with_id(id),
                    None => message,
                };
                renewed
            }
            None => {
                let renewed = ModelResponse::new(message);
                renewed.streamed_to(self.delta_sender()).await?
            }
        };
        let mut renewed = renewed.with_finish_reason(response.finish_reason().clone());
        if pays {
            renewed = renewed
                .with_metadata(response.metadata().clone())
                .with_usage(response.usage());
            self.mark(&mut renewed, None, response.origin());
        } else {
            renewed = renewed.with_metadata(without_cost(response.metadata()));
            self.mark(&mut renewed, None, Origin::Replay);
        }
        Ok(renewed)
    }
}

/// Returns the metadata of a replay: without the cost, and without limits that were those of then.
fn without_cost(metadata: &Metadata) -> Metadata {
    let mut replayed = Metadata::default();
    replayed.status = metadata.status;
    replayed.request_id.clone_from(&metadata.request_id);
    replayed.response_id.clone_from(&metadata.response_id);
    replayed.model.clone_from(&metadata.model);
    replayed
}

/// Returns the message without the id that another conversation has given it.
fn without_id(message: &Message) -> Message {
    let mut copy = Message::new(message.role(), message.parts().iter().cloned());
    if !message.provider().is_empty() {
        *copy.provider_mut() = message.provider().clone();
    }
    copy
}

impl Replay for ToolRequest {
    fn identify(&self, identity: &mut Identity<'_>) -> Result<bool> {
        // The effect of a tool would be missing, even if a second one did no harm.
        let declaration = self.declaration();
        if declaration.is_none_or(|tool| tool.effect() != Effect::Pure) {
            return Ok(false);
        }
        identity.add("tool")?;
        identity.add(self.name())?;
        identity.add(self.arguments())?;
        Ok(true)
    }

    fn find_names(response: &ToolResponse, found: &mut FoundNames<'_>) -> Result<()> {
        found.look(response.value())?;
        found.look(&response.parts())
    }

    fn watched(self) -> (Self, Option<EventStream>) {
        (self, None)
    }

    fn sink(&self) -> Option<&DeltaSender> {
        None
    }

    fn is_kept(response: &ToolResponse) -> bool {
        !response.is_error() && response.origin() == Origin::Service
    }

    async fn renew(
        &self,
        response: &ToolResponse,
        _: Option<Streamed>,
        pays: bool,
    ) -> Result<ToolResponse> {
        let mut renewed = response.clone();
        if !pays {
            self.mark(&mut renewed, None, Origin::Replay);
        }
        Ok(renewed)
    }
}
