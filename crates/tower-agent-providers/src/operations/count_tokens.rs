use tower_agent::call::CallKind;
use tower_agent::message::Metadata;
use tower_agent::{ModelRequest, Request, RunContext};

/// A call that counts the tokens of a prompt, without a call of the model.
///
/// The provider counts a whole prompt, and each count is a call. The function of
/// `tower_agent_middleware`'s `ContextWindow` counts one message at a time, for each request:
/// measure the factor of its estimate with this call.
#[derive(Clone, Debug)]
pub struct CountTokens {
    request: ModelRequest,
}

impl CountTokens {
    /// Creates a call for the prompt of this request: its instructions, messages and tools.
    #[must_use]
    pub fn new(request: ModelRequest) -> Self {
        Self {
            request: request.with_delta_sender(None),
        }
    }

    /// Returns the request whose tokens are counted.
    pub fn request(&self) -> &ModelRequest {
        &self.request
    }
}

impl Request for CountTokens {
    type Response = TokenCount;

    const CALL: CallKind = CallKind::Other("count_tokens");

    fn context(&self) -> &RunContext {
        self.request.context()
    }
}

/// The tokens of a prompt.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TokenCount {
    /// The tokens of the prompt, as the model would read it.
    pub input_tokens: u64,
    /// Further fields of the provider's response.
    pub metadata: Metadata,
}

impl TokenCount {
    /// Creates a count.
    #[must_use]
    pub fn new(input_tokens: u64, metadata: Metadata) -> Self {
        Self {
            input_tokens,
            metadata,
        }
    }
}
