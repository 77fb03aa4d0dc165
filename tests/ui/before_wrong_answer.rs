// A text is no decision. The cure: `Action::Respond(ModelResponse::text(..))`.
use tower_agent::{ModelRequest, before_model};

fn main() {
    let _ = before_model(|_: &mut ModelRequest| "no");
}
