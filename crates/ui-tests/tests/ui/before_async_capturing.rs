// The cure: a plain closure that clones and returns `async move`, or a `Callback`.
use tower_agent::ModelRequest;
use tower_agent::callback::before_model_async;

fn main() {
    let style = String::from("Be brief.");
    let _ = before_model_async(async move |request: &mut ModelRequest| {
        request.add_instructions(&style);
    });
}
