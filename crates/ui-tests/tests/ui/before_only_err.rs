// `Err` alone does not say what `Ok` would be. The cure: `Err::<(), _>(..)`.
use tower_agent::Error;
use tower_agent::callback::before_model;

fn main() {
    let _ = before_model(|_| Err(Error::abort("enough")));
}
