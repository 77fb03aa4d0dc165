//! An OpenAI-compatible server in front of two providers, without a key or a network.
//!
//! ```text
//! cargo run --example gateway
//! ```
//!
//! Then, in another terminal:
//!
//! ```text
//! curl -N localhost:3001/v1/chat/completions -H 'authorization: Bearer ada' \
//!     -H 'content-type: application/json' \
//!     -d '{ "model": "m", "stream": true, "messages": [{ "role": "user", "content": "Hello." }] }'
//! curl localhost:3001/metrics
//! ```
//!
//! Everything between the two protocols is a stack of layers, in `stack.rs`. The two providers are
//! mocks of this process; `PROVIDERS` names others by their URLs. README.md has all settings and
//! figures.

mod answer;
mod mock;
mod request;
mod server;
mod settings;
mod stack;
mod telemetry;

use tokio::net::TcpListener;
use tower_agent::BoxError;

use self::settings::Settings;
use self::telemetry::Telemetry;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let settings = Settings::from_env()?;
    if settings.is_mock {
        let listener = TcpListener::bind(settings.address).await?;
        println!("a mock provider: http://{}/v1", listener.local_addr()?);
        return Ok(mock::serve(listener, settings.mock).await?);
    }
    let mut providers = settings.providers.clone();
    if providers.is_empty() {
        for _ in 0..2 {
            providers.push(mock::start(settings.mock).await?);
        }
    }
    let telemetry = Telemetry::default();
    let model = stack::model(&providers, &settings, &telemetry)?;
    let listener = TcpListener::bind(settings.address).await?;
    println!(
        "http://{}/v1 in front of {providers:?}",
        listener.local_addr()?
    );
    let app = server::app(model, settings.keys, telemetry);
    Ok(axum::serve(server::at_once(listener), app)
        .with_graceful_shutdown(async {
            // Without a handler there is nothing to wait for.
            let _ = tokio::signal::ctrl_c().await;
        })
        .await?)
}
