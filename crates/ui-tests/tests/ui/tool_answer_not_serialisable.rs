// The cure: `Json(..)` around a type that is `Serialize`.
use serde_json::Value;
use tower_agent::{Json, Tool};

struct Weather {
    _celsius: f64,
}

fn main() {
    let _ = Tool::function("weather", "Tells it.", |_: Value| Weather { _celsius: 21.5 });
    let _ = Tool::function("weather", "Tells it.", |_: Value| Json(Weather { _celsius: 21.5 }));
    let _ = Tool::function("weather", "Tells it.", async |_: Value| Weather { _celsius: 21.5 });
}
