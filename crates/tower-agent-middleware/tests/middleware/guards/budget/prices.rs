//! The prices of a published table.

use tower::ServiceExt;
use tower_agent::message::Metadata;
use tower_agent::model::{BoxModel, CacheRetention, PromptCache};
use tower_agent::{ErrorKind, ModelRequest, ModelResponse, Usage};
use tower_agent_middleware::budget::{
    Account, Limits, ModelPrice, PriceTable, UnknownModel, UnknownPrice,
};
use tower_agent_test::{ScriptedModel, Turn};

use super::charged;

fn table() -> PriceTable {
    PriceTable::from_litellm(include_str!("prices.json")).unwrap()
}

/// In millionths, so that the numbers are readable.
fn cost(model: &str, usage: Usage) -> f64 {
    let price = table()
        .price(model)
        .unwrap_or_else(|| panic!("no price for {model}"))
        .clone();
    (price.cost(usage) * 1e9).round() / 1e3
}

fn usage(input: u64, read: u64, written: u64, output: u64, reasoning: u64) -> Usage {
    let mut usage = Usage::new(input, output);
    usage.cached_input_tokens = read;
    usage.cache_write_tokens = written;
    usage.reasoning_tokens = reasoning;
    usage
}

#[test]
fn each_kind_of_token_has_its_price() {
    assert_eq!(cost("plain", Usage::new(100, 10)), 120.0);
    // Without a price of its own, a kind costs what its side costs.
    assert_eq!(cost("plain", usage(100, 50, 20, 10, 5)), 120.0);
    assert_eq!(
        cost("careful", usage(100, 50, 20, 10, 5)),
        120.0 + 20.0 + 100.0 + 200.0
    );
    assert_eq!(
        cost("thinker", usage(100, 50, 0, 10, 4)),
        100.0 + 12.0 + 12.0
    );
    assert_eq!(cost("ollama/local", Usage::new(100, 10)), 0.0);
    // More parts than there is of the whole cost no less than the parts.
    assert_eq!(cost("careful", usage(10, 50, 0, 1, 2)), 20.0 + 40.0);
}

#[test]
fn a_long_prompt_has_another_price_for_the_whole_call() {
    assert_eq!(cost("careful", Usage::new(200_000, 10)), 800_000.0 + 200.0);
    assert_eq!(
        cost("careful", Usage::new(200_001, 10)),
        1_600_008.0 + 300.0
    );
    let cached = usage(200_001, 200_000, 1, 0, 0);
    // Prices that the tier leaves out are as before.
    assert_eq!(cost("careful", cached), 160_000.0 + 5.0);
    assert_eq!(cost("dashscope/stepped", Usage::new(1000, 1)), 1002.0);
    assert_eq!(cost("dashscope/stepped", Usage::new(1001, 1)), 3007.0);
}

#[test]
fn a_model_without_a_price_is_not_in_the_table() {
    let table = table();
    for name in [
        "sample_spec",
        "fallback_generalizations",
        "by-the-picture",
        "half",
        "in-words",
        "a-gift",
        "vectors",
        "",
        "plai",
        "plain-2026-01",
        "plain-2026-1-1",
        "plain-latest",
        "-2026-01-01",
        "new-2026-01-01",
    ] {
        assert_eq!(table.price(name), None, "{name}");
    }
}

#[test]
fn a_name_is_found_exactly_and_then_by_its_providers_prefix() {
    let table = table();
    let found = |name: &str| table.price(name).map(|price| price.output);
    let plain = found("plain");
    assert!(plain.is_some());
    assert_eq!(found("openai/plain"), plain);
    assert_eq!(found("resold/openai/plain"), Some(7e-6));
    assert_eq!(found("azure/plain"), None);
    // A name alone does not say which provider was asked.
    for name in ["local", "stepped", "twice", "same"] {
        assert_eq!(found(name), None, "{name}");
    }
    assert_eq!(found("there/twice"), Some(9e-6));
    // The caller's own price replaces that of the table.
    let own = table.clone().model("plain", ModelPrice::new(0.0, 7.0));
    assert_eq!(own.price("plain").unwrap().output, 7.0);
    assert_eq!(own.price("openai/plain").unwrap().output, 7.0);
    assert_eq!(found("plain"), plain);
}

#[test]
fn a_date_at_the_end_of_a_name_is_left_out() {
    let table = table();
    let found = |name: &str| table.price(name).map(|price| price.output);
    for name in [
        "plain-2026-01-01",
        "plain-20260101",
        "plain@20260101",
        "openai/plain-2026-01-01",
    ] {
        assert!(found(name).is_some(), "{name}");
        assert_eq!(found(name), found("plain"), "{name}");
    }
    // An entry of its own counts more.
    let own = table
        .clone()
        .model("plain-2026-01-01", ModelPrice::new(0.0, 7.0));
    assert_eq!(own.price("plain-2026-01-01").unwrap().output, 7.0);
}

#[test]
fn the_provider_that_is_asked_decides_what_a_name_costs() {
    let of = |provider: &str, name: &str| {
        let table = table().provider(provider);
        table.price(name).map(|price| price.output)
    };
    assert_eq!(of("there", "twice"), Some(9e-6));
    assert!(of("here", "twice").is_some_and(|price| price != 9e-6));
    assert_eq!(of("ollama", "local-20260101"), Some(0.0));
    // The price of another provider is not taken,
    assert_eq!(of("groq", "plain"), None);
    assert_eq!(of("groq", "twice"), None);
    // unless the name says whose it is,
    assert!(of("groq", "openai/plain").is_some());
    assert_eq!(of("groq", "there/twice"), Some(9e-6));
    // or the caller has set it.
    let own = table()
        .provider("groq")
        .model("plain-too", ModelPrice::new(0.0, 7.0))
        .model("careful", ModelPrice::new(0.0, 7.0));
    assert_eq!(own.price("plain-too").unwrap().output, 7.0);
    assert_eq!(own.price("careful").unwrap().output, 7.0);
}

#[test]
fn the_published_prices_are_those_of_the_providers_that_they_name() {
    let published = PriceTable::published().unwrap();
    let found = |name: &str| published.price(name).map(|price| price.output);
    // As these providers publish them, for a million tokens.
    assert_eq!(found("gpt-4o"), Some(10e-6));
    assert_eq!(found("gpt-4o-2024-08-06"), Some(10e-6));
    let hosted = published.price("groq/openai/gpt-oss-120b");
    assert_eq!(hosted.map(|price| price.output), Some(0.6e-6));
    let groq = published.clone().provider("groq");
    assert_eq!(groq.price("openai/gpt-oss-120b"), hosted);
    assert_eq!(groq.price("gpt-4o"), None);
    // It is not the price of whoever else hosts the model.
    assert_eq!(found("openai/gpt-oss-120b"), None);
    assert_eq!(found("gpt-oss-120b"), None);
}

#[test]
fn a_price_of_nothing_is_one_where_the_model_is_paid_by_the_token() {
    let table = PriceTable::from_litellm(
        r#"{
            "song": { "input_cost_per_token": 0, "output_cost_per_token": 0, "output_cost_per_image": 0.08 },
            "request": { "input_cost_per_token": 0, "output_cost_per_token": 0, "input_cost_per_request": 0.005 },
            "free": { "input_cost_per_token": 0, "output_cost_per_token": 0, "input_cost_per_image": 0 },
            "long": { "input_cost_per_token": 0, "output_cost_per_token": 0,
                      "input_cost_per_token_above_128k_tokens": 1e-6, "input_cost_per_request": 0.005 },
            "half": { "input_cost_per_token": 0, "output_cost_per_token": 1e-6, "input_cost_per_request": 0.005 }
        }"#,
    );
    let table = table.unwrap();
    for (model, is_known) in [
        ("song", false),
        ("request", false),
        ("free", true),
        ("long", true),
        ("half", true),
    ] {
        assert_eq!(table.price(model).is_some(), is_known, "{model}");
    }
    let published = PriceTable::published().unwrap();
    assert!(published.price("gemini/lyria-3.5").is_none());
    assert!(published.price("gemini/gemma-4-31b-it").is_some());
}

#[test]
fn a_text_that_is_no_table_is_an_error() {
    for text in [
        "",
        "[]",
        "{",
        "{}",
        r#"{ "a": 1, "b": { "mode": "chat" } }"#,
    ] {
        let error = PriceTable::from_litellm(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{text}");
    }
}

/// A model that answers with this name, and an account that is charged.
fn served(limits: Limits, by: Option<&str>, usage: Usage) -> (Account, BoxModel) {
    let mut answer = ModelResponse::from_text("hi").with_usage(usage);
    if let Some(by) = by {
        let mut metadata = Metadata::default();
        metadata.model = Some(by.to_owned());
        answer = answer.with_metadata(metadata);
    }
    let account = Account::new(limits);
    let model = BoxModel::new(ScriptedModel::new([Turn::response(answer)]));
    (account.clone(), charged(&account, model))
}

fn asks(model: Option<&str>) -> ModelRequest {
    let mut request = ModelRequest::default();
    request.settings_mut().model = model.map(str::to_owned);
    request.settings_mut().max_tokens = Some(1000);
    request
}

async fn spent(
    limits: Limits,
    asked: Option<&str>,
    by: Option<&str>,
) -> Result<(f64, u64), tower_agent::Error> {
    let (account, model) = served(limits, by, Usage::new(100, 10));
    model.oneshot(asks(asked)).await?;
    Ok((
        (account.used().cost * 1e9).round() / 1e3,
        account.used().unpriced_calls,
    ))
}

fn fails() -> Limits {
    Limits::new().cost_at(9.0, table(), UnknownModel::Fail)
}

#[tokio::test]
async fn the_table_prices_the_calls_of_a_budget() {
    assert_eq!(
        spent(fails(), Some("plain"), None).await.unwrap(),
        (120.0, 0)
    );
    assert_eq!(
        spent(fails(), Some("plain"), Some("careful"))
            .await
            .unwrap(),
        (600.0, 0)
    );
    // A call reserves the price of the output that it may make.
    let few = Limits::new().cost_at(0.001, table(), UnknownModel::Fail);
    let error = spent(few, Some("plain"), None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BudgetExceeded);
}

#[tokio::test]
async fn a_model_without_a_price_does_not_run() {
    for (asked, what) in [(Some("new-model"), "`new-model`"), (None, "names no model")] {
        let error = spent(fails(), asked, None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert!(error.message().contains(what), "{error}");
        let unknown = error.downcast_ref::<UnknownPrice>().unwrap();
        assert_eq!(unknown.model, asked.unwrap_or_default());
    }
}

#[tokio::test]
async fn a_default_model_stands_for_requests_that_name_none() {
    let limits = || {
        let table = table().default_model("plain");
        Limits::new().cost_at(9.0, table, UnknownModel::Fail)
    };
    assert_eq!(spent(limits(), None, None).await.unwrap(), (120.0, 0));
    assert_eq!(
        spent(limits(), None, Some("careful")).await.unwrap(),
        (600.0, 0)
    );
    assert!(spent(limits(), Some("new-model"), None).await.is_err());
}

#[tokio::test]
async fn a_call_that_another_model_served_is_marked_and_never_free() {
    let answered = spent(fails(), Some("plain"), Some("plain-new"))
        .await
        .unwrap();
    assert_eq!(answered, (120.0, 1));

    let assumes = || {
        let price = UnknownModel::Assume(ModelPrice::new(1e-5, 1e-5));
        Limits::new().cost_at(9.0, table(), price)
    };
    assert_eq!(
        spent(assumes(), Some("new-model"), None).await.unwrap(),
        (1100.0, 1)
    );
    assert_eq!(
        spent(assumes(), None, Some("newer")).await.unwrap(),
        (1100.0, 1)
    );
    assert_eq!(
        spent(assumes(), Some("plain"), None).await.unwrap(),
        (120.0, 0)
    );
}

/// The provider is known by the host that was called, without a setting.
#[tokio::test]
async fn a_call_costs_what_the_provider_that_was_asked_takes() {
    let at = async |provider: Option<&'static str>, table: PriceTable| {
        let mut metadata = Metadata::default();
        metadata.model = Some("shared".into());
        metadata.provider = provider.map(Into::into);
        let answer = ModelResponse::from_text("hi")
            .with_usage(Usage::new(0, 10))
            .with_metadata(metadata);
        let price = UnknownModel::Assume(ModelPrice::new(1.0, 5e-6));
        let account = Account::new(Limits::new().cost_at(9.0, table, price));
        let model = BoxModel::new(ScriptedModel::new([Turn::response(answer)]));
        let model = charged(&account, model);
        model.oneshot(asks(Some("shared"))).await.unwrap();
        let used = account.used();
        ((used.cost * 1e9).round() / 1e3, used.unpriced_calls)
    };
    let entry = |provider: &str, price: f64| {
        format!(
            "{{ \"litellm_provider\": \"{provider}\", \"input_cost_per_token\": 0.0, \
             \"output_cost_per_token\": {price} }}"
        )
    };
    let json = format!(
        "{{ \"shared\": {}, \"groq/shared\": {} }}",
        entry("elsewhere", 1e-6),
        entry("groq", 2e-6)
    );
    let table = || PriceTable::from_litellm(&json).unwrap();
    assert_eq!(at(Some("groq"), table()).await, (20.0, 0));
    assert_eq!(at(Some("elsewhere"), table()).await, (10.0, 0));
    // That of another provider is not taken: the call is marked.
    assert_eq!(at(Some("deepseek"), table()).await, (50.0, 1));
    // A server of the caller's own is not known.
    assert_eq!(at(None, table()).await, (10.0, 0));
    // What is set by hand counts more.
    let by_hand = table().provider("groq");
    assert_eq!(at(Some("elsewhere"), by_hand).await, (20.0, 0));
}

/// Prices of models under one name at several providers, for a million tokens of output.
fn shared(entries: &[(&str, &str, f64)]) -> PriceTable {
    let entries = entries.iter().map(|(name, provider, price)| {
        let entry = serde_json::json!({
            "litellm_provider": provider,
            "input_cost_per_token": 0.0,
            "output_cost_per_token": price * 1e-6,
        });
        ((*name).to_owned(), entry)
    });
    let json = serde_json::Value::Object(entries.collect());
    PriceTable::from_litellm(&json.to_string()).unwrap()
}

/// Returns whether a call of a thousand tokens that costs so many thousandths fits, and its price
/// if so.
async fn fits(
    thousandths: f64,
    table: PriceTable,
    model: &str,
    provider: Option<&'static str>,
) -> Option<f64> {
    let mut metadata = Metadata::default();
    metadata.model = Some(model.to_owned());
    metadata.provider = provider.map(Into::into);
    let answer = ModelResponse::from_text("hi")
        .with_usage(Usage::new(0, 1000))
        .with_metadata(metadata);
    let limits = Limits::new().cost_at(thousandths * 1e-3, table, UnknownModel::Fail);
    let account = Account::new(limits);
    let answers = BoxModel::new(ScriptedModel::new([Turn::response(answer)]));
    match charged(&account, answers).oneshot(asks(Some(model))).await {
        Ok(_) => Some((account.used().cost * 1e6).round() / 1e3),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::BudgetExceeded, "{error}");
            None
        }
    }
}

/// Whom the model will ask is not known before the call: no price of another provider makes room
/// for it.
#[tokio::test]
async fn a_call_reserves_the_dearest_price_that_its_name_has() {
    let table = || {
        shared(&[
            ("talker", "elsewhere", 1.0),
            ("groq/talker", "groq", 4.0),
            ("there/talker-2026-01-01", "there", 6.0),
        ])
    };
    for name in ["talker", "talker-20260101"] {
        assert_eq!(fits(3.9, table(), name, Some("groq")).await, None);
        assert_eq!(fits(4.1, table(), name, Some("groq")).await, Some(4.0));
        assert_eq!(fits(4.1, table(), name, Some("elsewhere")).await, Some(1.0));
    }
    assert_eq!(
        fits(5.9, table(), "talker-2026-01-01", Some("there")).await,
        None
    );
    // A provider that is set, or a price, is the one.
    let set = table().provider("elsewhere");
    assert_eq!(fits(1.1, set, "talker", None).await, Some(1.0));
    let own = table().model("talker", ModelPrice::new(0.0, 2e-6));
    assert_eq!(fits(2.1, own, "talker", Some("groq")).await, Some(2.0));
    // An entry of the provider alone suffices.
    let one = shared(&[("groq/alone", "groq", 4.0)]);
    assert_eq!(fits(4.1, one, "alone", Some("groq")).await, Some(4.0));
}

/// A gateway's name of a model begins with that of its maker.
#[tokio::test]
async fn a_call_of_a_gateway_reserves_its_price() {
    let table = || {
        shared(&[
            ("talker", "openai", 1.0),
            ("openrouter/openai/talker", "openrouter", 2.0),
        ])
    };
    let name = "openai/talker";
    assert_eq!(fits(1.9, table(), name, Some("openrouter")).await, None);
    assert_eq!(
        fits(2.1, table(), name, Some("openrouter")).await,
        Some(2.0)
    );
}

/// LiteLLM has several names for one cloud.
#[tokio::test]
async fn a_model_of_a_cloud_has_the_price_of_the_cloud() {
    let table = || {
        shared(&[
            ("claude-9", "anthropic", 1.0),
            (
                "vertex_ai/claude-9@20260101",
                "vertex_ai-anthropic_models",
                2.0,
            ),
            ("gemini-9", "vertex_ai-language-models", 3.0),
            ("gemini/gemini-9", "gemini", 4.0),
            ("vendor.claude-9-v1:0", "bedrock_converse", 5.0),
        ])
    };
    let price = async |name, provider| fits(9.0, table(), name, Some(provider)).await;
    assert_eq!(price("claude-9@20260101", "vertex_ai").await, Some(2.0));
    assert_eq!(price("gemini-9", "vertex_ai").await, Some(3.0));
    assert_eq!(price("gemini-9", "gemini").await, Some(4.0));
    assert_eq!(price("vendor.claude-9-v1:0", "bedrock").await, Some(5.0));
    assert_eq!(price("claude-9", "anthropic").await, Some(1.0));
}

#[tokio::test]
async fn a_cache_that_is_kept_for_long_costs_more_to_write() {
    for (retention, price) in [(CacheRetention::Short, 5.0), (CacheRetention::Long, 8.0)] {
        let (account, model) = served(fails(), None, usage(100, 0, 100, 0, 0));
        let mut request = asks(Some("careful"));
        request.settings_mut().prompt_cache = Some(PromptCache::new().with_retention(retention));
        model.oneshot(request).await.unwrap();
        assert_eq!((account.used().cost * 1e9).round() / 1e3, 100.0 * price);
    }
}

#[tokio::test]
async fn what_the_provider_says_of_the_cache_counts_more_than_the_setting() {
    for (said, long) in [(40, 40.0), (0, 0.0), (1000, 100.0)] {
        let mut metadata = Metadata::default();
        metadata.long_cache_write_tokens = Some(said);
        let answer = ModelResponse::from_text("hi").with_usage(usage(100, 0, 100, 0, 0));
        let answer = Turn::response(answer.with_metadata(metadata));
        let account = Account::new(fails());
        let model = charged(&account, BoxModel::new(ScriptedModel::new([answer])));
        let mut request = asks(Some("careful"));
        let cache = PromptCache::new().with_retention(CacheRetention::Long);
        request.settings_mut().prompt_cache = Some(cache);
        model.oneshot(request).await.unwrap();
        let cost = (account.used().cost * 1e9).round() / 1e3;
        assert_eq!(cost, (100.0 - long) * 5.0 + long * 8.0);
    }
}
