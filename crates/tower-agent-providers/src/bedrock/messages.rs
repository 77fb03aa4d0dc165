use std::borrow::Cow;

use super::address;
use super::model_path::model_path;
use crate::anthropic::{Messages, MessagesDecoder, ServedBy, Thinking};
use crate::protocol::{AwsAccess, Call, Fault, Framing, Protocol};
use tower_agent::error::Result;

/// The Anthropic Messages protocol as Bedrock serves it, by `InvokeModel`.
#[derive(Clone, Debug)]
pub struct BedrockMessages {
    messages: Messages,
    aws: AwsAccess,
}

impl Default for BedrockMessages {
    fn default() -> Self {
        Self {
            messages: Messages::default(),
            aws: AwsAccess::new(address::SERVICE),
        }
    }
}

impl BedrockMessages {
    pub(super) fn set_thinking(&mut self, thinking: Thinking) {
        self.messages.thinking = thinking;
    }
}

impl AsMut<AwsAccess> for BedrockMessages {
    fn as_mut(&mut self) -> &mut AwsAccess {
        &mut self.aws
    }
}

impl Protocol for BedrockMessages {
    type Decoder = MessagesDecoder;

    // The data of one server's messages can be sent to the other.
    const PROVIDER: &'static str = Messages::PROVIDER;
    const TARGET: &'static str = address::TARGET;
    const BASE_URL: &'static str = address::BASE_URL;
    const BASE_URL_VARIABLE: &'static str = address::BASE_URL_VARIABLE;
    const KEY_VARIABLE: &'static str = address::KEY_VARIABLE;
    const FRAMING: Framing = Framing::AwsEventStream;
    const USAGE: &'static [&'static str] = Messages::USAGE;

    fn complete(&mut self, environment: &dyn Fn(&str) -> Option<String>) {
        self.aws.complete(environment);
    }

    fn default_base_url(&self) -> Result<Cow<'static, str>, String> {
        address::base_url(&self.aws)
    }

    fn aws(&self) -> Option<&AwsAccess> {
        Some(&self.aws)
    }

    fn path<'a>(&self, call: &Call<'a>) -> Result<Cow<'a, str>> {
        let operation = if call.is_streamed() {
            "invoke-with-response-stream"
        } else {
            "invoke"
        };
        Ok(model_path(call, operation)?.into())
    }

    fn encode(&self, call: &Call<'_>, body: &mut Vec<u8>) -> Result<()> {
        self.messages.encode_for(ServedBy::Bedrock, call, body)
    }

    fn describes_schema(&self, call: &Call<'_>) -> Option<&'static str> {
        self.messages.describes_schema(call)
    }

    fn decoder(&self, call: &Call<'_>) -> MessagesDecoder {
        self.messages.decoder(call)
    }

    fn fault(&self, body: &[u8]) -> Option<Fault> {
        self.messages.fault(body)
    }
}
