// A text is no decision. The cure: `Action::Respond(ModelResponse::from_text(..))`.
use tower_agent::ModelRequest;
use tower_agent::callback::before_model;

fn main() {
    let _ = before_model(|_: &mut ModelRequest| "no");
}
