//! The table of hosts in the guide is made from their exchanges and from the table of dialects.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use tower_agent_providers::openai::{Dialects, LimitField, ReasoningField, SchemaSupport};

use super::{Answer, Host, hosts};

/// Set to write the table.
const WRITE: &str = "WRITE_HOSTS";

fn row(name: &str, host: &Host) -> String {
    let streamed = host
        .exchanges
        .iter()
        .filter(|exchange| matches!(exchange.answer, Answer::Streamed(_)));
    let written = host
        .exchanges
        .iter()
        .filter(|exchange| exchange.origin.starts_with("written"));
    let mut parts = BTreeSet::new();
    for exchange in &host.exchanges {
        let expected = &exchange.expected;
        let has = [
            ("calls", !expected.calls.is_empty()),
            ("reasoning", !expected.reasoning.is_empty()),
            ("text", !expected.text.is_empty()),
            ("cached tokens", expected.usage.cached > 0),
        ];
        parts.extend(
            has.into_iter()
                .filter(|(_, has)| *has)
                .map(|(part, _)| part),
        );
    }
    let parts: Vec<_> = parts.into_iter().collect();
    let dialects: Vec<_> = host
        .exchanges
        .iter()
        .map(|exchange| Dialects::new().find(&host.host, Some(&exchange.model)))
        .collect();
    let reasoning = cell(dialects.iter().map(|dialect| match dialect.reasoning {
        ReasoningField::None => "no",
        ReasoningField::AsReceived => "as it came",
        ReasoningField::DetailsAsReceived => "details as they came",
        ReasoningField::ReasoningContent => "`reasoning_content`",
        ReasoningField::Reasoning => "`reasoning`",
        ReasoningField::ReasoningDetails => "`reasoning_details`",
        ReasoningField::Content => "in the content",
        other => panic!("{other:?} has no words"),
    }));
    let required = dialects.iter().any(|dialect| dialect.requires_reasoning);
    let required = if required { ", in every message" } else { "" };
    let schemas = cell(dialects.iter().map(|dialect| match dialect.schemas {
        SchemaSupport::Always => "yes",
        SchemaSupport::WithoutTools => "without tools",
        SchemaSupport::Never => "no",
        other => panic!("{other:?} has no words"),
    }));
    let limit = cell(dialects.iter().map(|dialect| match dialect.limit {
        LimitField::MaxTokens => "`max_tokens`",
        LimitField::MaxCompletionTokens => "`max_completion_tokens`",
        other => panic!("{other:?} has no words"),
    }));
    let forced = cell(dialects.iter().map(|dialect| {
        if dialect.forced_tool_choice {
            "yes"
        } else {
            "no"
        }
    }));
    let server = match &*host.host {
        "localhost" => match name {
            "llama_cpp" => "llama.cpp".to_owned(),
            "lm_studio" => "LM Studio".to_owned(),
            "ollama" => "Ollama".to_owned(),
            "vllm" => "vLLM".to_owned(),
            other => panic!("{other} has no name"),
        },
        host => format!("`{host}`"),
    };
    let (all, streamed, written) = (host.exchanges.len(), streamed.count(), written.count());
    let mut exchanges = format!("{all}");
    let kinds = [(streamed, "streamed"), (written, "written")];
    let kinds: Vec<_> = kinds
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, kind)| format!("{count} {kind}"))
        .collect();
    if !kinds.is_empty() {
        exchanges.push_str(&format!(" ({})", kinds.join(", ")));
    }
    let parts = parts.join(", ");
    format!(
        "| {server} | {exchanges} | {parts} | {reasoning}{required} | {schemas} | {limit} \
         | {forced} |\n"
    )
}

/// Returns the words of all models of a host.
fn cell<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: BTreeSet<_> = words.collect();
    words.into_iter().collect::<Vec<_>>().join(" or ")
}

#[test]
fn the_guides_table_of_hosts_is_what_the_tests_and_the_dialects_say() {
    let guide = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/guide/hosts.md");
    let text = fs::read_to_string(&guide).unwrap();
    let line = "|---|---|---|---|---|---|---|\n";
    let (before, rest) = text.split_once(line).unwrap();
    let (_, after) = rest.split_once("\n\n").unwrap();
    let rows: String = hosts().iter().map(|(name, host)| row(name, host)).collect();
    let made = format!("{before}{line}{rows}\n{after}");
    if std::env::var_os(WRITE).is_some() {
        fs::write(&guide, &made).unwrap();
    }
    let now = fs::read_to_string(&guide).unwrap();
    assert!(
        now == made,
        "the table of {} is old: run the test with {WRITE}=1",
        guide.display()
    );
}
