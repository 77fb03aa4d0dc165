// An async function that borrows the request. The cure: `before_model_async`.
use tower_agent::{ModelRequest, before_model};

async fn terse(request: &mut ModelRequest) {
    request.add_instructions("Be brief.");
}

fn main() {
    let _ = before_model(terse);
}
