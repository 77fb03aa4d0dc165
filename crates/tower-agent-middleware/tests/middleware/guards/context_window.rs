//! `context_window`

mod look_back;
mod summaries;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use proptest::prelude::*;
use serde_json::{Value, json};
use test_support::property::{cases, sample};
use tower::{Layer, ServiceExt};
use tower_agent::callback::{Bundle, before_model};
use tower_agent::message::{MediaSource, Messages, ToolCall, ToolResult};
use tower_agent::{
    Agent, AgentRequest, Callbacks, Error, ErrorKind, Message, ModelRequest, ModelResponse, Part,
    Request, Resolution, Role, Tool,
};
use tower_agent_middleware::approval::Approval;
use tower_agent_middleware::context_window::ContextWindow;
use tower_agent_test::{ScriptedModel, Turn};

use super::{assert_answered, ids, saved};

/// One token a byte, so that sizes are easy to read.
fn tokens(message: &Message) -> u64 {
    message.parts().iter().map(Part::text_len).sum::<usize>() as u64
}

fn total<'m>(messages: impl IntoIterator<Item = &'m Message>) -> u64 {
    messages.into_iter().map(tokens).sum()
}

/// Returns what a model is sent of these messages.
async fn sent(window: &ContextWindow, messages: &[Message]) -> Vec<Message> {
    let model = ScriptedModel::new([Turn::from_text("Ok.")]);
    let window = Callbacks::new().with(window.clone());
    let request = ModelRequest::new(messages.to_vec());
    window.layer(model.clone()).oneshot(request).await.unwrap();
    model.requests()[0].messages().iter().cloned().collect()
}

/// The steps of a conversation: a question of the user, or calls with results of these sizes.
#[derive(Clone, Debug)]
enum Step {
    User(usize),
    Calls(Vec<usize>),
    Answer(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (1..200usize).prop_map(Step::User),
        4 => prop::collection::vec(0..400usize, 1..4).prop_map(Step::Calls),
        1 => (1..200usize).prop_map(Step::Answer),
    ]
}

fn conversation(steps: &[Step]) -> Vec<Message> {
    let mut messages = vec![Message::user("Begin.").with_id("m")];
    for (at, step) in steps.iter().enumerate() {
        match step {
            Step::User(size) => {
                messages.push(Message::user("u".repeat(*size)).with_id(format!("u{at}")));
            }
            Step::Answer(size) => {
                messages.push(Message::assistant("a".repeat(*size)).with_id(format!("a{at}")));
            }
            Step::Calls(sizes) => {
                let calls = (0..sizes.len())
                    .map(|nth| ToolCall::new(format!("{at}.{nth}"), "find", json!({ "n": nth })));
                let calls: Vec<_> = calls.collect();
                let parts = calls.iter().cloned().map(Part::ToolCall);
                messages.push(Message::new(Role::Assistant, parts).with_id(format!("c{at}")));
                for (call, size) in calls.iter().zip(sizes) {
                    let result = ToolResult::new(call, [Part::from_text("r".repeat(*size))]);
                    messages.push(Message::tool(result).with_id(format!("r{}", call.id)));
                }
            }
        }
    }
    messages
}

/// The places at which a model was called: before each of its messages, and at the end.
fn calls(messages: &[Message]) -> Vec<usize> {
    let assistant = |at: &usize| messages[*at].role() == Role::Assistant;
    let before = (0..messages.len()).filter(assistant);
    before.chain([messages.len()]).collect()
}

fn is_prefix(short: &[Message], long: &[Message]) -> bool {
    long.len() >= short.len() && short.iter().zip(long).all(|(one, other)| one == other)
}

const MAX: u64 = 4000;

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn a_prompt_fits_its_pairs_are_whole_and_its_start_stays(
        steps in prop::collection::vec(step(), sample(150, 450)),
        cut_to in 500..4000u64,
        keep in 0..5usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let messages = conversation(&steps);
        let window = ContextWindow::new(MAX).cut_to(cut_to).keep_results(keep).count_tokens(tokens);
        let mut before: Vec<Message> = Vec::new();
        let (mut cuts, mut calls_made) = (0, 0);
        for end in calls(&messages) {
            let whole = &messages[..end];
            let shown = runtime.block_on(sent(&window, whole));
            calls_made += 1;
            assert_answered(&Messages::from(shown.clone()));
            prop_assert!(total(&shown) <= MAX, "{} tokens", total(&shown));
            // The user's last message, and what came last.
            let asked = whole.iter().rfind(|message| message.role() == Role::User);
            prop_assert!(shown.contains(asked.unwrap()));
            prop_assert_eq!(shown.last().map(Message::id), whole.last().map(Message::id));
            // What is shown is in order, and of the conversation but for the note.
            let order: Vec<_> = whole.iter().filter_map(Message::id).collect();
            let places: Vec<_> = shown
                .iter()
                .filter_map(Message::id)
                .map(|id| order.iter().position(|other| *other == id).unwrap())
                .collect();
            prop_assert!(places.is_sorted());
            cuts += u32::from(!is_prefix(&before, &shown));
            before = shown;
        }
        // Each cut frees room for more than one call.
        prop_assert!(cuts < calls_made / 2 || cut_to > MAX / 2, "{cuts} of {calls_made}");
    }
}

#[tokio::test]
async fn a_short_conversation_is_sent_as_it_is() {
    let messages = conversation(&[Step::Calls(vec![10, 20]), Step::Answer(5), Step::User(3)]);
    let window = ContextWindow::new(10_000);
    assert_eq!(sent(&window, &messages).await, messages);
}

#[tokio::test]
async fn old_results_are_cleared_before_messages_are_left_out() {
    let messages = conversation(&[
        Step::Calls(vec![1000]),
        Step::Calls(vec![1000]),
        Step::Calls(vec![1000]),
        Step::Calls(vec![1000]),
    ]);
    let window = ContextWindow::new(3500)
        .cut_to(2500)
        .keep_results(2)
        .count_tokens(tokens);
    let shown = sent(&window, &messages).await;
    let texts: Vec<_> = shown
        .iter()
        .flat_map(Message::tool_results)
        .map(ToolResult::text)
        .collect();
    let cleared = "[This result of `find` was cleared to save space.]";
    assert_eq!(texts[..2], [cleared, cleared]);
    assert!(texts[2..].iter().all(|text| text.len() == 1000));
    let ids = |messages: &[Message]| {
        messages
            .iter()
            .map(|message| message.id().cloned())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&shown), ids(&messages));
    // An image in a result is cleared with it.
    let with_image = |messages: &mut [Message]| {
        let Some(Part::ToolResult(result)) = messages[2].parts_mut().first_mut() else {
            panic!()
        };
        result
            .parts
            .push(Part::image(MediaSource::base64("image/png", "AAAA")));
    };
    let mut pictured = messages.clone();
    with_image(&mut pictured);
    assert_eq!(sent(&window, &pictured).await, shown);
}

/// An agent that takes this many steps, whose model fails for a prompt above `limit` bytes of text.
fn steps_of(
    steps: usize,
    limit: u64,
    window: ContextWindow,
) -> (tower_agent::AgentBuilder, Arc<Mutex<Vec<u64>>>) {
    let sizes = Arc::new(Mutex::new(Vec::new()));
    let seen = sizes.clone();
    let model = ScriptedModel::always(Turn::function(move |request| {
        let size = total(request.messages().iter());
        seen.lock().unwrap().push(size);
        if size > limit {
            return Err(Error::new(ErrorKind::ContextLength, "too long"));
        }
        let made = request.context().iteration() as usize;
        Ok(if made > steps {
            ModelResponse::from_text("Done.")
        } else {
            ModelResponse::from_tool_calls([ToolCall::new(
                format!("call {made}"),
                "read",
                json!({ "value": made }),
            )])
        })
    }));
    let agent = Agent::builder(model)
        .tool(Tool::function("read", "Reads.", |page: usize| {
            format!("page {page}: {}", "x".repeat(400))
        }))
        .max_iterations(u32::MAX)
        .on_model(window);
    (agent, sizes)
}

#[tokio::test]
async fn a_run_of_many_steps_stays_inside_a_window_of_eight_thousand_tokens() {
    let steps = sample(500, 2000);
    let window = ContextWindow::new(8000).count_tokens(tokens);
    let (agent, sizes) = steps_of(steps, 8000, window);
    let done = agent.build().unwrap().run("Read the book.").await.unwrap();
    assert_eq!(done.text(), "Done.");
    let sizes = sizes.lock().unwrap();
    assert!(sizes.len() >= steps);
    assert!(sizes.iter().all(|size| *size <= 8000));
    // It uses its window.
    assert!(sizes.iter().any(|size| *size > 7000));
    // And nothing of it was lost.
    assert_answered(done.messages());
    let results: BTreeSet<String> = done
        .messages()
        .iter()
        .flat_map(Message::tool_results)
        .map(ToolResult::text)
        .collect();
    assert!(results.len() >= steps);
    assert!(results.iter().all(|text| text.starts_with("page ")));
}

#[tokio::test]
async fn each_message_is_counted_once_in_a_run_and_again_if_it_is_changed() {
    for changes in [false, true] {
        let counted = Arc::new(AtomicUsize::new(0));
        let counter = counted.clone();
        let window = ContextWindow::new(1_000_000).count_tokens(move |message| {
            counter.fetch_add(1, Ordering::Relaxed);
            tokens(message)
        });
        let (agent, sizes) = steps_of(50, u64::MAX, window);
        // Before the window: another callback rewrites the first message for each call.
        let changing = before_model(move |request: &mut ModelRequest| {
            if changes {
                *request.messages_mut().get_mut(0).unwrap() = Message::user("Rewritten.");
            }
        });
        let callbacks = Bundle::new().on_model(changing);
        let agent = agent.global_callbacks(callbacks).build().unwrap();
        agent.run("Read the book.").await.unwrap();
        let calls = sizes.lock().unwrap().len();
        let messages = 2 * calls - 1;
        // The tool once, and for each call the note that it might need.
        let rewritten = if changes { calls - 1 } else { 0 };
        let expected = messages + 1 + calls + rewritten;
        assert_eq!(counted.load(Ordering::Relaxed), expected);

        // Another run counts anew: nothing is kept for longer.
        agent.run("Read the book.").await.unwrap();
        assert!(counted.load(Ordering::Relaxed) > expected);
    }
}

#[tokio::test]
async fn a_model_with_a_smaller_window_is_asked_once_more_and_then_remembered() {
    for streams in [false, true] {
        // The estimate is a fourth of the bytes, and this model counts more.
        let (agent, sizes) = steps_of(100, 6000, ContextWindow::new(2000));
        let agent = agent.build().unwrap();
        let text = if streams {
            let mut run = agent.stream("Read.");
            while run.next().await.is_some() {}
            run.response().await.unwrap().text()
        } else {
            agent.run("Read.").await.unwrap().text()
        };
        assert_eq!(text, "Done.");
        let sizes = sizes.lock().unwrap();
        let failed = sizes.iter().filter(|size| **size > 6000).count();
        assert_eq!(failed, 1, "{sizes:?}");
    }
}

#[tokio::test]
async fn a_prompt_that_cannot_be_shortened_fails_as_before() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counts = calls.clone();
    let model = ScriptedModel::always(Turn::function(move |_| {
        counts.fetch_add(1, Ordering::SeqCst);
        Err(Error::new(ErrorKind::ContextLength, "too long"))
    }));
    let agent = Agent::builder(model)
        .on_model(ContextWindow::new(2000))
        .build()
        .unwrap();
    let error = agent.run("x".repeat(10_000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ContextLength);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_call_whose_answer_has_begun_is_not_made_again() {
    let too_long = Error::new(ErrorKind::ContextLength, "too long");
    let steps = (0..20).map(|n| Turn::tool("read", json!({ "value": n })));
    let fails = Turn::from_text("Half an answer.").failing_after(1, too_long);
    let model = ScriptedModel::new(steps.chain([fails, Turn::from_text("Another.")]));
    let agent = Agent::builder(model.clone())
        .tool(Tool::function("read", "Reads.", |_: usize| "x".repeat(400)))
        .max_iterations(100)
        .on_model(ContextWindow::new(100_000))
        .build()
        .unwrap();
    let mut run = agent.stream("Read.");
    while run.next().await.is_some() {}
    let error = run.response().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ContextLength);
    assert_eq!(model.requests().len(), 21);
}

/// A model that reads in each of so many steps, but pays in one of them.
fn reads_and_pays(steps: usize, pays_at: usize) -> ScriptedModel {
    let turns = (0..steps).map(|step| {
        if step == pays_at {
            Turn::tool("pay", json!({ "value": 1 }))
        } else {
            Turn::tool("read", json!({ "value": step }))
        }
    });
    ScriptedModel::new(turns.chain([Turn::from_text("Done.")]))
}

/// An agent that reads facts, and pays, about which a person may be asked.
fn payer(model: ScriptedModel, window: ContextWindow, asks: bool) -> Agent {
    let agent = Agent::builder(model)
        .tool(Tool::function("read", "Reads.", |page: usize| {
            format!("fact{page} {}", "x".repeat(300))
        }))
        .tool(Tool::function("pay", "Pays.", |_: Value| "paid"))
        .max_iterations(100)
        .on_model(window);
    let agent = if asks {
        agent.on_tool(Approval::of_tools(["pay"]))
    } else {
        agent
    };
    agent.build().unwrap()
}

/// Returns the parts of the messages of each request.
fn parts_sent(model: &ScriptedModel) -> Vec<Vec<Vec<Part>>> {
    let parts = |request: &ModelRequest| {
        let messages = request.messages().iter();
        messages.map(|message| message.parts().to_vec()).collect()
    };
    model.requests().iter().map(parts).collect()
}

/// The requests of two runs, with an interrupt between them, as one.
#[tokio::test]
async fn a_run_that_is_resumed_elsewhere_is_sent_what_it_would_have_been() {
    let script = || reads_and_pays(40, 20);
    let agent = |model: ScriptedModel, asks: bool| {
        payer(model, ContextWindow::new(4000).count_tokens(tokens), asks)
    };

    let at_once = script();
    agent(at_once.clone(), false).run("Go.").await.unwrap();
    let in_two = script();
    let paused = agent(in_two.clone(), true).run("Go.").await.unwrap();
    let yes = Resolution::resolved(&ids(&paused)[0], json!({ "approved": true }));
    let request = AgentRequest::resume(saved(&paused)).with_resolutions([yes]);
    let done = agent(in_two.clone(), true).run(request).await.unwrap();
    assert_eq!(done.text(), "Done.");
    assert_eq!(parts_sent(&in_two), parts_sent(&at_once));
}

#[tokio::test]
async fn what_a_callback_adds_for_one_call_does_not_push_the_question_out() {
    let mut messages = conversation(&[Step::Calls(vec![900]), Step::Calls(vec![900])]);
    messages.push(Message::user("Hurry up.".repeat(20)));
    let window = ContextWindow::new(1500)
        .cut_to(1000)
        .keep_results(0)
        .count_tokens(tokens);
    let shown = sent(&window, &messages).await;
    assert!(shown.contains(&messages[0]), "{shown:?}");
    assert_eq!(shown.last(), messages.last());
}

/// A conversation whose last step has results of these sizes.
fn last_step(sizes: &[usize]) -> Vec<Message> {
    conversation(&[Step::Calls(vec![50]), Step::Calls(sizes.to_vec())])
}

fn results(messages: &[Message]) -> Vec<String> {
    let results = messages.iter().flat_map(Message::tool_results);
    results.map(ToolResult::text).collect()
}

/// The model goes on from the last step, of which nothing is left out.
#[tokio::test]
async fn a_step_that_is_larger_than_the_window_is_shortened() {
    let window = ContextWindow::new(3000).cut_to(2000).count_tokens(tokens);
    for sizes in [
        vec![9000],
        vec![100, 9000],
        vec![9000, 100, 9000],
        vec![2900, 2900, 2900],
    ] {
        let messages = last_step(&sizes);
        let shown = sent(&window, &messages).await;
        assert!(total(&shown) <= 2000, "{sizes:?}: {}", total(&shown));
        let read = results(&shown);
        let read = &read[read.len() - sizes.len()..];
        for (text, size) in read.iter().zip(&sizes) {
            if *size == 100 {
                assert_eq!(text.len(), 100);
                continue;
            }
            assert!(text.starts_with("rrr") && text.ends_with("rrr"), "{text}");
            // The note says how much is missing.
            let kept = text.matches('r').count() - SHORTENED.matches('r').count();
            assert!(
                text.contains(&format!("[{}{SHORTENED}", size - kept)),
                "{text}"
            );
            assert!(text.len() > 400, "{sizes:?}: {}", text.len());
        }
        assert_answered(&Messages::from(shown.clone()));

        // What it was shortened to once is what the next calls read.
        let mut longer = messages.clone();
        longer.push(Message::assistant("Hm.").with_id("hm"));
        longer.push(Message::user("Well?").with_id("well"));
        assert!(
            is_prefix(&shown, &sent(&window, &longer).await),
            "{sizes:?}"
        );
    }
}

const SHORTENED: &str = " bytes were left out here, since there is no room for the whole result: \
                         ask for less at once.]";

#[tokio::test]
async fn a_result_is_shortened_between_characters() {
    let window = ContextWindow::new(2000).cut_to(1000).count_tokens(tokens);
    for size in 2990..3000 {
        let mut messages = last_step(&[1]);
        let text = format!("{}{}", "x".repeat(size % 10), "\u{20ac}".repeat(1000));
        let call = messages[3].tool_calls().next().unwrap().clone();
        let result = ToolResult::new(&call, [Part::from_text(text)]);
        messages[4] = Message::tool(result).with_id("r");
        let shown = sent(&window, &messages).await;
        assert!(total(&shown) <= 1000, "{}", total(&shown));
        let read = results(&shown).pop().unwrap();
        assert!(read.ends_with('\u{20ac}'), "{read}");
    }
}

/// The model may have less room than the window was told.
#[tokio::test]
async fn a_step_that_the_model_finds_too_long_is_shortened_once_more() {
    for is_streamed in [false, true] {
        let too_long = Turn::error(Error::new(ErrorKind::ContextLength, "too long"));
        let model = ScriptedModel::new([
            Turn::tool("read", json!(null)),
            too_long,
            Turn::from_text("Read."),
        ]);
        let agent = Agent::builder(model.clone())
            .tool(Tool::function("read", "Reads.", |_: Value| {
                "r".repeat(9000)
            }))
            .on_model(ContextWindow::new(100_000).count_tokens(tokens))
            .build()
            .unwrap();
        let response = if is_streamed {
            agent.stream("?").response().await.unwrap()
        } else {
            agent.run("?").await.unwrap()
        };
        assert_eq!(response.text(), "Read.");
        let sizes: Vec<_> = model.requests()[1..]
            .iter()
            .map(|request| total(request.messages()))
            .collect();
        assert!(
            sizes[0] >= 9000 && sizes[1] <= sizes[0] / 4 * 3,
            "{sizes:?}"
        );
        // The transcript has all of it.
        let kept = response.messages().iter().flat_map(Message::tool_results);
        assert_eq!(kept.map(|result| result.text().len()).max(), Some(9000));
    }
}

#[tokio::test]
async fn a_prompt_of_which_nothing_may_be_left_out_says_so() {
    let too_long = Turn::error(Error::new(ErrorKind::ContextLength, "too long"));
    let agent = Agent::builder(ScriptedModel::new([too_long]))
        .on_model(ContextWindow::new(1000).count_tokens(tokens))
        .build()
        .unwrap();
    let error = agent.run("u".repeat(5000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ContextLength);
    let message = error.message();
    assert!(message.starts_with("too long; the window"), "{message}");
    assert!(message.contains("5000 tokens"), "{message}");
}
