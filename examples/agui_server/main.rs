//! An agent to use from a browser over AG-UI, without a key or a network.
//!
//! ```text
//! cargo run --example agui_server
//! ```
//!
//! Then open the printed URL. The page shows streamed responses, the decisions of callbacks, and
//! the session's state. It asks for approval before a file is deleted, and has a tool of its own.
//!
//! The server listens on 127.0.0.1, port 3000 or `PORT`, and rejects requests for other hosts or
//! from other pages. The model is a stand-in; with `MODEL=openai:gpt-4o-mini`, or another
//! provider and model, it is that model.

mod app;
mod local;
mod notes;
mod offline;
mod port;
mod session;

// The arithmetic is the quickstart's, and the end is the shop's.
#[path = "../quickstart/callbacks.rs"]
mod callbacks;
#[path = "../quickstart/script.rs"]
mod script;
#[path = "../shop/serve.rs"]
mod serve;
#[path = "../quickstart/server.rs"]
mod server;
#[path = "../shop/terminated.rs"]
mod terminated;
#[path = "../quickstart/tools.rs"]
mod tools;

use std::net::Ipv4Addr;

use tokio::net::TcpListener;
use tower_agent::BoxError;

use self::app::{agent, app};
use self::offline::Offline;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let port = port::port()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    let address = listener.local_addr()?;
    let agent = match server::model()? {
        Some(model) => agent(model)?,
        None => agent(Offline)?,
    };
    println!("http://{address}");
    let app = app(agent.clone(), address.port());
    Ok(serve::serve(listener, app, agent).await?)
}
