//! The official AG-UI client, its own verification on, against agents of every semantics.

mod scenarios;

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::{Path as Segments, Request};
use axum::response::IntoResponse;
use axum::routing::{any, get};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::process::Command;
use tower::ServiceExt;
use tower_agent::compat::Semantics;
use tower_agent_agui::conversations::{MemoryConversations, SealKey};
use tower_agent_agui::{AgUi, AgUiBuilder};

use test_support::process::is_installed;

fn semantics(preset: &str) -> Semantics {
    match preset {
        "default" => Semantics::default(),
        "potato" => Semantics::potato(),
        "adk_python" => Semantics::adk_python(),
        "adk_elixir" => Semantics::adk_elixir(),
        "trpc" => Semantics::trpc(),
        other => panic!("there is no preset `{other}`"),
    }
}

/// How many runs are under way.
#[derive(Clone, Default)]
pub(crate) struct Active(Arc<AtomicUsize>);

/// A run under way.
pub(crate) struct Run(Active);

impl Active {
    pub(crate) fn enter(&self) -> Run {
        self.0.fetch_add(1, Ordering::SeqCst);
        Run(self.clone())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Every scenario, under every preset: each request has a server of its own, and what keeps the
/// threads is shared.
fn app(kept: impl Fn(AgUiBuilder) -> AgUiBuilder + Clone + Send + Sync + 'static) -> Router {
    let active = Active::default();
    let counted = active.clone();
    let scenario = async move |Segments((preset, name)): Segments<(String, String)>,
                               request: Request| {
        let agent = scenarios::agent(&name, semantics(&preset));
        let agent = scenarios::counted(agent, counted);
        kept(AgUi::builder(agent))
            .semantics(semantics(&preset).band)
            .build()
            .oneshot(request)
            .await
            .into_response()
    };
    let runs = async move || json!({ "active": active.0.load(Ordering::SeqCst) }).to_string();
    Router::new()
        .route("/scenarios/{preset}/{name}", any(scenario))
        .route("/runs", get(runs))
}

async fn client(app: Router, presets: &[&str], expected: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/front_end");
    if !is_installed(
        "@ag-ui/client",
        &folder.join("node_modules/@ag-ui/client"),
        ".ci/agui",
    ) {
        return;
    }
    drive(app, expected, |base| {
        let mut client = Command::new("node");
        client
            .arg(folder.join("client.mjs"))
            .arg(base)
            .args(presets);
        client
    })
    .await;
}

/// Runs a client of this server, which says of so many scenarios that they hold.
async fn drive(app: Router, expected: usize, client: impl FnOnce(String) -> Command) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move { axum::serve(listener, app).await });

    let output = client(base)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();

    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complained}");
    assert_eq!(
        said.lines().filter(|line| line.starts_with("ok ")).count(),
        expected,
        "{said}"
    );
    server.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_client_finds_nothing_wrong_with_any_preset() {
    let threads = Arc::new(MemoryConversations::new());
    client(
        app(move |server| server.threads(threads.clone())),
        &[],
        5 * 16 + 2 + 6,
    )
    .await;
}

/// It sends back what is sealed, where it was told to keep it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_client_carries_sealed_threads() {
    let key = SealKey::new([7; 32]);
    let app = app(move |server| server.stateless(key.clone()));
    client(app, &["default"], 16 + 6).await;
}

/// Its page answers every kind of question at once, as `resume` and as messages of tools.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copilotkit_answers_every_kind_of_question() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/copilotkit");
    let core = folder.join("node_modules/@copilotkit/core");
    if !is_installed("@copilotkit/core", &core, ".ci/agui") {
        return;
    }
    let threads = Arc::new(MemoryConversations::new());
    let app = app(move |server| server.threads(threads.clone()));
    drive(app, 9, |base| {
        let mut client = Command::new("node");
        let url = format!("{base}/scenarios/default");
        client
            .arg(folder.join("copilotkit.mjs"))
            .arg("kinds")
            .arg(url);
        client
    })
    .await;
}
