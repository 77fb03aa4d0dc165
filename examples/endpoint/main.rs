//! An agent behind an endpoint of an axum service that has a tower stack of its own. No key and no
//! network.
//!
//! ```text
//! cargo run -p endpoint
//! curl -N http://127.0.0.1:3000/chat -d 'what is 12.5% of 840, plus 17?'
//! ```
//!
//! The answer is streamed as server-sent events. A run that fails before it has shown anything is a
//! status of HTTP. A client that goes away cancels its run. A server that is told to stop lets its
//! runs end for a while.
//!
//! It listens on 127.0.0.1, port 3000 or `PORT`. The model is the quickstart's stand-in.

mod chat;
mod service;

// The arithmetic is the quickstart's, the port is the AG-UI server's, and the end is the shop's.
#[path = "../agui_server/port.rs"]
mod port;
#[path = "../quickstart/script.rs"]
mod script;
#[path = "../shop/terminated.rs"]
mod terminated;
#[path = "../quickstart/tools.rs"]
mod tools;

use std::net::Ipv4Addr;

use tokio::net::TcpListener;
use tower_agent::{Agent, BoxError};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let port = port::port()?;
    let agent = Agent::builder(script::Script)
        .instructions("Do all arithmetic with the tools. Answer in one sentence.")
        .tools(tools::tools())
        .build()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    println!("http://{}/chat", listener.local_addr()?);
    service::serve(listener, agent, terminated::terminated()?).await?;
    Ok(())
}
