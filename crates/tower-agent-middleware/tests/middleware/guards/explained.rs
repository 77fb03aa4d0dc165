//! What `explain` shows of guards that have several parts.

use tower_agent::{Agent, Tool};
use tower_agent_middleware::flow::Flow;
use tower_agent_middleware::redact::{Detector, Redact};
use tower_agent_test::{ScriptedModel, Turn};

#[test]
fn each_part_of_a_guard_has_a_name_of_its_own() {
    let agent = Agent::builder(ScriptedModel::always(Turn::from_text("Yes.")))
        .tool(Tool::function("look", "", |()| ()))
        .global_callbacks(Redact::new([Detector::email()]).unwrap().redact_input())
        .global_callbacks(Flow::new())
        .build()
        .unwrap();

    assert_eq!(
        agent.explain().to_string(),
        "\
agent `agent`
  Redact(answer), Flow(labels)
    Flow(notes)
      loop of at most 25 model calls
        model call
          Redact(answer), Flow(labels)
            Redact(prompt)
              Redact(at model), Flow(notes)
                ScriptedModel
        tool calls, 8 at a time
          Redact(result), Flow(check)
            Redact(result inside)
              Redact(at tool)
                look
"
    );
}
