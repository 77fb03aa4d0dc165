use crate::estimate;
use tower_agent::call::Request;
use tower_agent::stream::DeltaSender;
use tower_agent::{AgentRequest, ModelRequest, ToolRequest};

/// A call whose tokens can be limited.
///
/// Implement it for a call of your own; the defaults are for a call without tokens.
///
/// ```
/// use tower_agent::call::CallKind;
/// use tower_agent::{Request, RunContext};
/// use tower_agent_middleware::rate_limit::Metered;
///
/// #[derive(Clone)]
/// struct Embed {
///     text: String,
///     context: RunContext,
/// }
/// # impl Request for Embed {
/// #     type Response = Vec<f32>;
/// #     const CALL: CallKind = CallKind::Other("embed");
/// #     fn context(&self) -> &RunContext { &self.context }
/// # }
///
/// impl Metered for Embed {
///     fn prompt_tokens(&self) -> u64 {
///         self.text.len() as u64 / 4
///     }
///
///     fn max_output_tokens(&self) -> Option<u64> {
///         Some(0)
///     }
/// }
/// ```
pub trait Metered: Request {
    /// Returns an estimate of the tokens of the request. Defaults to none.
    fn prompt_tokens(&self) -> u64 {
        0
    }

    /// Returns the most tokens that the response can have, if the request says so. Defaults to none
    /// at all.
    fn max_output_tokens(&self) -> Option<u64> {
        Some(0)
    }

    /// Returns the tokens received so far by attempts that did not finish. Defaults to none.
    fn unfinished_tokens(&self) -> u64 {
        0
    }
}

impl Metered for ModelRequest {
    fn prompt_tokens(&self) -> u64 {
        estimate::prompt_tokens(self)
    }

    fn max_output_tokens(&self) -> Option<u64> {
        self.settings().max_tokens.map(u64::from)
    }

    fn unfinished_tokens(&self) -> u64 {
        let attempts = self.delta_sender().map(DeltaSender::unfinished);
        let received = attempts.iter().flatten().map(|attempt| {
            attempt
                .usage
                .output_tokens
                .max(estimate::tokens(attempt.text_len))
        });
        received.sum()
    }
}

impl Metered for ToolRequest {}

impl Metered for AgentRequest {}
