//! The example of a gateway, called by a client that somebody else wrote.

#[path = "../../../../examples/gateway/answer.rs"]
mod answer;
#[path = "../../../../examples/gateway/connections.rs"]
mod connections;
#[path = "../../../../examples/gateway/mock.rs"]
mod mock;
mod refused;
#[path = "../../../../examples/gateway/request.rs"]
mod request;
mod sdk;
mod secure;
#[path = "../../../../examples/gateway/server.rs"]
mod server;
// A test sets what the program reads from its environment.
#[expect(dead_code)]
#[path = "../../../../examples/gateway/settings.rs"]
mod settings;
#[path = "../../../../examples/gateway/stack.rs"]
mod stack;
#[path = "../../../../examples/gateway/telemetry.rs"]
mod telemetry;

use std::future::pending;
use std::net::Ipv4Addr;
use std::time::Duration;

use async_openai::Client;
use async_openai::config::OpenAIConfig;
use async_openai::error::OpenAIError;
use async_openai::types::chat::{
    ChatCompletionRequestUserMessage, ChatCompletionStreamOptions, CreateChatCompletionRequest,
    CreateChatCompletionRequestArgs, FinishReason,
};
use futures::StreamExt;
use tokio::net::TcpListener;

use self::connections::Limits;
use self::settings::{MockSettings, Settings};
use self::telemetry::Telemetry;

const WORDS: usize = 20;

/// Starts a gateway in front of these providers, and returns its address.
async fn start(providers: Vec<String>, requests_per_minute: u64) -> String {
    let limits = Limits::default();
    start_within(providers, requests_per_minute, limits).await.0
}

/// Starts a gateway with these limits, and returns its address and what it counts.
async fn start_within(
    providers: Vec<String>,
    requests_per_minute: u64,
    limits: Limits,
) -> (String, Telemetry) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let pairs = ["ada=sk-ada", "grace=sk-grace"].map(str::to_owned);
    let settings = Settings {
        is_mock: false,
        mock: mock_settings(),
        address,
        metrics: address,
        providers: providers.clone(),
        provider_key: None,
        tenants: settings::tenants(&pairs).unwrap(),
        requests_per_minute,
        hedge_after: Duration::from_secs(60),
    };
    let telemetry = Telemetry::default();
    let model = stack::model(&providers, &settings, &telemetry).unwrap();
    let app = server::app(model, settings.tenants, limits);
    tokio::spawn(connections::serve(listener, app, limits, pending()));
    (format!("http://{address}/v1"), telemetry)
}

fn mock_settings() -> MockSettings {
    MockSettings {
        first: Duration::ZERO,
        step: Duration::ZERO,
        words: WORDS,
    }
}

async fn mocks() -> Vec<String> {
    let mut providers = Vec::new();
    for _ in 0..2 {
        providers.push(mock::start(mock_settings()).await.unwrap());
    }
    providers
}

fn client(address: &str, key: &str) -> Client<OpenAIConfig> {
    let config = OpenAIConfig::new().with_api_base(address).with_api_key(key);
    Client::with_config(config)
}

fn request(text: &str) -> CreateChatCompletionRequest {
    CreateChatCompletionRequestArgs::default()
        .model("m")
        .messages([ChatCompletionRequestUserMessage::from(text).into()])
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_whole_answer_is_read_with_its_tokens() {
    let address = start(mocks().await, 1000).await;
    let chat = client(&address, "sk-ada");
    let answer = chat.chat().create(request("Hello.")).await.unwrap();
    let choice = &answer.choices[0];
    assert_eq!(
        choice.message.content.as_deref(),
        Some(&*"word ".repeat(WORDS))
    );
    assert_eq!(choice.finish_reason, Some(FinishReason::Stop));
    let usage = answer.usage.unwrap();
    assert_eq!((usage.prompt_tokens, usage.completion_tokens), (10, 20));
}

#[tokio::test]
async fn a_stream_is_read_in_pieces_and_says_the_same() {
    let address = start(mocks().await, 1000).await;
    let chat = client(&address, "sk-ada");
    let mut streamed = request("Hello.");
    streamed.stream_options = Some(ChatCompletionStreamOptions {
        include_usage: Some(true),
        include_obfuscation: None,
    });
    let mut pieces = chat.chat().create_stream(streamed).await.unwrap();
    let mut text = String::new();
    let mut texts = 0;
    let mut finished = Vec::new();
    let mut tokens = None;
    while let Some(piece) = pieces.next().await {
        let piece = piece.unwrap();
        tokens = tokens.or(piece.usage.map(|usage| usage.completion_tokens));
        for choice in piece.choices {
            finished.extend(choice.finish_reason);
            if let Some(more) = choice.delta.content {
                text += &more;
                texts += 1;
            }
        }
    }
    assert_eq!(text, "word ".repeat(WORDS));
    assert!(texts > 1, "it comes in pieces");
    assert_eq!(finished, [FinishReason::Stop]);
    assert_eq!(tokens, Some(20));
}

#[tokio::test]
async fn a_key_that_is_not_known_is_refused() {
    let address = start(mocks().await, 1000).await;
    let chat = client(&address, "mallory");
    let error = chat.chat().create(request("Hello.")).await.unwrap_err();
    let OpenAIError::ApiError(refused) = error else {
        panic!("{error}")
    };
    assert_eq!(refused.status_code.as_u16(), 401);
    assert_eq!(refused.api_error.message, "unknown key");
}

/// A call that is beyond its tenant's limit and cannot wait is refused; the other tenant is not
/// held up.
#[tokio::test]
async fn a_tenant_beyond_its_limit_reads_429_and_the_others_go_on() {
    // The next one of a minute would have to wait a minute.
    let address = start(mocks().await, 1).await;
    let chat = client(&address, "sk-ada");
    chat.chat().create(request("One.")).await.unwrap();
    // The client would wait as long as it is told to, and try again.
    let refused = reqwest::Client::new()
        .post(format!("{address}/chat/completions"))
        .bearer_auth("sk-ada")
        .json(&request("Two."))
        .send()
        .await
        .unwrap();
    assert_eq!(refused.status().as_u16(), 429);
    assert_eq!(refused.headers()["retry-after"], "60");
    // An equal request costs nothing, and another tenant has its own limit.
    let again = chat.chat().create(request("One.")).await.unwrap();
    assert_eq!(again.usage.unwrap().total_tokens, 0);
    let other = client(&address, "sk-grace");
    other.chat().create(request("Two.")).await.unwrap();
}

#[tokio::test]
async fn a_provider_that_is_down_is_not_seen_by_the_client() {
    let mut providers = mocks().await;
    // Nobody listens there.
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    providers.push(format!("http://{}/v1", closed.local_addr().unwrap()));
    drop(closed);
    let address = start(providers, 1000).await;
    let chat = client(&address, "sk-ada");
    for number in 0..20 {
        let text = format!("Question {number}.");
        let answer = chat.chat().create(request(&text)).await.unwrap();
        assert_eq!(answer.usage.unwrap().completion_tokens, 20);
    }
}

#[tokio::test]
async fn a_setting_that_would_be_lost_is_refused() {
    let address = start(mocks().await, 1000).await;
    let chat = client(&address, "sk-ada");
    let mut unknown = request("Hello.");
    unknown.logprobs = Some(true);
    let error = chat.chat().create(unknown).await.unwrap_err();
    let OpenAIError::ApiError(refused) = error else {
        panic!("{error}")
    };
    assert_eq!(refused.status_code.as_u16(), 400);
    assert!(refused.api_error.message.contains("logprobs"));
}
