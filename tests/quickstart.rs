//! The quickstart's model, through a whole agent: what it asks its tools, and what it says.

#![expect(clippy::unwrap_used, reason = "the functions that the tests share")]

#[path = "../examples/quickstart/callbacks.rs"]
mod callbacks;
#[path = "../examples/quickstart/rules/mod.rs"]
mod rules;
#[path = "../examples/quickstart/tools.rs"]
mod tools;

use futures::StreamExt;
use tower_agent::stream::EventKind;
use tower_agent::{Agent, AgentRequest, AgentResponse, Part};

use self::callbacks::{Log, Stopwatch, TokenCount, forbid};
use self::rules::Rules;
use self::tools::tools;

fn agent() -> Agent {
    Agent::builder(Rules)
        .tools(tools())
        .max_iterations(100)
        .on_agent(Log)
        .on_model(Log)
        .on_model(TokenCount::default())
        .on_tool(Log)
        .on_tool(Stopwatch)
        .on_tool(forbid("delete_all_records"))
        .build()
        .unwrap()
}

/// The turns' tool calls, such as `percent_of(12.5, 840) > add(105, 17)`; `&` joins the calls of
/// one turn.
fn calls(response: &AgentResponse) -> String {
    let turns = response.new_messages().filter_map(|message| {
        let calls: Vec<_> = message
            .tool_calls()
            .map(|call| {
                let arguments = call.arguments.value().as_object().unwrap().values();
                let numbers: Vec<_> = arguments
                    .map(|number| number.as_f64().unwrap().to_string())
                    .collect();
                format!("{}({})", call.name, numbers.join(", "))
            })
            .collect();
        (!calls.is_empty()).then(|| calls.join(" & "))
    });
    turns.collect::<Vec<_>>().join(" > ")
}

async fn check(cases: &[(&str, &str, &str)]) {
    let agent = agent();
    for (question, expected_calls, expected_answer) in cases {
        let response = agent.run(*question).await.unwrap();
        assert_eq!(response.text(), *expected_answer, "to {question:?}");
        assert_eq!(calls(&response), *expected_calls, "for {question:?}");
    }
}

#[tokio::test]
async fn one_operation() {
    check(&[
        ("2+2", "add(2, 2)", "2 plus 2 is 4."),
        ("What is 2 plus 2?", "add(2, 2)", "2 plus 2 is 4."),
        (
            "what's ten minus 12?",
            "subtract(10, 12)",
            "10 minus 12 is -2.",
        ),
        ("Calculate 6 x 7.", "multiply(6, 7)", "6 times 7 is 42."),
        ("3x4", "multiply(3, 4)", "3 times 4 is 12."),
        (
            "please compute six multiplied by 7",
            "multiply(6, 7)",
            "6 times 7 is 42.",
        ),
        (
            "1 divided by 3",
            "divide(1, 3)",
            "1 divided by 3 is 0.333333333333.",
        ),
        (
            "22 over 7",
            "divide(22, 7)",
            "22 divided by 7 is 3.14285714286.",
        ),
        ("0.1 + .2", "add(0.1, 0.2)", "0.1 plus 0.2 is 0.3."),
        (
            "how much is 1,000,000 * 1.5?",
            "multiply(1000000, 1.5)",
            "1000000 times 1.5 is 1500000.",
        ),
        ("3 - -2", "subtract(3, -2)", "3 minus -2 is 5."),
        ("What is 7?", "", "7 is 7."),
    ])
    .await;
}

#[tokio::test]
async fn percentages() {
    check(&[
        (
            "what is 12.5% of 840, plus 17?",
            "percent_of(12.5, 840) > add(105, 17)",
            "12.5% of 840 plus 17 is 122.",
        ),
        (
            "what is 10 percent of 50?",
            "percent_of(10, 50)",
            "10% of 50 is 5.",
        ),
        (
            "80 plus 10%",
            "percent_of(10, 80) > add(80, 8)",
            "80 plus 10% is 88.",
        ),
        (
            "10% off 80",
            "percent_of(10, 80) > subtract(80, 8)",
            "80 minus 10% is 72.",
        ),
        (
            "80 * 10%",
            "percent_of(10, 1) > multiply(80, 0.1)",
            "80 times 10% is 8.",
        ),
        (
            "50% of 10% of 200",
            "percent_of(10, 200) > percent_of(50, 20)",
            "50% of 10% of 200 is 10.",
        ),
        (
            "(2 + 3)% of (100 + 100)",
            "add(2, 3) & add(100, 100) > percent_of(5, 200)",
            "(2 plus 3)% of (100 plus 100) is 10.",
        ),
        (
            "100 + 10% - 10%",
            "percent_of(10, 100) > add(100, 10) > percent_of(10, 110) > subtract(110, 11)",
            "100 plus 10% minus 10% is 99.",
        ),
    ])
    .await;
}

#[tokio::test]
async fn precedence_and_nesting() {
    check(&[
        (
            "2 + 3 * 4",
            "multiply(3, 4) > add(2, 12)",
            "2 plus 3 times 4 is 14.",
        ),
        (
            "(2 + 3) * 4",
            "add(2, 3) > multiply(5, 4)",
            "(2 plus 3) times 4 is 20.",
        ),
        (
            "2 + 3, times 4",
            "add(2, 3) > multiply(5, 4)",
            "(2 plus 3) times 4 is 20.",
        ),
        (
            "10 - 4 - 3",
            "subtract(10, 4) > subtract(6, 3)",
            "10 minus 4 minus 3 is 3.",
        ),
        (
            "10 - (4 - 3)",
            "subtract(4, 3) > subtract(10, 1)",
            "10 minus (4 minus 3) is 9.",
        ),
        (
            "2 plus 3, and then times 4, minus 1",
            "add(2, 3) > multiply(5, 4) > subtract(20, 1)",
            "(2 plus 3) times 4 minus 1 is 19.",
        ),
        (
            "(1 + 2) * (3 + 4)",
            "add(1, 2) & add(3, 4) > multiply(3, 7)",
            "(1 plus 2) times (3 plus 4) is 21.",
        ),
        (
            "((8 - 2) / (1 + 2)) * -(2 + 1)",
            "subtract(8, 2) & add(1, 2) & add(2, 1) > divide(6, 3) & subtract(0, 3) > \
             multiply(2, -3)",
            "(8 minus 2) divided by (1 plus 2) times (0 minus (2 plus 1)) is -6.",
        ),
    ])
    .await;
}

#[tokio::test]
async fn several_questions_run_side_by_side() {
    check(&[
        (
            "what is 2+2? and what is 10% of 50?",
            "add(2, 2) & percent_of(10, 50)",
            "2 plus 2 is 4. 10% of 50 is 5.",
        ),
        (
            "What is 2 * 3 and what is 12.5% of 840, plus 17?",
            "multiply(2, 3) & percent_of(12.5, 840) > add(105, 17)",
            "2 times 3 is 6. 12.5% of 840 plus 17 is 122.",
        ),
        (
            "1 + 1, 2 + 2 and 3 + 3!",
            "add(1, 1) & add(2, 2) & add(3, 3)",
            "1 plus 1 is 2. 2 plus 2 is 4. 3 plus 3 is 6.",
        ),
        (
            "Who are you? What is 1 + 1?",
            "add(1, 1)",
            "I can only do arithmetic. 1 plus 1 is 2.",
        ),
    ])
    .await;
}

#[tokio::test]
async fn what_it_does_not_understand() {
    let questions = [
        "What is the capital of France?",
        "twenty-five + 1",
        "2 +",
        "(2 + 3",
        "2 + 3)",
        "2 ^ 3",
        "$5 + 1",
        "1e5 + 1",
        "2 2",
        "10% 80",
        "please",
        "delete 5",
        "hello. who are you?",
        "œuf + 1",
    ];
    check(&questions.map(|question| (question, "", "I can only do arithmetic."))).await;
    let nested = "(".repeat(100_000) + "1";
    let endless = "9".repeat(400) + " + 1";
    check(&[
        (&nested, "", "I can only do arithmetic."),
        (&endless, "", "I can only do arithmetic."),
        ("", "", "Ask me something."),
        (" ?! ", "", "Ask me something."),
    ])
    .await;
}

#[tokio::test]
async fn a_failed_tool_is_reported() {
    check(&[
        (
            "10 / 0",
            "divide(10, 0)",
            "10 divided by 0 has no answer: one cannot divide by zero.",
        ),
        (
            "1 / (2 - 2), plus 1? 2 + 2",
            "subtract(2, 2) & add(2, 2) > divide(1, 0)",
            "1 divided by (2 minus 2) plus 1 has no answer: one cannot divide by zero. \
             2 plus 2 is 4.",
        ),
        (
            "9 * 9 + 1 / 0",
            "multiply(9, 9) & divide(1, 0)",
            "9 times 9 plus 1 divided by 0 has no answer: one cannot divide by zero.",
        ),
    ])
    .await;
}

#[tokio::test]
async fn the_guard_keeps_the_records() {
    let refusal = "I deleted nothing: delete_all_records is forbidden here.";
    check(&[
        ("delete everything", "delete_all_records()", refusal),
        (
            "Please delete all the records!",
            "delete_all_records()",
            refusal,
        ),
        (
            "what is 2 + 2 and delete all records",
            "add(2, 2) & delete_all_records()",
            &format!("2 plus 2 is 4. {refusal}"),
        ),
    ])
    .await;

    let unguarded = Agent::builder(Rules).tools(tools()).build().unwrap();
    let response = unguarded.run("delete everything").await.unwrap();
    assert_eq!(response.text(), "Done: all is deleted.");
}

#[tokio::test]
async fn a_conversation_continues() {
    let agent = agent();
    let first = agent.run("1 + 1").await.unwrap();
    let second = AgentRequest::new("1 / 0").with_history(first.messages().clone());
    let second = agent.run(second).await.unwrap();
    assert_eq!(calls(&second), "divide(1, 0)");
    let third = AgentRequest::new("1 + 1").with_history(second.messages().clone());
    let third = agent.run(third).await.unwrap();
    assert_eq!(calls(&third), "add(1, 1)");
    assert_eq!(third.text(), "1 plus 1 is 2.");

    let ids: Vec<_> = third
        .messages()
        .iter()
        .flat_map(|m| m.tool_calls())
        .map(|c| &c.id)
        .collect();
    assert_eq!(ids.len(), 3);
    assert!(
        ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2],
        "{ids:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_answer_is_streamed_word_by_word() {
    let mut run = agent().stream("what is 12.5% of 840, plus 17?");
    let events: Vec<_> = run.by_ref().collect().await;
    let response = run.response().await.unwrap();

    let words: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.kind {
            EventKind::TextDelta { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(
        words,
        ["12.5% ", "of ", "840 ", "plus ", "17 ", "is ", "122."]
    );
    assert_eq!(words.concat(), response.text());

    let silent = agent().run("what is 12.5% of 840, plus 17?").await.unwrap();
    assert_eq!(response.messages(), silent.messages());
    assert_eq!(response.usage(), silent.usage());
}

#[tokio::test]
async fn a_token_is_a_word() {
    let response = agent().run("what is 7?").await.unwrap();
    assert_eq!(response.usage().input_tokens, 3);
    assert_eq!(response.usage().output_tokens, 3);
    assert_eq!(
        response.message().unwrap().parts(),
        [Part::from_text("7 is 7.")]
    );
}
