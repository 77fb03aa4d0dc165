//! Two models: the second is called when the first has failed.
//!
//! `cargo run --example fallback`

use tower_agent::callback::after_model;
use tower_agent::{Agent, BoxError, Error, ErrorKind};
use tower_agent_middleware::fallback::Fallback;
use tower_agent_test::{ScriptedModel, Turn};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let overloaded = Error::new(ErrorKind::Overloaded, "busy");
    let large = ScriptedModel::always(Turn::error(overloaded));
    let down = Error::new(ErrorKind::Connection, "no route");
    let small = ScriptedModel::new([Turn::from_text("It rains."), Turn::error(down)]);

    // A fallback is a model: the agent's callbacks see one call, whichever model answers.
    let agent = Agent::builder(Fallback::new(large).or(small))
        .on_model(after_model(|_, response| {
            println!("a model answered: {}", response.message().text());
        }))
        .build()?;

    println!("{}", agent.run("Does it rain?").await?.text());
    // The second run finds both models down, and its error names both reasons.
    match agent.run("And now?").await {
        Ok(response) => println!("{}", response.text()),
        Err(error) => println!("{error}"),
    }
    Ok(())
}
