// An async function that borrows the request. The cure: `before_model_async`.
use tower_agent::ModelRequest;
use tower_agent::callback::before_model;

async fn terse(request: &mut ModelRequest) {
    request.add_instructions("Be brief.");
}

fn main() {
    let _ = before_model(terse);
}
