//! A process is told to stop in the middle of an answer, and the next one goes on at once.
//!
//! `cargo run --example deployment`

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tower::{Layer, ServiceExt};
use tower_agent::stream::Delta;
use tower_agent::{
    Agent, BoxError, CancellationToken, Error, ErrorKind, ModelRequest, ModelResponse,
};
use tower_agent_agui::{AgUi, AgUiRun, EventKind, Message, RunAgentInput};
use tower_agent_conversations::{ConversationKey, SessionLayer, SessionService};

use tower_agent_durable::Sqlite;

/// Tells a story, or the beginning of one.
fn agent(is_slow: bool) -> Result<Agent, BoxError> {
    let model = tower::service_fn(move |request: ModelRequest| async move {
        let Some(sender) = request.delta_sender() else {
            if is_slow {
                std::future::pending::<()>().await;
            }
            return Ok(ModelResponse::from_text("Once upon a time."));
        };
        let mut attempt = sender.open();
        attempt.send(Delta::Text("Once ".into())).await?;
        if is_slow {
            std::future::pending::<()>().await;
        }
        attempt.send(Delta::Text("upon a time.".into())).await?;
        Ok::<_, Error>(ModelResponse::from(attempt.finish().await?))
    });
    Ok(Agent::builder(model).build()?)
}

/// The parts of one process.
struct Process {
    database: Sqlite,
    /// For pages.
    agui: AgUi,
    /// For the program's own code.
    sessions: SessionLayer,
    chat: SessionService<Agent>,
    jobs: TaskTracker,
    /// Cancels the jobs.
    stopping: CancellationToken,
}

impl Process {
    async fn start(file: &Path, is_slow: bool) -> Result<Self, BoxError> {
        let database = Sqlite::open(file).await?;
        let agui = AgUi::builder(agent(is_slow)?)
            .name("stories")
            .threads(database.clone())
            .lease(Duration::from_secs(30))
            .max_runs(200)
            .max_runs_per_principal(4)
            .max_run_time(Duration::from_secs(600))
            .build();
        let sessions = SessionLayer::new(database.clone());
        let chat = sessions.layer(agent(is_slow)?);
        Ok(Self {
            database,
            agui,
            sessions,
            chat,
            jobs: TaskTracker::new(),
            stopping: CancellationToken::new(),
        })
    }

    /// To be called on SIGTERM. Afterwards the process may exit.
    async fn stop(&self, grace: Duration) {
        let jobs = async {
            self.jobs.close();
            if timeout(grace, self.jobs.wait()).await.is_err() {
                self.stopping.cancel();
                self.jobs.wait().await;
            }
            // Those that were dropped.
            self.sessions.finish().await;
        };
        tokio::join!(self.agui.shutdown(grace), jobs);
        self.database.close().await;
    }
}

/// Returns the text that a page receives, and the code of the error at its end.
async fn page(mut run: AgUiRun) -> (String, Option<Arc<str>>) {
    let mut text = String::new();
    let mut code = None;
    while let Some(event) = run.next().await {
        match event.kind {
            EventKind::TextMessageContent { delta, .. } => text.push_str(&delta),
            EventKind::RunError(error) => code = error.code,
            _ => {}
        }
    }
    (text, code)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let file = std::env::temp_dir().join(format!("deployment-{}.db", std::process::id()));
    let input = || RunAgentInput::new("t1", "r1", [Message::user("m1", "Tell me a story.")]);
    let key = ConversationKey::new("stories", "ada", "1");

    // A page and a job of the program wait for their answers when the process is told to stop.
    let old = Process::start(&file, true).await?;
    let shown = page(old.agui.run(input()).await?);
    let request = key.request("Tell me a story.");
    let request = request.with_cancellation(old.stopping.child_token());
    let job = old.jobs.spawn(old.chat.clone().oneshot(request));
    let (shown, ()) = tokio::join!(shown, old.stop(Duration::from_millis(100)));
    assert_eq!(shown, ("Once ".into(), Some("shutting_down".into())));
    let cancelled = job.await?.map_err(|error| error.kind());
    assert_eq!(cancelled.err(), Some(ErrorKind::Cancelled));

    // The next process has both conversations, and waits for no lease. The page sends what it has
    // sent before.
    let new = Process::start(&file, false).await?;
    let (text, code) = page(new.agui.run(input()).await?).await;
    assert_eq!((&*text, code), ("Once upon a time.", None));
    let answer = new.chat.clone().oneshot(key.request("Go on.")).await?;
    assert_eq!(answer.text(), "Once upon a time.");
    assert_eq!(answer.messages().len(), 3);
    new.stop(Duration::ZERO).await;
    println!("The next process went on at once.");
    std::fs::remove_file(&file)?;
    Ok(())
}
