//! An agent to talk to from a browser, over AG-UI, with no key and no network.
//!
//! ```text
//! cargo run --example agui_server
//! ```
//!
//! Then open the address that it prints. The page shows the answer as it is written, what each
//! callback decides on the way, and the session's state; it asks you before a file is deleted, and
//! has a tool of its own.
//!
//! It listens on 127.0.0.1, on port 3000 or that of `PORT`, and refuses what is meant for another
//! host or comes from another page. The model is a few rules; with
//! `OPENAI_API_KEY`, and `OPENAI_BASE_URL` for a server other than OpenAI's, it is the one named by
//! `OPENAI_MODEL`.

mod app;
mod local;
mod notes;
mod offline;
mod session;

// The arithmetic is the quickstart's.
#[path = "../quickstart/callbacks.rs"]
mod callbacks;
#[path = "../quickstart/rules/mod.rs"]
mod rules;
#[path = "../quickstart/server.rs"]
mod server;
#[path = "../quickstart/tools.rs"]
mod tools;

use std::env;
use std::net::Ipv4Addr;

use tokio::net::TcpListener;
use tower_agent::BoxError;

use self::app::app;
use self::offline::Offline;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let port = match env::var("PORT") {
        Ok(port) => port.parse().map_err(|error| format!("PORT is `{port}`: {error}"))?,
        Err(_) => 3000,
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    let address = listener.local_addr()?;
    let app = match server::model()? {
        Some(model) => app(model, address.port())?,
        None => app(Offline, address.port())?,
    };
    println!("http://{address}");
    Ok(axum::serve(listener, app).await?)
}
