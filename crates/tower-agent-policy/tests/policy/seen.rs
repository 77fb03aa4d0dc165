//! What others see of the rules: in traces and in the structure of an agent.

use std::sync::{Arc, Mutex};

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use test_support::log::Log;
use tower_agent::{Agent, AgentRequest};
use tower_agent_otel::OpenTelemetry;
use tower_agent_test::ScriptedModel;
use tracing_subscriber::prelude::*;

use crate::world::{ANN, answered, asked_by, calling, refund, rulebook, run, tools};

/// The spans that have ended.
#[derive(Clone, Debug, Default)]
struct Ended(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Ended {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap().extend(batch);
        Ok(())
    }
}

fn attribute(span: &SpanData, name: &str) -> String {
    let mut attributes = span.attributes.iter();
    let found = attributes.find(|attribute| attribute.key.as_str() == name);
    found.map_or(String::new(), |found| found.value.to_string())
}

#[tokio::test]
async fn each_decision_is_a_span_with_the_ids_of_policies_and_no_value() {
    let ended = Ended::default();
    let tracers = SdkTracerProvider::builder()
        .with_simple_exporter(ended.clone())
        .build();
    let layer = tracing_opentelemetry::layer()
        .with_tracer(tracers.tracer("test"))
        .with_tracked_inactivity(false);
    let subscriber = tracing_subscriber::registry().with(layer);
    let _subscriber = tracing::subscriber::set_default(subscriber);
    // While there is one subscriber alone, `tracing` asks only that of the thread which comes to a
    // span first: another test, which has none, would turn the span off for this one.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let book = rulebook(
        r#"@id("small") permit(principal, action == Action::"refund", resource)
           when { context.input.cents < 5000 };
           @id("never") forbid(principal, action == Action::"refund", resource)
           when { context.input.cents == 4711 };
           @id("breaks") forbid(principal, action == Action::"refund", resource)
           when { context.input.cents == 4712 && context.input.cents + 9223372036854775807 > 0 };"#,
    );
    let agent = Agent::builder(calling([refund(1), refund(4711), refund(4712)]))
        .tools(tools(&Log::default()))
        .global_callbacks(OpenTelemetry::new())
        .global_callbacks(book.enforce())
        .build()
        .unwrap();
    run(&agent, asked_by(&ANN)).await.response();
    let spans = ended.0.lock().unwrap();
    let decisions: Vec<_> = spans.iter().filter(|span| span.name == "policy").collect();
    let seen = decisions.iter().map(|span| {
        [
            "tool", "decision", "why", "policies", "errors", "call", "enforced",
        ]
        .map(|name| attribute(span, name))
    });
    let expected = [
        [
            "refund",
            "allowed",
            "",
            r#"["small"]"#,
            "",
            "agent/m1.0",
            "true",
        ],
        [
            "refund",
            "refused",
            "forbidden",
            r#"["never"]"#,
            "",
            "agent/m2.0",
            "true",
        ],
        [
            "refund",
            "refused",
            "rule_failed",
            "[]",
            r#"["breaks"]"#,
            "agent/m3.0",
            "true",
        ],
    ];
    assert_eq!(seen.collect::<Vec<_>>(), expected);
    let agents: Vec<_> = spans
        .iter()
        .filter(|span| span.name.starts_with("invoke_agent"))
        .collect();
    assert_eq!(agents.len(), 1);
    for span in decisions {
        assert_eq!(span.parent_span_id, agents[0].span_context.span_id());
        let text = format!("{:?} {:?}", span.attributes, span.events);
        assert!(!text.contains("471") && !text.contains("o-1"), "{text}");
    }
}

#[test]
fn the_structure_of_an_agent_names_the_rules_in_force() {
    let book = rulebook(
        r#"permit(principal, action == Action::"refund", resource);
           permit(principal, action == Action::"look", resource);"#,
    );
    let agent = |guard| {
        Agent::builder(ScriptedModel::new([]))
            .tools(tools(&Log::default()))
            .global_callbacks(guard)
            .build()
            .unwrap()
    };
    let enforcing = agent(book.enforce());
    let observing = agent(book.observe());
    let text = enforcing.explain().to_string();
    assert!(text.contains("policy (enforcing 2 rules)"), "{text}");
    let text = observing.explain().to_string();
    assert!(text.contains("policy (observing 2 rules)"), "{text}");
    assert!(!text.contains("enforcing"), "{text}");
    book.reload([("shop.cedar", "permit(principal, action, resource);")])
        .unwrap();
    for (agent, name) in [
        (enforcing, "enforcing 1 rule)"),
        (observing, "observing 1 rule)"),
    ] {
        let text = agent.explain_for(&AgentRequest::new("?")).to_string();
        assert!(text.contains(name), "{text}");
    }
}

/// A call that waits is held by the name of its guard.
#[tokio::test]
async fn an_answer_counts_although_the_number_of_rules_has_changed() {
    const ASKS: &str =
        r#"@ask("support") permit(principal, action == Action::"refund", resource);"#;
    let log = Log::default();
    let book = rulebook(ASKS);
    let agent = Agent::builder(calling([refund(900)]))
        .tools(tools(&log))
        .global_callbacks(book.enforce())
        .build()
        .unwrap();
    let paused = run(&agent, asked_by(&ANN)).await;
    let more = format!("{ASKS} permit(principal, action == Action::\"look\", resource);");
    book.reload([("shop.cedar", more)]).unwrap();
    let yes = serde_json::json!({ "approved": true });
    let done = run(&agent, answered(paused.response(), &ANN, yes)).await;
    assert_eq!(done.response().text(), "done");
    assert_eq!(log.take(), ["refund o-1 900"]);
}
