use std::sync::Arc;

use opentelemetry::trace::SpanRef;
use opentelemetry::{Context, KeyValue, StringValue, Value};
use tower_agent::call::CallKind;
use tower_agent::{ErrorKind, Request, RunContext, ToolRequest, ToolResponse};
use tracing::{Span, info_span};

use super::caller::Caller;
use crate::metrics::record;
use crate::names::{FUNCTION, attribute, error_type, event, exception, operation};
use crate::recorded::{Ending, Recorded};
use crate::telemetry::Telemetry;

pub(crate) struct ToolRecord {
    /// `None` for a tool that is not declared: the model has made the name up.
    name: Option<String>,
    agent: String,
    context: RunContext,
}

impl Recorded for ToolRequest {
    type Record = ToolRecord;

    fn span(request: &Self, telemetry: &Telemetry) -> Span {
        // A name that the model has made up is not one to group spans by, and may be long.
        let is_declared = request.declaration().is_some();
        let (span_name, name) = if is_declared {
            (request.name(), request.name())
        } else {
            (error_type::OTHER, beginning(request.name()))
        };
        info_span!(
            "execute_tool",
            otel.name = format!("{} {span_name}", operation::EXECUTE_TOOL),
            otel.kind = "internal",
            { attribute::OPERATION_NAME } = operation::EXECUTE_TOOL,
            { attribute::TOOL_NAME } = name,
            { attribute::TOOL_TYPE } = FUNCTION,
            { attribute::AGENT_NAME } = request.context().agent(),
            { attribute::CONVERSATION_ID } = telemetry.conversation_id(request.context()),
            { attribute::RUN_ID } = request.context().run_id(),
            { attribute::ENDUSER_ID } = telemetry.user_id(request.context()),
        )
    }

    fn begin(
        request: &mut Self,
        _: &Span,
        _: &Arc<Telemetry>,
        context: &mut Context,
    ) -> ToolRecord {
        if let Some(caller) = Caller::current() {
            caller.count(CallKind::Tool);
        }
        Caller::enter_tool(context);
        ToolRecord {
            name: request.declaration().map(|tool| tool.name().to_owned()),
            agent: request.context().agent().to_owned(),
            context: request.context().clone(),
        }
    }

    fn describe(request: &Self, telemetry: &Telemetry, span: &SpanRef<'_>) {
        span.set_attribute(KeyValue::new(
            attribute::TOOL_CALL_ID,
            request.id().to_owned(),
        ));
        if let Some(tool) = request.declaration() {
            let description = tool.description().to_owned();
            span.set_attribute(KeyValue::new(attribute::TOOL_DESCRIPTION, description));
        }
        if telemetry.has_content {
            let arguments = request.arguments().to_string();
            span.set_attribute(KeyValue::new(attribute::TOOL_CALL_ARGUMENTS, arguments));
        }
    }

    fn error_type(response: &ToolResponse) -> Option<&'static str> {
        response.is_error().then(|| ErrorKind::Tool.code())
    }

    fn end(
        call: &mut ToolRecord,
        response: Option<&ToolResponse>,
        ending: &Ending,
        telemetry: &Telemetry,
        span: Option<&SpanRef<'_>>,
    ) {
        if let (Some(span), Some(response), true) = (span, response, telemetry.has_content) {
            let result = response.value().to_string();
            span.set_attribute(KeyValue::new(attribute::TOOL_CALL_RESULT, result));
        }
        if let Some(span) = span {
            // Who has approved a call is no content, and asked for where calls are audited.
            let names = call.context.answered_by();
            if !names.is_empty() {
                let names: Vec<StringValue> = names.into_iter().map(StringValue::from).collect();
                let names = Value::Array(names.into());
                span.set_attribute(KeyValue::new(attribute::ANSWERED_BY, names));
            }
        }
        // A call that waits has not been executed, and will be counted when it is.
        if ending.is_waiting || !telemetry.is_metered() {
            return;
        }
        // A model can make up any number of names, and each would be a time series of its own.
        let name = call
            .name
            .take()
            .unwrap_or_else(|| error_type::OTHER.to_owned());
        let mut attributes = vec![
            KeyValue::new(attribute::AGENT_NAME, std::mem::take(&mut call.agent)),
            KeyValue::new(attribute::TOOL_NAME, name),
            KeyValue::new(attribute::TOOL_TYPE, FUNCTION),
        ];
        if let Some(error_type) = ending.error_type {
            attributes.push(KeyValue::new(attribute::ERROR_TYPE, error_type));
        }
        record(
            &telemetry.metrics.tool_duration,
            ending.duration,
            &attributes,
        );
    }

    fn emit_exception(error_type: &'static str, message: Option<&str>) {
        exception!(event::TOOL_EXCEPTION, error_type, message);
    }
}

/// The maximum length of a made-up name in a span, in bytes: that of the names which providers
/// accept.
const MADE_UP: usize = 64;

/// Returns the beginning of a name.
fn beginning(name: &str) -> &str {
    let mut ends = (0..=MADE_UP.min(name.len())).rev();
    let end = ends.find(|end| name.is_char_boundary(*end));
    &name[..end.unwrap_or_default()]
}
