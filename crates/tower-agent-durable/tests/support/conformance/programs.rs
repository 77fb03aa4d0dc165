//! A run belongs to a program and to a user.

use tower_agent::{
    Action, Agent, AgentBuilder, AgentRequest, Callback, Effect, Error, ModelRequest,
    ModelResponse, Request, Tool,
};
use tower_agent_durable::journal::{Durable, JournalError, RunKey, RunQuery, RunStatus};

use crate::support::place::{Database, Place, Seen};
use crate::support::{
    Count, calling, counting, durable, journal_error, request, saying, waiting_as,
};

/// The calls of all processes.
#[derive(Clone, Default)]
struct Calls {
    models: Count,
    paid: Count,
}

impl Calls {
    /// An agent of this name that pays and then waits, as `wait` does.
    fn payer(&self, name: &str, wait: Tool) -> AgentBuilder {
        Agent::builder(calling(&["pay", "wait"], &self.models))
            .name(name)
            .tool(counting("pay", Effect::Mutating, &self.paid))
            .tool(wait.effect(Effect::Idempotent))
    }
}

/// A whole program with the agent that pays.
type Program = fn(AgentBuilder) -> Agent;

fn alone(payer: AgentBuilder) -> Agent {
    payer.build().unwrap()
}

fn in_sequence(payer: AgentBuilder) -> Agent {
    let team = Agent::sequential("team").agent(payer.build().unwrap());
    let last = Agent::builder(saying("Bye.")).name("last").build().unwrap();
    team.agent(last).build().unwrap()
}

/// With a member before it and one after it that are done at once.
fn in_parallel(payer: AgentBuilder) -> Agent {
    let member = |name: &str| Agent::builder(saying("Hi.")).name(name).build().unwrap();
    let team = Agent::parallel("team").agent(member("first"));
    let team = team.agent(payer.build().unwrap()).agent(member("last"));
    team.build().unwrap()
}

fn as_tool(payer: AgentBuilder) -> Agent {
    let boss = Agent::builder(calling(&["payer"], &Count::default())).name("boss");
    let payer = payer.build().unwrap();
    boss.tool(payer.into_tool("Pays.")).build().unwrap()
}

/// Asks an agent of its own before each model call.
fn judged(payer: AgentBuilder) -> Agent {
    let judge = Agent::builder(saying("Fine."))
        .name("judge")
        .build()
        .unwrap();
    payer.on_model(Judged(judge)).build().unwrap()
}

struct Judged(Agent);

impl Callback<ModelRequest> for Judged {
    async fn before(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>, Error> {
        let asks = AgentRequest::new("Is it fine?").with_context(request.context().clone());
        self.0.run(asks).await?;
        Ok(Action::Continue)
    }
}

/// Makes the run with the first program, stops it in its second tool, and goes on with the second.
/// Returns the refusal, if there is one.
async fn goes_on(journal: &impl Seen, programs: [(Program, &str); 2]) -> Option<String> {
    let calls = Calls::default();
    let begins = || request().with_callbacks(Durable::new(journal.clone()));
    let [(program, name), (later, later_name)] = programs;
    let (wait, _, has_begun) = waiting_as("wait", &Count::default());
    let first = program(calls.payer(name, wait));
    let run = tokio::spawn(first.run(begins()));
    has_begun.await.unwrap();
    run.abort();
    run.await.unwrap_err();
    let (models, paid) = (calls.models.get(), calls.paid.get());
    let wait = counting("wait", Effect::Idempotent, &Count::default());
    let second = later(calls.payer(later_name, wait));
    match second.run(begins()).await {
        Ok(_) => {
            assert_eq!(calls.models.get(), models + 1);
            assert_eq!(calls.paid.get(), paid);
            None
        }
        Err(error) => {
            let error = journal_error(&error);
            let listed = journal.info("run 1").await;
            // A journal that can give a run back leaves it to the program that may go on with it.
            match listed.error {
                Some(ended) => assert_eq!(ended.message(), error.to_string()),
                None => assert_eq!(listed.status, RunStatus::Running),
            }
            // Nothing was paid for before the refusal, and nothing was left behind.
            assert_eq!(calls.models.get(), models, "{error}");
            assert_eq!(calls.paid.get(), paid, "{error}");
            let wait = counting("wait", Effect::Idempotent, &Count::default());
            let first = program(calls.payer(name, wait));
            first.run(begins()).await.unwrap();
            assert_eq!(calls.models.get(), models + 1);
            Some(error.to_string())
        }
    }
}

pub(crate) async fn the_program_that_began_a_run_goes_on_with_it<P: Place>(
    new: impl AsyncFn() -> P,
) {
    let programs: [Program; 5] = [alone, in_sequence, in_parallel, as_tool, judged];
    for (number, program) in programs.into_iter().enumerate() {
        let place = new().await;
        let journal = place.open().await;
        let refused = goes_on(&journal, [(program, "payer"); 2]).await;
        assert_eq!(refused, None, "program {number}");
    }
}

pub(crate) async fn a_program_that_does_not_come_to_what_was_done_is_refused<P: Place>(
    new: impl AsyncFn() -> P,
) {
    let changes: [[(Program, &str); 2]; 5] = [
        [(alone, "payer"), (alone, "clerk")],
        [(alone, "payer"), (in_sequence, "payer")],
        [(in_sequence, "payer"), (alone, "payer")],
        [(in_sequence, "payer"), (in_sequence, "clerk")],
        [(in_parallel, "payer"), (in_parallel, "clerk")],
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let place = new().await;
        let journal = place.open().await;
        let refused = goes_on(&journal, change).await;
        let refused = refused.unwrap_or_else(|| panic!("change {number} was not refused"));
        assert!(refused.contains("payer"), "change {number}: {refused}");
    }
}

/// A journal that two users share by the ids of their runs refuses the second of them.
pub(crate) async fn two_users_with_one_run_id_have_a_run_each(place: impl Place) {
    let journal = place.open().await;
    for (user, text) in [
        ("ada", "The balance of ada."),
        ("bob", "The balance of bob."),
    ] {
        let agent = durable(saying(text), journal.clone()).build().unwrap();
        let asks = RunKey::new("run 1").of(user).request("What is my balance?");
        match agent.run(asks).await {
            Ok(response) => assert_eq!(response.text(), text),
            Err(error) => {
                let error = journal_error(&error);
                let is_other = matches!(error, JournalError::OtherRequest { .. });
                assert!(is_other && user == "bob", "{error}");
            }
        }
    }
}

/// Asks as this user, under an id that others have as well.
async fn balance_of(database: &impl Database, user: &str, question: &str) -> String {
    let answer = format!("The balance of {user}.");
    let agent = durable(saying(&answer), database.clone()).build().unwrap();
    let asks = RunKey::new("run 1").of(user).request(question);
    agent.run(asks).await.unwrap().text().to_owned()
}

pub(crate) async fn two_users_may_choose_one_run_id(place: impl Place<Journal: Database>) {
    let database = place.open().await;
    for (user, question) in [
        ("ada", "What is my balance?"),
        ("bob", "What is my balance?"),
        ("eve", "What is theirs?"),
        ("", "What is nobody's?"),
    ] {
        let answer = balance_of(&database, user, question).await;
        assert_eq!(answer, format!("The balance of {user}."));
        // Delivered again, it is the same run.
        assert_eq!(balance_of(&database, user, question).await, answer);
    }
    let runs = database.runs();
    assert_eq!(runs.list(&RunQuery::new()).await.unwrap().len(), 4);
    assert_eq!(runs.get("run 1").await.unwrap().user, None);
    let bobs = RunKey::new("run 1").of("bob");
    assert_eq!(runs.get(&bobs).await.unwrap().user.as_deref(), Some("bob"));
    assert_eq!(runs.steps(&bobs).await.unwrap().len(), 1);
    // The request from the journal is of the same user.
    let agent = durable(saying("Not asked."), database.clone())
        .build()
        .unwrap();
    let again = agent.run(runs.request(&bobs).await.unwrap()).await;
    assert_eq!(again.unwrap().text(), "The balance of bob.");
    runs.cancel(&bobs).await.unwrap();
    runs.delete(&bobs).await.unwrap();
    runs.get(&bobs).await.unwrap_err();
    for user in ["ada", "eve"] {
        runs.get(RunKey::new("run 1").of(user)).await.unwrap();
    }
    runs.get("run 1").await.unwrap();
}
