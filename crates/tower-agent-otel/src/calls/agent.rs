use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use opentelemetry::trace::SpanRef;
use opentelemetry::{Context, KeyValue};
use tower_agent::call::CallKind;
use tower_agent::{AgentRequest, AgentResponse, Request};
use tracing::{Span, info_span};

use crate::metrics::record;
use crate::names::{attribute, operation};
use crate::recorded::{Ending, Recorded};
use crate::telemetry::Telemetry;

/// The number of calls that an agent makes itself, without those of its subagents.
#[derive(Debug, Default)]
pub(super) struct Calls {
    inference: AtomicU64,
    tool: AtomicU64,
}

impl Calls {
    /// Counts a call for the agent that makes it.
    pub(super) fn count(kind: CallKind) {
        // The context is the only thing that this call shares with its agent's. An agent inside
        // puts counters of its own there, so the nearest ones are those of the caller.
        Context::map_current(|context| {
            let Some(calls) = context.get::<Arc<Self>>() else {
                return;
            };
            let count = if kind == CallKind::Tool {
                &calls.tool
            } else {
                &calls.inference
            };
            count.fetch_add(1, Ordering::Relaxed);
        });
    }
}

pub(crate) struct AgentRecord {
    name: String,
    /// `None` for a team: its members make the calls.
    calls: Option<Arc<Calls>>,
}

impl Recorded for AgentRequest {
    type Record = AgentRecord;

    fn span(request: &Self, _: &Telemetry) -> Span {
        let name = request.context().agent();
        if request.is_for_team() {
            info_span!(
                "invoke_workflow",
                otel.name = format!("{} {name}", operation::INVOKE_WORKFLOW),
                otel.kind = "internal",
                { attribute::OPERATION_NAME } = operation::INVOKE_WORKFLOW,
                { attribute::WORKFLOW_NAME } = name,
            )
        } else {
            info_span!(
                "invoke_agent",
                otel.name = format!("{} {name}", operation::INVOKE_AGENT),
                otel.kind = "internal",
                { attribute::OPERATION_NAME } = operation::INVOKE_AGENT,
                { attribute::AGENT_NAME } = name,
            )
        }
    }

    fn begin(request: &mut Self, _: &Arc<Telemetry>, context: &mut Context) -> AgentRecord {
        let calls = (!request.is_for_team()).then(Arc::<Calls>::default);
        if let Some(calls) = &calls {
            *context = context.with_value(calls.clone());
        }
        AgentRecord {
            name: request.context().agent().to_owned(),
            calls,
        }
    }

    fn describe(_: &Self, _: &Telemetry, _: &SpanRef<'_>) {}

    fn error_type(_: &AgentResponse) -> Option<&'static str> {
        None
    }

    fn is_waiting(response: &AgentResponse) -> bool {
        !response.interrupts().is_empty()
    }

    fn end(
        call: &mut AgentRecord,
        _: Option<&AgentResponse>,
        ending: &Ending,
        telemetry: &Telemetry,
        _: Option<&SpanRef<'_>>,
    ) {
        let metrics = &telemetry.metrics;
        let name = std::mem::take(&mut call.name);
        let (duration, key) = match &call.calls {
            Some(_) => (&metrics.agent_duration, attribute::AGENT_NAME),
            None => (&metrics.workflow_duration, attribute::WORKFLOW_NAME),
        };
        let mut attributes = vec![KeyValue::new(key, name)];
        if let Some(calls) = &call.calls {
            metrics
                .inference_calls
                .record(calls.inference.load(Ordering::Relaxed), &attributes);
            metrics
                .tool_calls
                .record(calls.tool.load(Ordering::Relaxed), &attributes);
        }
        if let Some(error_type) = ending.error_type {
            attributes.push(KeyValue::new(attribute::ERROR_TYPE, error_type));
        }
        record(duration, ending.duration, &attributes);
    }

    /// Emits nothing: the model or tool call that failed has emitted the event already.
    fn emit_exception(_: &'static str, _: Option<&str>) {}
}
