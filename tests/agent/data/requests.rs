//! A request and its settings.

use serde_json::{Value, json};
use tower_agent::model::{PromptCache, ReasoningEffort, ToolChoice};
use tower_agent::{Message, ModelRequest, Settings};

#[test]
fn changing_one_clone_of_a_request_leaves_the_other() {
    let mut settings = Settings::default();
    settings.temperature = Some(0.5);
    let request = ModelRequest::new([Message::user("?")]).with_settings(settings);
    let mut changed = request.clone();
    changed.settings_mut().temperature = Some(1.0);
    changed.messages_mut().push(Message::user("!"));
    changed.add_instructions("one");
    changed.add_instructions("two");
    changed.extensions_mut().insert(7_u32);

    assert_eq!(request.settings().temperature, Some(0.5));
    assert_eq!(
        (request.messages().len(), request.instructions()),
        (1, None)
    );
    assert!(request.extensions().is_empty());
    assert_eq!(changed.instructions(), Some("one\n\ntwo"));
}

#[test]
fn settings_fall_back_one_by_one() {
    let mut base = Settings::default();
    base.model = Some("small".into());
    base.tool_choice = Some(ToolChoice::Auto);
    base.stop = vec!["END".into()];
    base.prompt_cache = Some(PromptCache::new().with_key("base"));
    base.extra.insert("top_k".into(), json!(40));
    base.extra.insert("user".into(), json!("a"));
    let mut own = Settings::default();
    own.tool_choice = Some(ToolChoice::Required);
    own.reasoning_effort = Some(ReasoningEffort::Low);
    own.extra.insert("user".into(), json!("b"));

    let merged = own.or(&base);

    assert_eq!(merged.model.as_deref(), Some("small"));
    assert_eq!(merged.tool_choice, Some(ToolChoice::Required));
    assert_eq!(merged.reasoning_effort, Some(ReasoningEffort::Low));
    assert_eq!(merged.stop, ["END"]);
    assert_eq!(
        merged.prompt_cache,
        Some(PromptCache::new().with_key("base"))
    );
    assert_eq!(
        Value::Object(merged.extra),
        json!({ "top_k": 40, "user": "b" })
    );
}
