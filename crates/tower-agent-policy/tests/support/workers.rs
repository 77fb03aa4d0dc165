//! A call that rules decide about where runs are in an engine, whose workers do not live long. The
//! crates of the engines have it as a module of their tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use futures::future::join_all;
use futures::{FutureExt, StreamExt};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tower_agent::callback::Bundle;
use tower_agent::message::ToolCall;
use tower_agent::stream::{EventKind, Observations, observer};
use tower_agent::{
    Agent, AgentRequest, BoxError, Effect, Message, ModelRequest, ModelResponse, Resolution, Tool,
};
use tower_agent_durable::journal::{Durable, Journal, RunEnd, RunKey};
use tower_agent_middleware::approval::Decision;
use tower_agent_policy::{Principal, Rulebook};

/// What the rules say, by the amount.
const RULES: &str = r#"
@id("small") permit(principal == User::"ada", action, resource) when { context.input.cents == 1 };
@id("three") permit(principal, action, resource) when { context.input.cents == 3 };
@id("asks") @ask("support") permit(principal, action, resource)
when { context.input.cents == 4 || context.input.cents == 6 };
@id("two") forbid(principal, action, resource) when { context.input.cents == 2 };
@id("breaks") forbid(principal, action, resource)
when { context.input.cents == 3 && context.input.cents + 9223372036854775807 > 0 };
"#;

/// What they say as well once the runs wait.
const LATER: &str =
    r#"@id("later") forbid(principal, action, resource) when { context.input.cents == 6 };"#;

/// A call, what is decided about it, and how often the tool is called in the end.
struct Case {
    name: &'static str,
    user: Option<&'static str>,
    cents: i64,
    decision: &'static str,
    /// What is decided about it once support has approved it.
    approved: Option<&'static str>,
    calls: usize,
}

impl Case {
    const fn decided(name: &'static str, cents: i64, decision: &'static str) -> Self {
        Self {
            name,
            user: Some("ada"),
            cents,
            decision,
            approved: None,
            calls: 0,
        }
    }

    fn key(&self) -> RunKey {
        let key = RunKey::new(self.name);
        match self.user {
            Some(user) => key.of(user),
            None => key,
        }
    }
}

const CASES: [Case; 7] = [
    Case {
        calls: 1,
        ..Case::decided("allowed", 1, "allowed small")
    },
    Case::decided("forbidden", 2, "refused: forbidden two"),
    Case::decided("erring", 3, "refused: rule_failed breaks"),
    Case {
        approved: Some("approved asks"),
        calls: 1,
        ..Case::decided("asked", 4, "asked asks")
    },
    Case {
        approved: Some("refused: forbidden later"),
        ..Case::decided("asked_in_vain", 6, "asked asks")
    },
    Case::decided("not_permitted", 5, "refused: not_permitted"),
    Case {
        user: None,
        ..Case::decided("nobodys", 1, "refused: no_principal")
    },
];

/// The runs of all cases.
pub(crate) struct Runs<J> {
    journal: J,
    book: Rulebook,
    /// How often the tool was called, by the amount.
    calls: Arc<Mutex<BTreeMap<i64, usize>>>,
    /// The models that are being asked and do not answer.
    asked: mpsc::UnboundedSender<&'static str>,
    is_asked: mpsc::UnboundedReceiver<&'static str>,
    heard: Vec<(&'static str, Observations)>,
}

/// How many results a model has read when it no longer answers.
#[derive(Clone, Copy)]
struct SilentAfter(usize);

impl<J: Journal> Runs<J> {
    pub(crate) fn new(journal: &J) -> Self {
        let calls = Arc::default();
        let book = Rulebook::builder()
            .schema("users.cedarschema", "entity User;")
            .tools([refund(&calls).declaration()])
            // The user whose run it is: extensions of the program do not reach another process.
            .principals(["User"], |given| {
                let user = given.get::<RunKey>()?.user.as_deref()?;
                Some(Principal::new("User", user))
            })
            .rules("shop.cedar", RULES)
            .build()
            .unwrap();
        let (asked, is_asked) = mpsc::unbounded_channel();
        Self {
            journal: journal.clone(),
            book,
            calls,
            asked,
            is_asked,
            heard: Vec::new(),
        }
    }

    /// Makes all of them. Each is stopped with its worker twice: before the call was decided about
    /// and after, and goes on in another one. What is asked is answered in the third.
    ///
    /// `work` starts a worker in place of the one before. `go_on` starts a run of the agent with
    /// this name, or resumes it with answers, and returns its end.
    pub(crate) async fn check(
        &mut self,
        mut work: impl AsyncFnMut(Vec<Agent>),
        go_on: impl AsyncFn(&str, &RunKey, Result<AgentRequest, Vec<Resolution>>) -> RunEnd,
    ) {
        let begin = async |case: &Case| {
            let request = case.key().request("Money back, please.");
            go_on(case.name, &case.key(), Ok(request)).await
        };
        let (ask, others): (Vec<_>, Vec<_>) =
            CASES.iter().partition(|case| case.approved.is_some());
        // Engines refuse what no worker knows.
        work(self.agents(SilentAfter(0))).await;
        let all_wait = Notify::new();
        let waiting = async {
            let ends = join_all(ask.iter().map(|case| begin(case))).await;
            all_wait.notify_one();
            ends
        };
        let ended = join_all(others.iter().map(|case| begin(case)));
        let restarts = async {
            self.are_asked(CASES.iter()).await;
            assert_eq!(self.decisions(), []);

            work(self.agents(SilentAfter(1))).await;
            all_wait.notified().await;
            self.are_asked(others.iter().copied()).await;
            let expected: Vec<_> = CASES
                .iter()
                .map(|case| (case.name, case.decision))
                .collect();
            assert_eq!(self.decisions(), owned(&expected));
            assert_eq!(self.calls_of("allowed"), 1);

            self.book
                .reload([("shop.cedar", RULES), ("later.cedar", LATER)])
                .unwrap();
            work(self.agents(SilentAfter(usize::MAX))).await;
        };
        let (waiting, ended, ()) = futures::join!(waiting, ended, restarts);
        // What was decided stands in the journal.
        assert_eq!(self.decisions(), []);
        for (case, end) in others.iter().zip(&ended) {
            let is_refused = text(end).starts_with("refused: ");
            assert_eq!(is_refused, case.calls == 0, "{}: {end:?}", case.name);
        }

        for (case, end) in ask.iter().zip(&waiting) {
            let [question] = end.interrupts() else {
                panic!("{}: {end:?}", case.name)
            };
            assert_eq!(question.answerer.role(), Some("support"));
            let yes = Resolution::resolved(&*question.id, Decision::Approve).with_name("sam");
            let end = go_on(case.name, &case.key(), Err(vec![yes])).await;
            let approved = case.approved.unwrap_or_default();
            assert_eq!(self.decisions(), owned(&[(case.name, approved)]));
            assert_eq!(text(&end).starts_with("refused: "), case.calls == 0);
        }
        // Delivered once more.
        for (case, end) in others.iter().zip(&ended) {
            assert_eq!(text(&begin(case).await), text(end));
        }
        assert_eq!(self.decisions(), []);
        for case in &CASES {
            assert_eq!(self.calls_of(case.name), case.calls, "{}", case.name);
        }
    }

    /// Returns the agents of a worker.
    fn agents(&mut self, silent_after: SilentAfter) -> Vec<Agent> {
        let agents = CASES.iter().map(|case| {
            let (ear, heard) = observer(1 << 10);
            self.heard.push((case.name, heard));
            Agent::builder(model(case, silent_after, self.asked.clone()))
                .name(case.name)
                .tool(refund(&self.calls))
                .global_callbacks(Durable::new(self.journal.clone()))
                .global_callbacks(self.book.enforce())
                .global_callbacks(Bundle::new().observer(ear))
                .build()
                .unwrap()
        });
        agents.collect()
    }

    /// Waits until the models of these cases were asked, and none answers.
    async fn are_asked(&mut self, cases: impl Iterator<Item = &Case>) {
        let mut missing: BTreeSet<_> = cases.map(|case| case.name).collect();
        while !missing.is_empty() {
            let asked = self.is_asked.recv().await;
            missing.remove(asked.unwrap());
        }
    }

    /// Returns what was decided since the last time.
    fn decisions(&mut self) -> Vec<(&'static str, String)> {
        let mut decisions = Vec::new();
        for (case, heard) in &mut self.heard {
            while let Some(Some(heard)) = heard.next().now_or_never() {
                if let EventKind::Note { name, value } = heard.event.kind
                    && *name == *"policy"
                {
                    decisions.push((*case, decision(&value)));
                }
            }
        }
        decisions
    }

    fn calls_of(&self, case: &str) -> usize {
        let case = CASES.iter().find(|one| one.name == case).unwrap();
        // Nobody's call is of the same amount as one that is allowed.
        if case.user.is_none() {
            return 0;
        }
        let calls = self.calls.lock().unwrap();
        calls.get(&case.cents).copied().unwrap_or_default()
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Refund {
    cents: i64,
}

fn refund(calls: &Arc<Mutex<BTreeMap<i64, usize>>>) -> Tool {
    let calls = calls.clone();
    Tool::function("refund", "Pays back.", move |refund: Refund| {
        *calls.lock().unwrap().entry(refund.cents).or_default() += 1;
        "refunded"
    })
    .effect(Effect::Mutating)
}

/// A model that makes the call of a case, and then says what it has read.
fn model(
    case: &Case,
    silent_after: SilentAfter,
    asked: mpsc::UnboundedSender<&'static str>,
) -> impl tower_agent::model::ModelService {
    let name = case.name;
    let cents = case.cents;
    tower::service_fn(move |request: ModelRequest| {
        let results: Vec<_> = request
            .messages()
            .iter()
            .flat_map(Message::tool_results)
            .map(|result| result.text())
            .collect();
        let is_silent = results.len() == silent_after.0;
        if is_silent {
            let _ = asked.send(name);
        }
        async move {
            if is_silent {
                std::future::pending::<()>().await;
            }
            Ok::<_, BoxError>(match results.into_iter().next() {
                None => {
                    let call = ToolCall::new("c", "refund", json!({ "cents": cents }));
                    ModelResponse::from_tool_calls([call])
                }
                Some(read) => ModelResponse::from_text(read),
            })
        }
    })
}

/// Returns a decision with its reason and its policies.
fn decision(told: &Value) -> String {
    let mut text = told["decision"].as_str().unwrap().to_owned();
    if let Some(why) = told["why"].as_str() {
        text = format!("{text}: {why}");
    }
    for key in ["policies", "errors"] {
        let ids = told[key].as_array().into_iter().flatten();
        for id in ids {
            text = format!("{text} {}", id.as_str().unwrap());
        }
    }
    text
}

fn owned(decisions: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    let decisions = decisions.iter();
    decisions
        .map(|(case, decision)| (*case, (*decision).to_owned()))
        .collect()
}

/// Returns the text of the last message of a run that has completed.
fn text(end: &RunEnd) -> String {
    let RunEnd::Completed { checkpoint, .. } = end else {
        panic!("{end:?}")
    };
    checkpoint.messages.last().unwrap().text()
}
