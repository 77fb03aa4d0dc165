//! The cases of an answer where runs are in an engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::SystemTime;

use serde_json::json;
use tower_agent::message::ToolCall;
use tower_agent::{
    Agent, AgentRequest, BoxError, Message, ModelRequest, ModelResponse, Resolution,
};
use tower_agent_durable::journal::{Durable, Journal, RunEnd, RunKey};

use crate::support::answers::{Case, Paid, clerk};

/// The agent of a case.
pub(crate) struct Clerk {
    case: Case,
    pub(crate) agent: Agent,
    factor: Arc<AtomicI64>,
    paid: Paid,
}

/// Returns the agents of all cases.
pub(crate) fn clerks(journal: &impl Journal) -> Vec<Clerk> {
    let all = Case::ALL.into_iter();
    all.map(|case| {
        let (factor, paid) = (Arc::new(AtomicI64::new(1)), Paid::default());
        let model = tower::service_fn(|request: ModelRequest| async move {
            let mut results = request.messages().iter().flat_map(Message::tool_results);
            Ok::<_, BoxError>(match results.next() {
                None => {
                    let call = ToolCall::new("c", "pay", json!({ "cents": 7 }));
                    ModelResponse::from_tool_calls([call])
                }
                Some(result) => ModelResponse::from_text(result.text()),
            })
        });
        let agent = clerk(model, case, &factor, &paid)
            .name(format!("{case:?}"))
            .global_callbacks(Durable::new(journal.clone()))
            .build()
            .unwrap();
        Clerk {
            case,
            agent,
            factor,
            paid,
        }
    })
    .collect()
}

impl Clerk {
    /// Answers. `go_on` starts a run, or resumes it with answers, and returns its end.
    pub(crate) async fn check(
        &self,
        go_on: impl AsyncFn(&RunKey, Result<AgentRequest, Vec<Resolution>>) -> Result<RunEnd, String>,
    ) {
        let case = self.case;
        let paid = || self.paid.lock().unwrap().clone();
        let key = RunKey::new(format!("{case:?}")).of("ada");
        let waiting = go_on(&key, Ok(key.request("Pay."))).await.unwrap();
        let question = waiting.interrupts()[0].clone();
        self.factor.store(case.factor(), Ordering::SeqCst);
        let answer =
            |name: &str| Resolution::resolved(&*question.id, case.decision()).with_name(name);
        if case == Case::Once {
            let misfit = Resolution::resolved(&*question.id, json!({ "approved": "maybe" }));
            let refused = go_on(&key, Err(vec![misfit.with_name("sam")])).await;
            let refused = refused.unwrap_err();
            assert!(refused.contains("does not fit"), "{refused}");
        }
        let ended = go_on(&key, Err(vec![answer(case.name())])).await;
        // Whoever resumes a run is trusted: it names the sender, who has no roles.
        let calls = case.calls() + usize::from(case == Case::WrongRole);
        let all = vec![("ada".to_owned(), 7); calls];
        assert_eq!(paid(), all, "{case:?}: {ended:?}");
        match case {
            Case::Twice => {
                for _ in 0..2 {
                    drop(go_on(&key, Err(vec![answer("sam")])).await);
                }
                assert_eq!(paid().len(), 1);
            }
            Case::Changed => {
                let left = ended.unwrap().interrupts().to_vec();
                assert_eq!(left.len(), 1);
                assert_ne!(left[0].id, question.id);
            }
            Case::Late => {
                assert!(ended.unwrap_err().contains("has expired"));
                // It goes on with the outcome that the question names for this.
                let expired = question.answer_at(SystemTime::now()).unwrap();
                let ended = go_on(&key, Err(vec![expired])).await.unwrap();
                assert!(ended.interrupts().is_empty());
                assert_eq!(paid(), []);
            }
            Case::Own => {
                let refused = ended.unwrap_err();
                assert!(
                    refused.contains("for somebody else than `ada`"),
                    "{refused}"
                );
                // The question is open as it was.
                go_on(&key, Err(vec![answer("sam")])).await.unwrap();
                assert_eq!(paid().len(), 1);
            }
            _ => assert!(ended.unwrap().interrupts().is_empty(), "{case:?}"),
        }
    }
}
