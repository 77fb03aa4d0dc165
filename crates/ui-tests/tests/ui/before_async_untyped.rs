// The cure: `async |request: &mut ModelRequest|`.
use tower_agent::callback::before_model_async;

fn main() {
    let _ = before_model_async(async |request| request.add_instructions("Be brief."));
}
