//! Names of `open-telemetry/semantic-conventions-genai`, revision
//! `024a4f944a1291fcb627c9c47da69e79868dd15e`, and of the general conventions 1.44.

/// The instrumentation scope of the metrics.
pub(crate) const SCOPE: &str = "tower-agent-otel";

pub(crate) mod operation {
    pub(crate) const CHAT: &str = "chat";
    pub(crate) const EXECUTE_TOOL: &str = "execute_tool";
    pub(crate) const INVOKE_AGENT: &str = "invoke_agent";
    pub(crate) const INVOKE_WORKFLOW: &str = "invoke_workflow";
}

pub(crate) mod attribute {
    // Of this crate: the conventions have no attributes for them.
    pub(crate) const ANSWERED_BY: &str = "tower_agent.answered_by";
    pub(crate) const ANSWERED_WITHOUT_MODEL: &str = "tower_agent.answered_without_model";
    pub(crate) const RUN_ID: &str = "tower_agent.run.id";
    pub(crate) const WAITING: &str = "tower_agent.waiting";
    pub(crate) const AGENT_DESCRIPTION: &str = "gen_ai.agent.description";
    pub(crate) const AGENT_NAME: &str = "gen_ai.agent.name";
    pub(crate) const CONVERSATION_ID: &str = "gen_ai.conversation.id";
    pub(crate) const ENDUSER_ID: &str = "enduser.id";
    pub(crate) const ERROR_TYPE: &str = "error.type";
    pub(crate) const INPUT_MESSAGES: &str = "gen_ai.input.messages";
    pub(crate) const OPERATION_NAME: &str = "gen_ai.operation.name";
    pub(crate) const OUTPUT_MESSAGES: &str = "gen_ai.output.messages";
    pub(crate) const OUTPUT_TYPE: &str = "gen_ai.output.type";
    pub(crate) const PROVIDER_NAME: &str = "gen_ai.provider.name";
    pub(crate) const REQUEST_MAX_TOKENS: &str = "gen_ai.request.max_tokens";
    pub(crate) const REQUEST_MODEL: &str = "gen_ai.request.model";
    pub(crate) const REQUEST_REASONING_LEVEL: &str = "gen_ai.request.reasoning.level";
    pub(crate) const REQUEST_SEED: &str = "gen_ai.request.seed";
    pub(crate) const REQUEST_STOP_SEQUENCES: &str = "gen_ai.request.stop_sequences";
    pub(crate) const REQUEST_STREAM: &str = "gen_ai.request.stream";
    pub(crate) const REQUEST_TEMPERATURE: &str = "gen_ai.request.temperature";
    pub(crate) const REQUEST_TOP_P: &str = "gen_ai.request.top_p";
    pub(crate) const RESPONSE_FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
    pub(crate) const RESPONSE_ID: &str = "gen_ai.response.id";
    pub(crate) const RESPONSE_MODEL: &str = "gen_ai.response.model";
    pub(crate) const RESPONSE_TIME_TO_FIRST_CHUNK: &str = "gen_ai.response.time_to_first_chunk";
    pub(crate) const SERVER_ADDRESS: &str = "server.address";
    pub(crate) const SERVER_PORT: &str = "server.port";
    pub(crate) const SYSTEM_INSTRUCTIONS: &str = "gen_ai.system_instructions";
    pub(crate) const TOKEN_MODALITY: &str = "gen_ai.token.modality";
    pub(crate) const TOOL_CALL_ARGUMENTS: &str = "gen_ai.tool.call.arguments";
    pub(crate) const TOOL_CALL_ID: &str = "gen_ai.tool.call.id";
    pub(crate) const TOOL_CALL_RESULT: &str = "gen_ai.tool.call.result";
    pub(crate) const TOOL_DEFINITIONS: &str = "gen_ai.tool.definitions";
    pub(crate) const TOOL_DESCRIPTION: &str = "gen_ai.tool.description";
    pub(crate) const TOOL_NAME: &str = "gen_ai.tool.name";
    pub(crate) const TOOL_TYPE: &str = "gen_ai.tool.type";
    pub(crate) const USAGE_CACHE_READ: &str = "gen_ai.usage.cache_read.input_tokens";
    pub(crate) const USAGE_CACHE_WRITE: &str = "gen_ai.usage.cache_write.input_tokens";
    pub(crate) const USAGE_INPUT: &str = "gen_ai.usage.input_tokens";
    pub(crate) const USAGE_OUTPUT: &str = "gen_ai.usage.output_tokens";
    pub(crate) const USAGE_REASONING: &str = "gen_ai.usage.reasoning.output_tokens";
    pub(crate) const WORKFLOW_NAME: &str = "gen_ai.workflow.name";
}

/// Names of the OpenInference conventions, by which some backends list traces.
pub(crate) mod openinference {
    pub(crate) const INPUT_VALUE: &str = "input.value";
    pub(crate) const OUTPUT_VALUE: &str = "output.value";
    pub(crate) const TOKENS: [&str; 3] = [
        "llm.token_count.prompt",
        "llm.token_count.completion",
        "llm.token_count.total",
    ];
}

pub(crate) mod metric {
    pub(crate) const EXECUTE_TOOL_DURATION: &str = "gen_ai.execute_tool.duration";
    pub(crate) const INFERENCE_DURATION: &str = "gen_ai.client.inference.duration";
    pub(crate) const INFERENCE_INPUT_TOKENS: &str =
        "gen_ai.client.inference.operation.input_tokens";
    pub(crate) const INFERENCE_OUTPUT_TOKENS: &str =
        "gen_ai.client.inference.operation.output_tokens";
    pub(crate) const INVOKE_AGENT_DURATION: &str = "gen_ai.invoke_agent.duration";
    pub(crate) const INVOKE_AGENT_INFERENCE_CALLS: &str = "gen_ai.invoke_agent.inference_calls";
    pub(crate) const INVOKE_AGENT_TOOL_CALLS: &str = "gen_ai.invoke_agent.tool_calls";
    pub(crate) const INVOKE_WORKFLOW_DURATION: &str = "gen_ai.invoke_workflow.duration";
    pub(crate) const TIME_PER_OUTPUT_CHUNK: &str = "gen_ai.client.inference.time_per_output_chunk";
    pub(crate) const TIME_TO_FIRST_CHUNK: &str = "gen_ai.client.inference.time_to_first_chunk";
    pub(crate) const USAGE_CACHE_READ: &str =
        "gen_ai.client.inference.usage.cache_read.input_tokens";
    pub(crate) const USAGE_CACHE_WRITE: &str =
        "gen_ai.client.inference.usage.cache_write.input_tokens";
    pub(crate) const USAGE_INPUT: &str = "gen_ai.client.inference.usage.input_tokens";
    pub(crate) const USAGE_OUTPUT: &str = "gen_ai.client.inference.usage.output_tokens";
    pub(crate) const USAGE_REASONING: &str =
        "gen_ai.client.inference.usage.reasoning.output_tokens";
}

pub(crate) mod event {
    pub(crate) const CLIENT_EXCEPTION: &str = "gen_ai.client.operation.exception";
    pub(crate) const TOOL_EXCEPTION: &str = "gen_ai.execute_tool.exception";
}

/// Emits the event of an exception; `None` is left out.
macro_rules! exception {
    ($name:expr, $type:expr, $message:expr) => {
        tracing::event!(
            name: $name,
            target: "tower_agent_otel",
            tracing::Level::WARN,
            { "exception.type" = $type, "exception.message" = $message }
        )
    };
}
pub(crate) use exception;

/// Values of `error.type` besides the codes of error kinds.
pub(crate) mod error_type {
    pub(crate) const CANCELLED: &str = "cancelled";
    pub(crate) const OTHER: &str = "_OTHER";
}

/// The modality of tokens. The core's `Usage` does not distinguish modalities.
pub(crate) const UNKNOWN_MODALITY: &str = "unknown";

/// The provider of a model that does not report one.
pub(crate) const UNKNOWN_PROVIDER: &str = "unknown";

/// The type of the tools that an agent executes itself.
pub(crate) const FUNCTION: &str = "function";

/// The finish reason of a call that ended without a response.
pub(crate) const NO_RESPONSE: &str = "error";

/// Returns the conventions' name of a provider, which may have several protocols.
pub(crate) fn provider(name: &'static str) -> &'static str {
    match name {
        "bedrock" => "aws.bedrock",
        "gemini" | "gemini_interactions" => "gcp.gemini",
        "mistral" => "mistral_ai",
        "openai_responses" => "openai",
        "vertex_ai" => "gcp.vertex_ai",
        "xai" => "x_ai",
        other => other,
    }
}
