//! An answer with a type: the model repairs an answer that does not match it.
//!
//! `cargo run --example typed`

use schemars::JsonSchema;
use serde::Deserialize;
use tower_agent::{Agent, BoxError};
use tower_agent_test::{ScriptedModel, Turn};

#[derive(Deserialize, JsonSchema)]
struct Weather {
    city: String,
    celsius: f64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let model = ScriptedModel::new([
        Turn::from_text(r#"{ "city": "Oslo" }"#),
        Turn::from_text(r#"{ "city": "Oslo", "celsius": 21 }"#),
    ]);
    let agent = Agent::builder(model.clone()).build()?;

    let response = agent.run_typed("How warm is it in Oslo?").await?;
    let weather: Weather = response.into_value()?;
    println!("{}: {} degrees", weather.city, weather.celsius);

    println!("\nThe last request of the model:");
    for message in model
        .requests()
        .last()
        .into_iter()
        .flat_map(|request| request.messages().iter())
    {
        println!("{:?}: {}", message.role(), message.text());
    }
    Ok(())
}
