use std::env;

use tower_agent::BoxError;

/// Returns the port in `PORT`, or 3000.
pub(crate) fn port() -> Result<u16, BoxError> {
    let Ok(port) = env::var("PORT") else {
        return Ok(3000);
    };
    let number = port.parse();
    number.map_err(|error| format!("PORT is `{port}`: {error}").into())
}
