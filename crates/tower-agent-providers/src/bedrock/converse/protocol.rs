use std::borrow::Cow;

use super::super::address;
use super::super::model_path::model_path;
use super::decoder::ConverseDecoder;
use super::provider::PROVIDER;
use super::request;
use crate::anthropic::describes;
use crate::protocol::{AwsAccess, Call, Framing, Protocol, schema_of};
use tower_agent::error::Result;

/// Bedrock's own protocol for all models that can converse.
#[derive(Clone, Debug)]
pub struct Converse {
    aws: AwsAccess,
}

impl Default for Converse {
    fn default() -> Self {
        Self {
            aws: AwsAccess::new(address::SERVICE),
        }
    }
}

impl AsMut<AwsAccess> for Converse {
    fn as_mut(&mut self) -> &mut AwsAccess {
        &mut self.aws
    }
}

impl Protocol for Converse {
    type Decoder = ConverseDecoder;

    const PROVIDER: &'static str = PROVIDER;
    const BASE_URL: &'static str = address::BASE_URL;
    const BASE_URL_VARIABLE: &'static str = address::BASE_URL_VARIABLE;
    const KEY_VARIABLE: &'static str = address::KEY_VARIABLE;
    const FRAMING: Framing = Framing::AwsEventStream;

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
            "converse-stream"
        } else {
            "converse"
        };
        Ok(model_path(call, operation)?.into())
    }

    fn encode(&self, call: &Call<'_>, body: &mut Vec<u8>) -> Result<()> {
        request::body(call, body)
    }

    // No tool gives the answer: few of the models that can converse accept a call that is forced.
    fn describes_schema(&self, call: &Call<'_>) -> Option<&'static str> {
        schema_of(call).and_then(describes)
    }

    fn decoder(&self, call: &Call<'_>) -> ConverseDecoder {
        ConverseDecoder::new(call.request())
    }
}
