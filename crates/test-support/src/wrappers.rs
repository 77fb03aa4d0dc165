//! Notes that an observer is told of the wrappers in an agent's stacks.

use futures::{FutureExt, StreamExt};
use tower_agent::callback::Bundle;
use tower_agent::stream::{Event, EventKind, Observations, WrapperNote, observer};
use tower_agent::{AgentBuilder, AgentRequest};

/// Returns the notes about wrappers that were told so far, each with its event.
pub fn told(observations: &mut Observations) -> Vec<(Event, WrapperNote)> {
    let mut notes = Vec::new();
    while let Some(Some(told)) = observations.next().now_or_never() {
        if let EventKind::Wrapper(note) = &told.event.kind {
            let note = WrapperNote::clone(note);
            notes.push((told.event, note));
        }
    }
    notes
}

/// Returns a note as the agent's path without the first agent, the call, the place in its stack and
/// what the wrapper did.
pub fn word(event: &Event, note: &WrapperNote) -> String {
    let path = event.invocation.path.split_once('/');
    let path = path.map_or_else(String::new, |(_, inside)| format!("{inside} "));
    let names = format!("{}: ", note.names.join(", "));
    let note_text = note.to_string();
    let did = note_text
        .strip_prefix(&names)
        .expect("it begins with the names");
    format!("{path}{} {}: {did}", note.call, note.index)
}

/// Runs an agent and returns what its wrappers did, the innermost first. It is the same in a run
/// that is streamed, and each note names the wrapper that the agent's explanation has at its place.
pub async fn wrappers(agent: impl Fn() -> AgentBuilder) -> Vec<String> {
    let run = async |is_streamed: bool| {
        let (observer, mut observations) = observer(1024);
        let bundle = Bundle::new().observer(observer.with_wrappers());
        let agent = agent()
            .global_callbacks(bundle)
            .build()
            .expect("it is valid");
        let request = AgentRequest::new("?");
        if is_streamed {
            agent.stream(request).for_each(|_| async {}).await;
        } else {
            drop(agent.run(request).await);
        }
        let told = told(&mut observations);
        let explanation = agent.explain();
        for (event, note) in &told {
            if let Some(wrapper) = explanation.wrapper_of(event) {
                assert_eq!(wrapper.to_string(), note.names.join(", "), "{note:?}");
            } else {
                let path = &event.invocation.path;
                assert!(path.contains('/'), "no wrapper of {path}: {note:?}");
            }
        }
        let words = told.iter().map(|(event, note)| word(event, note));
        words.collect::<Vec<_>>()
    };
    let plain = run(false).await;
    assert_eq!(plain, run(true).await, "streamed");
    plain
}
