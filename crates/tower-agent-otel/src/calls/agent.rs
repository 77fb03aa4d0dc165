use std::sync::Arc;

use opentelemetry::trace::SpanRef;
use opentelemetry::{Array, Context, KeyValue, StringValue, Value};
use tower_agent::{AgentRequest, AgentResponse, Message, Request, Role};
use tracing::{Span, info_span};

use super::caller::Caller;
use crate::content;
use crate::metrics::record;
use crate::names::{attribute, openinference, operation};
use crate::recorded::{Ending, Recorded};
use crate::telemetry::Telemetry;

pub(crate) struct AgentRecord {
    name: String,
    is_team: bool,
    caller: Arc<Caller>,
}

impl Recorded for AgentRequest {
    type Record = AgentRecord;

    fn span(request: &Self, telemetry: &Telemetry) -> Span {
        let context = request.context();
        let name = context.agent();
        if request.is_for_team() {
            info_span!(
                "invoke_workflow",
                otel.name = format!("{} {name}", operation::INVOKE_WORKFLOW),
                otel.kind = "internal",
                { attribute::OPERATION_NAME } = operation::INVOKE_WORKFLOW,
                { attribute::WORKFLOW_NAME } = name,
                { attribute::CONVERSATION_ID } = telemetry.conversation_id(context),
                { attribute::RUN_ID } = context.run_id(),
                { attribute::ENDUSER_ID } = telemetry.user_id(context),
            )
        } else {
            info_span!(
                "invoke_agent",
                otel.name = format!("{} {name}", operation::INVOKE_AGENT),
                otel.kind = "internal",
                { attribute::OPERATION_NAME } = operation::INVOKE_AGENT,
                { attribute::AGENT_NAME } = name,
                { attribute::CONVERSATION_ID } = telemetry.conversation_id(context),
                { attribute::RUN_ID } = context.run_id(),
                { attribute::ENDUSER_ID } = telemetry.user_id(context),
            )
        }
    }

    fn begin(
        request: &mut Self,
        _: &Span,
        _: &Arc<Telemetry>,
        context: &mut Context,
    ) -> AgentRecord {
        AgentRecord {
            name: request.context().agent().to_owned(),
            is_team: request.is_for_team(),
            caller: Caller::enter(context),
        }
    }

    fn describe(request: &Self, _: &Telemetry, span: &SpanRef<'_>) {
        let description = request.agent_description();
        if !request.is_for_team() && !description.is_empty() {
            let description = description.to_owned();
            span.set_attribute(KeyValue::new(attribute::AGENT_DESCRIPTION, description));
        }
    }

    fn error_type(_: &AgentResponse) -> Option<&'static str> {
        None
    }

    fn is_waiting(response: &AgentResponse) -> bool {
        !response.interrupts().is_empty()
    }

    fn end(
        call: &mut AgentRecord,
        response: Option<&AgentResponse>,
        ending: &Ending,
        telemetry: &Telemetry,
        span: Option<&SpanRef<'_>>,
    ) {
        if let Some(span) = span {
            if !call.is_team {
                span.set_attributes(finish_reason(&call.caller));
                span.set_attributes(response.map(usage).into_iter().flatten());
            }
            if telemetry.has_content {
                span.set_attributes(conversation(&call.caller, response));
            }
        }
        if !telemetry.is_metered() {
            return;
        }
        let metrics = &telemetry.metrics;
        let name = std::mem::take(&mut call.name);
        let (duration, key) = if call.is_team {
            (&metrics.workflow_duration, attribute::WORKFLOW_NAME)
        } else {
            (&metrics.agent_duration, attribute::AGENT_NAME)
        };
        let mut attributes = vec![KeyValue::new(key, name)];
        // The members of a team make its calls.
        if !call.is_team {
            let caller = &call.caller;
            metrics
                .inference_calls
                .record(caller.inference_calls(), &attributes);
            metrics.tool_calls.record(caller.tool_calls(), &attributes);
        }
        if let Some(error_type) = ending.error_type {
            attributes.push(KeyValue::new(attribute::ERROR_TYPE, error_type));
        }
        record(duration, ending.duration, &attributes);
    }

    /// Emits nothing: the model or tool call that failed has emitted the event already.
    fn emit_exception(_: &'static str, _: Option<&str>) {}
}

/// Returns the finish reason of the last model call, which is an agent's as well. The model is not:
/// an agent may call several.
fn finish_reason(caller: &Caller) -> Option<KeyValue> {
    let reason = caller.finish_reason()?;
    let reasons = Value::Array(Array::String(vec![StringValue::from(reason)]));
    Some(KeyValue::new(attribute::RESPONSE_FINISH_REASONS, reasons))
}

/// Returns the tokens of an agent, its sub-agents included. The conventions list those of a cache
/// for an agent elsewhere only; backends read what a whole run has saved from the outermost span.
fn usage(response: &AgentResponse) -> Vec<KeyValue> {
    let usage = response.usage();
    let mut attributes = Vec::new();
    for (key, tokens) in [
        (attribute::USAGE_INPUT, usage.input_tokens),
        (attribute::USAGE_OUTPUT, usage.output_tokens),
        (attribute::USAGE_CACHE_READ, usage.cached_input_tokens),
        (attribute::USAGE_CACHE_WRITE, usage.cache_write_tokens),
    ] {
        let tokens = i64::try_from(tokens).unwrap_or(i64::MAX);
        attributes.push(KeyValue::new(key, tokens));
    }
    // Backends of these conventions add up the tokens of all spans of a trace, and take those of
    // the attributes above where a span has no others: they would count each token twice. No
    // integers: backends that know both conventions would take them for the tokens of the agent.
    attributes.extend(openinference::TOKENS.map(|key| KeyValue::new(key, 0.0)));
    attributes
}

/// Returns what an agent or a team was asked, and what it has answered.
fn conversation(caller: &Caller, response: Option<&AgentResponse>) -> Vec<KeyValue> {
    let mut attributes = Vec::new();
    if let Some(input) = caller.input() {
        let messages = content::messages(&input);
        let question = last_of(Role::User, input.iter());
        let text = question.map(|question| in_list(question, &messages));
        attributes.extend(text.map(|text| KeyValue::new(openinference::INPUT_VALUE, text)));
        attributes.push(KeyValue::new(attribute::INPUT_MESSAGES, messages));
    }
    let answer = response.and_then(|response| last_of(Role::Assistant, response.new_messages()));
    if let Some(answer) = answer.filter(|answer| caller.has_recorded(answer)) {
        let messages = content::messages([answer]);
        let text = in_list(answer, &messages);
        attributes.push(KeyValue::new(openinference::OUTPUT_VALUE, text));
        attributes.push(KeyValue::new(attribute::OUTPUT_MESSAGES, messages));
    }
    attributes
}

/// Returns the last message with this role.
fn last_of<'a>(role: Role, messages: impl Iterator<Item = &'a Message>) -> Option<&'a Message> {
    messages.filter(|message| message.role() == role).last()
}

/// Returns the text by which a backend lists a message. One without any, such as one that calls a
/// tool which waits, is listed as it is recorded.
fn in_list(message: &Message, recorded: &str) -> String {
    let text = message.text();
    if text.is_empty() {
        recorded.to_owned()
    } else {
        text
    }
}
