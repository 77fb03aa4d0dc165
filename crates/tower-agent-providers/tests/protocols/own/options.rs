//! The table of options in the crate's page.

use std::sync::Arc;

use serde_json::{Value, json};
use tower_agent::message::MediaSource;
use tower_agent::model::{
    CacheRetention, PromptCache, ReasoningEffort, ResponseFormat, ServerTool, ToolChoice,
};
use tower_agent::tool::ToolDeclaration;
use tower_agent::{ErrorKind, Message, ModelRequest, Part, Result, Settings};
use tower_agent_providers::anthropic::Messages;
use tower_agent_providers::bedrock::Converse;
use tower_agent_providers::gemini::{GenerateContent, Interactions};
use tower_agent_providers::ollama;
use tower_agent_providers::openai::{Chat, Responses};
use tower_agent_providers::protocol::{Call, Protocol};

type Set = fn(&mut Settings);

const SETTINGS: &[(&str, Set)] = &[
    ("`temperature`", |settings| settings.temperature = Some(0.5)),
    ("`top_p`", |settings| settings.top_p = Some(0.5)),
    ("`max_tokens`", |settings| settings.max_tokens = Some(7)),
    ("`stop`", |settings| settings.stop = vec!["END".into()]),
    ("`seed`", |settings| settings.seed = Some(7)),
    ("`tool_choice`: `None`", |settings| {
        settings.tool_choice = Some(ToolChoice::None);
    }),
    ("`tool_choice`: `Required` or a tool", |settings| {
        settings.tool_choice = Some(ToolChoice::Required);
    }),
    ("`parallel_tool_calls`: `false`", |settings| {
        settings.parallel_tool_calls = Some(false);
    }),
    ("`reasoning_effort`", |settings| {
        settings.reasoning_effort = Some(ReasoningEffort::High);
    }),
    ("`response_format`: a schema", |settings| {
        settings.response_format = Some(ResponseFormat::JsonSchema {
            name: "a".into(),
            schema: json!({ "type": "object" }),
            strict: false,
        });
    }),
    ("`response_format`: `Json`", |settings| {
        settings.response_format = Some(ResponseFormat::Json);
    }),
    ("`server_tools`: `WebSearch`", |settings| {
        settings.server_tools = vec![ServerTool::web_search()];
    }),
    ("`server_tools`: `WebFetch`", |settings| {
        settings.server_tools = vec![ServerTool::web_fetch()];
    }),
    ("`server_tools`: `CodeExecution`", |settings| {
        settings.server_tools = vec![ServerTool::code_execution()];
    }),
];

/// Fields of the body without a setting, by protocol.
const FIELDS: &[(&str, [Option<&str>; 7])] = &[
    (
        "several answers",
        [
            Some("n"),
            None,
            None,
            Some("generationConfig.candidateCount"),
            None,
            None,
            None,
        ],
    ),
    (
        "log probabilities",
        [
            Some("logprobs"),
            Some("top_logprobs"),
            None,
            Some("generationConfig.responseLogprobs"),
            None,
            Some("logprobs"),
            None,
        ],
    ),
    (
        "service tier",
        [
            Some("service_tier"),
            Some("service_tier"),
            Some("service_tier"),
            None,
            None,
            None,
            Some("serviceTier"),
        ],
    ),
];

fn media() -> [(&'static str, Part); 5] {
    let data = |media_type: &str| MediaSource::base64(media_type, "AAAA");
    let url = MediaSource::url("https://a.example/b").with_media_type("image/png");
    [
        ("image: data", Part::image(data("image/png"))),
        ("image: URL", Part::image(url)),
        ("audio: data", Part::audio(data("audio/wav"))),
        ("document: data", Part::document(data("application/pdf"))),
        (
            "document: file id",
            Part::document(MediaSource::File {
                id: "file_1".into(),
                media_type: Some("application/pdf".into()),
            }),
        ),
    ]
}

fn body<P: Protocol + Default>(message: Message, settings: Settings) -> Result<Value> {
    let look = ToolDeclaration::new("look", "Looks.");
    let request = ModelRequest::new([message])
        .with_settings(settings)
        .with_tools(Arc::new(vec![Arc::new(look)]));
    let mut body = Vec::new();
    P::default().encode(&Call::new(&request).with_model("m"), &mut body)?;
    Ok(serde_json::from_slice(&body).unwrap())
}

/// Returns whether a request is accepted. What is accepted must be in the body.
fn has<P: Protocol + Default>(message: Message, settings: Settings) -> bool {
    let plain = body::<P>(Message::user("hi"), Settings::default()).unwrap();
    match body::<P>(message, settings) {
        Ok(body) => {
            assert_ne!(body, plain, "an option is left out");
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
            false
        }
    }
}

/// Asserts that a field of `extra` is in the body.
fn takes<P: Protocol + Default>(path: &str) {
    let mut settings = Settings::default();
    let names: Vec<_> = path.split('.').collect();
    let field = names
        .iter()
        .rev()
        .fold(json!(1), |value, name| json!({ *name: value }));
    settings.extra = field.as_object().unwrap().clone();
    let body = body::<P>(Message::user("hi"), settings).unwrap();
    assert_eq!(
        body.pointer(&format!("/{}", names.join("/"))),
        Some(&json!(1))
    );
}

fn row(name: &str, cells: impl IntoIterator<Item = String>) -> String {
    let cells: Vec<_> = cells.into_iter().collect();
    format!("//! | {name} | {} |", cells.join(" | "))
}

fn row_of(name: &str, message: &Message, settings: &Settings) -> String {
    macro_rules! cells {
        ($($protocol:ty),+) => {
            [$(has::<$protocol>(message.clone(), settings.clone())),+]
        };
    }
    let cells = cells!(
        Chat,
        Responses,
        Messages,
        GenerateContent,
        Interactions,
        ollama::Chat,
        Converse
    );
    row(
        name,
        cells.map(|has| if has { "yes" } else { "no" }.to_owned()),
    )
}

fn table() -> Vec<String> {
    let mut rows = Vec::new();
    for (name, set) in SETTINGS {
        let mut settings = Settings::default();
        set(&mut settings);
        rows.push(row_of(name, &Message::user("hi"), &settings));
    }
    for (name, part) in media() {
        let message = Message::user("hi").with_part(part);
        rows.push(row_of(name, &message, &Settings::default()));
    }
    for (name, fields) in FIELDS {
        let check: [fn(&str); 7] = [
            takes::<Chat>,
            takes::<Responses>,
            takes::<Messages>,
            takes::<GenerateContent>,
            takes::<Interactions>,
            takes::<ollama::Chat>,
            takes::<Converse>,
        ];
        let cells = fields.iter().zip(check).map(|(field, check)| match field {
            Some(field) => {
                check(field);
                format!("`{field}`")
            }
            None => "no".to_owned(),
        });
        rows.push(row(name, cells));
    }
    rows
}

#[test]
fn the_table_of_the_crates_page_is_true() {
    let page = include_str!("../../../src/lib.rs");
    let (_, section) = page.split_once("//! # Options by protocol").unwrap();
    let rows: Vec<_> = section
        .lines()
        .skip_while(|line| !line.starts_with("//! |---"))
        .skip(1)
        .take_while(|line| line.starts_with("//! |"))
        .collect();
    let table = table();
    assert_eq!(rows, table, "the table is:\n{}", table.join("\n"));
}

fn with_schema(extra: Value) -> Settings {
    let mut settings = Settings::default();
    settings.response_format = Some(ResponseFormat::JsonSchema {
        name: "a".into(),
        schema: json!({ "type": "object" }),
        strict: true,
    });
    settings.extra = extra.as_object().unwrap().clone();
    settings
}

/// Returns an object with a value at the end of a path.
fn nested(path: &[&str], value: &Value) -> Value {
    let fields = path.iter().rev();
    fields.fold(value.clone(), |value, name| json!({ *name: value }))
}

/// Asserts that the schema of the answer, which stands at this path, is never removed without a
/// word, and that other fields stand beside it.
fn keeps_schema<P: Protocol + Default>(path: &str) {
    let names: Vec<_> = path.split('.').collect();
    let send = |extra| body::<P>(Message::user("hi"), with_schema(extra));
    let pointer = format!("/{}", names.join("/"));
    let plain = send(json!({})).unwrap();
    let schema = plain.pointer(&pointer).unwrap();
    for depth in 1..=names.len() {
        let mut values = vec![json!(null), json!("none"), json!([])];
        if depth == names.len() {
            values.extend([json!({}), json!({ "type": "text" })]);
        }
        for value in values {
            let extra = nested(&names[..depth], &value);
            let error = send(extra.clone()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{extra}");
            assert!(error.message().contains(names[0]), "{extra}: {error}");
        }
    }
    let mut beside = names.clone();
    *beside.last_mut().unwrap() = "another_field";
    let sent = send(nested(&beside, &json!({ "a": 1 }))).unwrap();
    assert_eq!(sent.pointer(&pointer), Some(schema), "{sent}");
    let pointer = format!("/{}", beside.join("/"));
    assert_eq!(sent.pointer(&pointer), Some(&json!({ "a": 1 })), "{sent}");
}

#[test]
fn no_extra_field_removes_the_schema_of_the_answer() {
    keeps_schema::<Chat>("response_format");
    keeps_schema::<Responses>("text.format");
    keeps_schema::<Messages>("output_config.format");
    keeps_schema::<GenerateContent>("generationConfig.responseJsonSchema");
    keeps_schema::<Interactions>("response_format");
    keeps_schema::<ollama::Chat>("format");
    keeps_schema::<Converse>("outputConfig.textFormat");
}

/// The prompt's cache is steered by each protocol in its own way, or needs no field.
#[test]
fn every_protocol_takes_a_prompt_cache() {
    let mut settings = Settings::default();
    let cache = PromptCache::new().with_retention(CacheRetention::Short);
    settings.prompt_cache = Some(cache);
    macro_rules! takes_cache {
        ($($protocol:ty),+) => {
            $(body::<$protocol>(Message::user("hi"), settings.clone()).unwrap();)+
        };
    }
    takes_cache!(
        Chat,
        Responses,
        Messages,
        GenerateContent,
        Interactions,
        ollama::Chat,
        Converse
    );
}
