//! A model chosen by name.

use tower::ServiceExt;
use tower_agent::model::ModelResponse;
use tower_agent::{BoxError, ErrorKind, ModelRequest};
use tower_agent_providers::openai::OpenAi;
use tower_agent_providers::{Providers, ProvidersError};

use super::building::{is_child, with_environment};
use super::server::{Server, says};

#[tokio::test(flavor = "multi_thread")]
async fn a_name_chooses_provider_and_model() {
    let server = Server::start([says("ok")]).await;
    let variables = [
        ("OPENAI_BASE_URL", &*server.base_url),
        ("OPENAI_API_KEY", "sk-environment"),
    ];
    tokio::task::block_in_place(|| with_environment("choosing::child_calls", &variables));
    let seen = server.only();
    assert_eq!(seen.header("authorization"), Some("Bearer sk-environment"));
    assert_eq!(seen.body["model"], "llama3.2:3b");
}

#[tokio::test]
#[ignore = "a child of another test"]
async fn child_calls() {
    if is_child() {
        let model = Providers::from_env().model(" openai:llama3.2:3b").unwrap();
        let response: ModelResponse = model.oneshot(ModelRequest::default()).await.unwrap();
        assert_eq!(response.message().text(), "ok");
    }
}

#[test]
fn each_protocol_has_a_name() {
    let providers = Providers::from_env();
    let names: Vec<_> = providers.names().collect();
    let expected = [
        "anthropic",
        "bedrock",
        "bedrock-anthropic",
        "gemini",
        "gemini-interactions",
        "ollama",
        "openai",
        "openai-responses",
        "vertex",
        "vertex-anthropic",
    ];
    assert_eq!(names, expected);
    // Those of clouds have an address only with a region or a project.
    let is_of_cloud = |name: &&str| name.starts_with("bedrock") || name.starts_with("vertex");
    for name in names.into_iter().filter(|name| !is_of_cloud(name)) {
        assert!(providers.model(&format!("{name}:any")).is_ok(), "{name}");
    }
}

#[test]
fn a_wrong_name_is_an_error_that_says_what_is_known() {
    let providers = Providers::new()
        .with("local", |model| {
            Ok::<_, BoxError>(OpenAi::builder().model(model).build()?)
        })
        .with("far", |model| {
            Ok::<_, BoxError>(OpenAi::builder().base_url("ftp://x").model(model).build()?)
        });
    assert_eq!(providers.names().collect::<Vec<_>>(), ["far", "local"]);
    let error = |name: &str| providers.model(name).unwrap_err();

    let unnamed = error("qwen3");
    assert!(matches!(&unnamed, ProvidersError::NoProvider { name, .. } if name == "qwen3"));
    assert_eq!(
        unnamed.to_string(),
        "`qwen3` names no provider: write `<provider>:qwen3`, with one of `far`, `local`"
    );
    let unknown = error("near:qwen3");
    assert!(
        unknown
            .to_string()
            .starts_with("there is no provider `near`, only `far`, `local`;")
    );
    assert!(matches!(error("local: "), ProvidersError::NoModel { .. }));
    let misconfigured = error("far:qwen3");
    assert!(
        misconfigured
            .to_string()
            .contains("invalid base URL `ftp://x`"),
        "{misconfigured}"
    );
    assert_eq!(
        tower_agent::Error::from(misconfigured).kind(),
        ErrorKind::InvalidRequest
    );
}
