// An async closure that borrows the request. The cure: `before_model_async`.
use tower_agent::callback::before_model;

fn main() {
    let _ = before_model(async |request| request.add_instructions("Be brief."));
}
