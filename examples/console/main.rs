//! A console over a fleet of agents: a team, one that is retried, a mail that gives orders and is
//! not obeyed, a budget that runs out, and a refund that waits for support.
//!
//! ```text
//! cargo run -p console
//! ```
//!
//! Then open the printed URL. The models are scripts, so it needs no key. Each agent runs once
//! before the server starts, and then again every few seconds, unless `ROUNDS` is 1. With
//! `DATABASE=runs.db` the runs of earlier processes are there as well.

mod fleet;
#[path = "../agui_server/port.rs"]
mod port;
#[path = "../shop/terminated.rs"]
mod terminated;

use std::env;
use std::net::Ipv4Addr;
use std::time::Duration;

use axum::Router;
use axum::response::Redirect;
use axum::routing::get;
use tokio::net::TcpListener;
use tower_agent::BoxError;
use tower_agent_agui::conversations::{ConversationKey, Roles};
use tower_agent_console::{Console, Fork, Operator};
use tower_agent_durable::Sqlite;

use self::fleet::Fleet;

/// The time between two rounds of the fleet.
const PAUSE: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let terminated = terminated::terminated()?;
    let mut console = Console::new()
        .record_content()
        .user_id(|run| ConversationKey::of(run).map(|key| key.user.to_string()));
    let database = match env::var_os("DATABASE") {
        Some(file) => {
            let database = Sqlite::open(file).await?;
            console = console.stored_in(database.clone());
            database
        }
        None => Sqlite::in_memory().await?,
    };
    let console = console.durable_runs(database.runs());
    let fleet = Fleet::new(&console, database)?;
    fleet.round().await;
    console.flush().await;

    let page = console.clone().inbox(fleet.support());
    // Of a developer's machine alone. A server for others names its operators: `into_service`.
    let developer = Operator::new("developer")
        .sees_content()
        .sees_users()
        .manages_data()
        .resumes_runs()
        .answers_as(Roles::new([fleet::SUPPORT, Fork::ROLE]));
    let app = Router::new()
        .route("/", get(|| async { Redirect::to("/console") }))
        .nest_service("/console", page.into_local_service(developer));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port::port()?)).await?;
    println!("http://{}/console", listener.local_addr()?);

    if env::var("ROUNDS").as_deref() != Ok("1") {
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(PAUSE).await;
                fleet.round().await;
            }
        });
    }
    let closing = console.clone();
    axum::serve(listener, app)
        .with_graceful_shutdown(async move {
            terminated.await;
            closing.close();
        })
        .await?;
    console.flush().await;
    Ok(())
}
