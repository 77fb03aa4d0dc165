//! A bank that pays as often as it is told to.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};
use tower::service_fn;
use tower_agent::BoxError;

use crate::wire;
use crate::world::World;

/// The time after which a payment that was sent has been made, or never will be.
pub(crate) const SETTLED: Duration = Duration::from_secs(10);

pub(crate) async fn run(world: World) -> Result<(), BoxError> {
    let service = service_fn(move |request: Request<Incoming>| {
        let world = world.clone();
        async move {
            let status = match pay(&world, request).await {
                Ok(status) => status,
                Err(_) => StatusCode::BAD_REQUEST,
            };
            let mut response = Response::new(Full::new(Bytes::new()));
            *response.status_mut() = status;
            Ok::<_, Infallible>(response)
        }
    });
    wire::serve(service).await
}

async fn pay(world: &World, request: Request<Incoming>) -> Result<StatusCode, BoxError> {
    let body = request.into_body().collect().await?.to_bytes();
    let request: Value = serde_json::from_slice(&body)?;
    let order = request["order"].as_str().ok_or("no order")?;
    sleep(world.time(Duration::from_millis(2000))).await;
    if world.once_in(10) {
        world.fault("bank");
        return Ok(StatusCode::SERVICE_UNAVAILABLE);
    }
    *world.seen().paid.entry(order.to_owned()).or_default() += 1;
    sleep(world.time(Duration::from_millis(2000))).await;
    Ok(StatusCode::OK)
}

/// Tells the bank to pay, once. Where this fails, nobody knows whether it has paid.
pub(crate) async fn tell_to_pay(order: &str) -> Result<(), BoxError> {
    let body = json!({ "order": order });
    let sent = wire::post("bank", "/", &[], &body);
    let response = timeout(Duration::from_secs(5), sent).await??;
    if response.status() == StatusCode::OK {
        Ok(())
    } else {
        Err("the bank refuses".into())
    }
}
