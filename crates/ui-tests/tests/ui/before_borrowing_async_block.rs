// A block that borrows the request. The cure: change it before the block, or
// `before_model_async`.
use tower_agent::callback::before_model;

fn main() {
    let _ = before_model(|request| async move {
        request.add_instructions("Be brief.");
    });
}
