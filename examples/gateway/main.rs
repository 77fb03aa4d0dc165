//! An OpenAI-compatible server in front of two providers, without a key or a network.
//!
//! ```text
//! cargo run --example gateway
//! ```
//!
//! Then, in another terminal:
//!
//! ```text
//! curl -N localhost:3001/v1/chat/completions -H 'authorization: Bearer sk-ada' \
//!     -H 'content-type: application/json' \
//!     -d '{ "model": "m", "stream": true, "messages": [{ "role": "user", "content": "Hello." }] }'
//! curl localhost:3002/metrics
//! ```
//!
//! Everything between the two protocols is a stack of layers, in `stack.rs`. The two providers are
//! mocks of this process; `PROVIDERS` names others by their URLs. README.md has all settings and
//! figures.

mod answer;
mod connections;
mod mock;
mod request;
mod server;
mod settings;
mod stack;
mod telemetry;

use tokio::net::TcpListener;
use tower_agent::BoxError;

use self::connections::Limits;
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
    let metrics = TcpListener::bind(settings.metrics).await?;
    let listener = TcpListener::bind(settings.address).await?;
    println!(
        "http://{}/v1 in front of {providers:?}; the counts: http://{}/metrics",
        listener.local_addr()?,
        metrics.local_addr()?
    );
    let limits = Limits::default();
    let app = server::app(model, settings.tenants, limits);
    tokio::spawn(connections::serve(
        metrics,
        telemetry.app(),
        limits,
        std::future::pending(),
    ));
    connections::serve(listener, app, limits, async {
        // Without a handler there is nothing to wait for.
        let _ = tokio::signal::ctrl_c().await;
    })
    .await;
    Ok(())
}
