//! Settings and tools.

use serde_json::{Value, json};
use tower_agent::model::{ReasoningEffort, ResponseFormat, ToolChoice};
use tower_agent::tool::ToolDeclaration;
use tower_agent::{ErrorKind, Message, ModelRequest, Settings};
use tower_agent_providers::anthropic::Messages;
use tower_agent_providers::protocol::Protocol;

use super::fixtures::{body, try_body};

fn request(set: impl FnOnce(&mut Settings)) -> ModelRequest {
    let mut request = ModelRequest::new([Message::user("Hi.")]);
    set(request.settings_mut());
    request
}

#[test]
fn every_setting() {
    let sent = body(&request(|settings| {
        settings.model = Some("claude-other".into());
        settings.temperature = Some(0.5);
        settings.top_p = Some(0.9);
        settings.max_tokens = Some(100);
        settings.stop = vec!["END".into()];
        settings.extra.insert("top_k".into(), json!(5));
        settings
            .extra
            .insert("metadata".into(), json!({ "user_id": "u" }));
    }));
    let expected = json!({
        "messages": [{ "role": "user", "content": [{ "type": "text", "text": "Hi." }] }],
        "model": "claude-other", "max_tokens": 100, "temperature": 0.5, "top_p": 0.9,
        "stop_sequences": ["END"], "top_k": 5, "metadata": { "user_id": "u" },
    });
    assert_eq!(sent, expected);
}

#[test]
fn extra_fields_replace_and_remove_ours() {
    let sent = body(&request(|settings| {
        settings.max_tokens = Some(100);
        settings.temperature = Some(0.5);
        settings.extra.insert("max_tokens".into(), json!(7));
        settings.extra.insert("temperature".into(), Value::Null);
    }));
    assert_eq!(
        (&sent["max_tokens"], sent.get("temperature")),
        (&json!(7), None)
    );
}

#[test]
fn an_effort_stands_beside_the_schema_of_the_answer() {
    let mut asked = request(|settings| {
        settings.response_format = Some(ResponseFormat::JsonSchema {
            name: "N".into(),
            schema: json!({ "type": "object", "properties": {}, "additionalProperties": false }),
            strict: true,
        });
        let config = json!({ "effort": "low" });
        settings.extra.insert("output_config".into(), config);
    });
    let sent = body(&asked);
    let config = &sent["output_config"];
    assert_eq!(config["effort"], "low");
    assert_eq!(config["format"]["type"], "json_schema");

    let extra = &mut asked.settings_mut().extra;
    extra.insert(
        "output_config".into(),
        json!({ "format": { "type": "text" } }),
    );
    let error = try_body(&Messages::default(), &asked).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.message().contains("output_config.format"), "{error}");
}

#[test]
fn an_unsupported_request_is_an_error() {
    for (request, problem) in [
        (
            request(|settings| settings.seed = Some(1)),
            "the protocol has no `seed`",
        ),
        (
            request(|settings| settings.response_format = Some(ResponseFormat::Json)),
            "the protocol has no JSON without a schema",
        ),
    ] {
        let error = try_body(&Messages::default(), &request).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert!(error.message().starts_with(problem), "{error}");
    }
}

#[test]
fn a_schema_is_the_format_of_the_output() {
    let schema = json!({ "type": "object", "properties": {}, "additionalProperties": false });
    let format = |format: ResponseFormat| {
        body(&request(|settings| settings.response_format = Some(format)))["output_config"].take()
    };
    let by_schema = ResponseFormat::JsonSchema {
        name: "answer".into(),
        schema: schema.clone(),
        strict: true,
    };
    let expected = json!({ "format": { "type": "json_schema", "schema": schema } });
    assert_eq!(format(by_schema), expected);
    assert_eq!(format(ResponseFormat::Text), Value::Null);
}

#[test]
fn limits_that_cannot_be_guaranteed_are_moved_into_the_description() {
    let schema = json!({
        "type": "object", "additionalProperties": false, "required": ["minimum", "tags", "at"],
        "properties": {
            "minimum": { "type": "integer", "minimum": 1, "maximum": 10, "description": "A number." },
            "tags": { "type": "array", "minItems": 2, "items": { "type": "string", "maxLength": 3 } },
            "at": { "oneOf": [{ "type": "string", "format": "date" },
                              { "type": "string", "format": "odd" }, { "$ref": "#/$defs/A" }] },
        },
        "$defs": { "A": { "type": "array", "minItems": 1, "items": { "const": { "maximum": 1 } } } },
    });
    let expected = json!({
        "type": "object", "additionalProperties": false, "required": ["minimum", "tags", "at"],
        "properties": {
            "minimum": { "type": "integer", "description": "A number.\n\n{maximum: 10, minimum: 1}" },
            "tags": { "type": "array", "description": "{minItems: 2}",
                      "items": { "type": "string", "description": "{maxLength: 3}" } },
            "at": { "anyOf": [{ "type": "string", "format": "date" },
                              { "type": "string", "description": "{format: \"odd\"}" },
                              { "$ref": "#/$defs/A" }] },
        },
        "$defs": { "A": { "type": "array", "minItems": 1, "items": { "const": { "maximum": 1 } } } },
    });
    let format = ResponseFormat::JsonSchema {
        name: "answer".into(),
        schema: schema.clone(),
        strict: true,
    };
    let sent = body(&request(|settings| settings.response_format = Some(format)));
    assert_eq!(sent["output_config"]["format"]["schema"], expected);

    let strict = |strict: bool| {
        let mut tool = ToolDeclaration::new("add", "Adds.").with_parameters(schema.clone());
        tool.provider_mut()
            .set("anthropic", json!({ "strict": strict }));
        with_tools(vec![tool], |_| {})["tools"][0]["input_schema"].take()
    };
    assert_eq!((strict(true), strict(false)), (expected, schema.clone()));
}

#[test]
fn the_schema_of_a_type_is_accepted() {
    #[derive(schemars::JsonSchema)]
    #[allow(dead_code)]
    struct Count {
        items: u32,
        names: Option<[String; 2]>,
    }
    let format = ResponseFormat::of::<Count>();
    let sent = body(&request(|settings| settings.response_format = Some(format))).to_string();
    for keyword in ["\"minimum\"", "\"maxItems\"", "\"format\":\"uint32\""] {
        assert!(!sent.contains(keyword), "{sent}");
    }
    assert!(sent.contains("{minimum: 0}"), "{sent}");
}

fn with_tools(tools: Vec<ToolDeclaration>, set: impl FnOnce(&mut Settings)) -> Value {
    let mut request = request(set);
    request
        .tools_mut()
        .extend(tools.into_iter().map(Into::into));
    body(&request)
}

#[test]
fn tools_with_their_schema_and_data() {
    let schema = json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
    let mut strict = ToolDeclaration::new("add", "Adds.").with_parameters(schema.clone());
    strict
        .provider_mut()
        .set("anthropic", json!({ "strict": true }));
    strict
        .provider_mut()
        .set("openai", json!({ "other": true }));
    let mut search = ToolDeclaration::new("web_search", "Searches.");
    search.provider_mut().set(
        "anthropic",
        json!({ "type": "web_search_20250305", "max_uses": 3 }),
    );
    let sent = with_tools(
        vec![strict, ToolDeclaration::new("now", ""), search],
        |_| {},
    );
    let empty = json!({ "type": "object", "properties": {} });
    let expected = json!([
        { "name": "add", "description": "Adds.", "input_schema": schema, "strict": true },
        { "name": "now", "input_schema": empty },
        { "name": "web_search", "type": "web_search_20250305", "max_uses": 3 },
    ]);
    assert_eq!(sent["tools"], expected);
    assert_eq!(sent.get("tool_choice"), None);
}

#[test]
fn every_tool_choice() {
    let choice = |choice: Option<ToolChoice>, parallel: Option<bool>| {
        with_tools(vec![ToolDeclaration::new("add", "Adds.")], |settings| {
            settings.tool_choice = choice;
            settings.parallel_tool_calls = parallel;
        })["tool_choice"]
            .take()
    };
    let named = || Some(ToolChoice::Tool("add".into()));
    assert_eq!(
        choice(Some(ToolChoice::Auto), None),
        json!({ "type": "auto" })
    );
    assert_eq!(
        choice(Some(ToolChoice::Required), None),
        json!({ "type": "any" })
    );
    assert_eq!(
        choice(named(), None),
        json!({ "type": "tool", "name": "add" })
    );
    assert_eq!(
        choice(Some(ToolChoice::None), None),
        json!({ "type": "none" })
    );
    let one = |kind: &str| json!({ "type": kind, "disable_parallel_tool_use": true });
    assert_eq!(choice(None, Some(false)), one("auto"));
    assert_eq!(choice(Some(ToolChoice::Required), Some(false)), one("any"));
    assert_eq!(
        choice(named(), Some(false))["disable_parallel_tool_use"],
        true
    );
    assert_eq!(
        choice(Some(ToolChoice::None), Some(false)),
        json!({ "type": "none" })
    );
    assert_eq!(choice(None, Some(true))["disable_parallel_tool_use"], false);
    // Without tools, a choice is rejected.
    let none = with_tools(vec![], |settings| {
        settings.tool_choice = Some(ToolChoice::Auto)
    });
    assert_eq!((none.get("tools"), none.get("tool_choice")), (None, None));
}

#[test]
fn a_base_url_may_end_with_the_version_or_not() {
    for (given, expected) in [
        ("https://api.anthropic.com", "https://api.anthropic.com/v1"),
        ("https://api.anthropic.com/", "https://api.anthropic.com/v1"),
        (
            "https://api.anthropic.com/v1",
            "https://api.anthropic.com/v1",
        ),
        (
            "https://api.deepseek.com/anthropic",
            "https://api.deepseek.com/anthropic/v1",
        ),
        (
            "https://a.example/claude/v1/?b=c",
            "https://a.example/claude/v1/?b=c",
        ),
        (
            "https://a.example/claude?b=c",
            "https://a.example/claude/v1?b=c",
        ),
        ("nowhere", "nowhere"),
    ] {
        assert_eq!(Messages::default().base_url(given), expected, "{given}");
    }
}

fn answers_with(schema: Value) -> ModelRequest {
    request(|settings| {
        settings.response_format = Some(ResponseFormat::JsonSchema {
            name: "tree".into(),
            schema,
            strict: true,
        });
    })
}

fn tree(below: Value) -> Value {
    json!({
        "type": "object",
        "properties": { "root": { "$ref": "#/$defs/Node" } },
        "$defs": {
            "Node": { "type": "object", "properties": { "below": below } },
            "Leaf": { "type": "string" },
        },
    })
}

/// egonSchiele/agency-lang#487: the provider answers "Circular reference detected".
#[test]
fn a_schema_that_refers_to_itself_stands_in_the_instructions() {
    let whole = json!({ "type": "object", "properties": { "next": { "$ref": "#" } } });
    let list = json!({ "type": "array", "items": { "$ref": "#/$defs/Node" } });
    for schema in [tree(list), whole] {
        let mut request = answers_with(schema.clone());
        // With reasoning, no call can be forced.
        request.settings_mut().reasoning_effort = Some(ReasoningEffort::Low);
        request.add_instructions("Be brief.");
        let sent = body(&request);
        assert_eq!(sent["output_config"].get("format"), None, "{sent}");
        assert_eq!(sent["system"][0]["text"], "Be brief.");
        let text = sent["system"][1]["text"].as_str().unwrap();
        assert!(text.ends_with(&schema.to_string()), "{text}");
    }
    // The same part twice is no circle.
    let leaf = json!({ "anyOf": [{ "$ref": "#/$defs/Leaf" }, { "$ref": "#/$defs/Leaf" }] });
    let sent = body(&answers_with(tree(leaf)));
    assert_eq!(sent["output_config"]["format"]["type"], "json_schema");
    assert_eq!(sent.get("system"), None);
}
