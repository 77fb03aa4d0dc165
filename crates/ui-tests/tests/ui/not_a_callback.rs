// A tower layer among callbacks. The cure: register it as a layer.
use std::time::Duration;

use tower::timeout::TimeoutLayer;
use tower_agent::{Callbacks, ModelRequest};

fn main() {
    let _ = Callbacks::<ModelRequest>::new().with(TimeoutLayer::new(Duration::from_secs(5)));
}
