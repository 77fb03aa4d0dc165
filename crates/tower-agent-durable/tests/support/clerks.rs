//! The cases of an answer where runs are in an engine.

use std::future::{Future, Ready, ready};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::SystemTime;

use serde_json::json;
use tower_agent::{Agent, AgentRequest, Resolution};
use tower_agent_durable::journal::{Durable, Journal, RunEnd, RunKey, UnfinishedStep};
use tower_agent_middleware::approval::Decision;

use crate::support::answers::{Case, Paid, Payment, clerk};
use crate::support::stops::{Point, Stops, paid};

/// The agent of a case.
pub(crate) struct Clerk {
    case: Case,
    pub(crate) agent: Agent,
    factor: Arc<AtomicI64>,
    paid: Paid,
}

/// Returns what pays into a list.
fn pay_into(paid: &Paid) -> impl Fn(Payment) -> Ready<()> + Send + Sync + 'static {
    let paid = paid.clone();
    move |payment| {
        paid.lock().unwrap().push(payment);
        ready(())
    }
}

/// Returns the agents of all cases.
pub(crate) fn clerks(journal: &impl Journal) -> Vec<Clerk> {
    let all = Case::ALL.into_iter();
    all.map(|case| {
        let (factor, paid) = (Arc::new(AtomicI64::new(1)), Paid::default());
        let agent = clerk(case, &factor, pay_into(&paid))
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
        let answer = case.answer(&question.id, &question);
        let again = || Resolution::resolved(&*question.id, Decision::Approve).with_name("sam");
        let ended = go_on(&key, Err(vec![answer])).await;
        // Whoever resumes a run is trusted: it names the sender, who has no roles.
        let calls = case.calls() + usize::from(case == Case::WrongRole);
        let all = vec![Payment("ada".to_owned(), 7); calls];
        assert_eq!(paid(), all, "{case:?}: {ended:?}");
        match case {
            Case::Twice => {
                for _ in 0..2 {
                    drop(go_on(&key, Err(vec![again()])).await);
                }
                assert_eq!(paid().len(), 1);
            }
            Case::Changed => {
                let left = ended.unwrap().interrupts().to_vec();
                assert_eq!(left.len(), 1);
                assert_ne!(left[0].id, question.id);
            }
            Case::Late => {
                let refused = ended.unwrap_err();
                assert!(refused.contains("is over"), "{refused}");
                // It goes on with the outcome that the question names for this.
                let expired = question.answer_at(SystemTime::now()).unwrap();
                let ended = go_on(&key, Err(vec![expired])).await.unwrap();
                assert!(ended.interrupts().is_empty());
                assert_eq!(paid(), []);
            }
            Case::Own | Case::Unfit => {
                let refused = ended.unwrap_err();
                let why = match case {
                    Case::Own => "for somebody else than `ada`",
                    _ => "does not fit",
                };
                assert!(refused.contains(why), "{refused}");
                // The question is open as it was.
                go_on(&key, Err(vec![again()])).await.unwrap();
                assert_eq!(paid().len(), 1);
            }
            _ => assert!(ended.unwrap().interrupts().is_empty(), "{case:?}"),
        }
    }
}

/// Returns the agent of a worker that stops at a point.
pub(crate) fn stopping(stops: &Stops, journal: &impl Journal) -> Agent {
    let agent = stops.agent(Case::Once, 1);
    agent
        .global_callbacks(Durable::new(journal.clone()))
        .build()
        .unwrap()
}

/// Answers while `kill` kills the worker that takes the answer, and starts another. `go_on` starts
/// a run, or resumes it with answers, and returns the end of that request; `look` returns the end
/// of the run.
pub(crate) async fn pays_once(
    key: &RunKey,
    point: Point,
    folder: &Path,
    asked: &RunEnd,
    kill: impl Future<Output = ()>,
    go_on: impl AsyncFn(&RunKey, Result<AgentRequest, Vec<Resolution>>) -> Result<RunEnd, String>,
    look: impl AsyncFn(&RunKey) -> RunEnd,
) {
    let question = &asked.interrupts()[0];
    let yes = || Err(vec![Case::Once.answer(&question.id, question)]);
    let answered = async {
        let mut end = go_on(key, yes()).await.unwrap();
        let mut questions = 0;
        while let Some(open) = end.interrupts().first().cloned() {
            // Support has answered. The operator looks whether it was paid.
            assert_eq!(open.reason, UnfinishedStep::REASON, "killed at {point:?}");
            questions += 1;
            let answer = if paid(folder).is_empty() {
                UnfinishedStep::RunAgain
            } else {
                UnfinishedStep::Done(json!("paid"))
            };
            let answer = Resolution::resolved(&open.id, answer).with_name("olga");
            end = go_on(key, Err(vec![answer])).await.unwrap();
        }
        (end, questions)
    };
    let (_, (end, questions)) = tokio::join!(kill, answered);
    // Whoever has answered may have heard nothing, and says it again.
    go_on(key, yes()).await.unwrap();
    for end in [end, look(key).await] {
        let RunEnd::Completed { checkpoint, .. } = end else {
            panic!("killed at {point:?}: {end:?}")
        };
        assert_eq!(checkpoint.messages.last().unwrap().text(), "paid");
    }
    let asks = usize::from(matches!(point, Point::Before | Point::After));
    assert_eq!(
        (paid(folder), questions),
        (vec!["ada 7".to_owned()], asks),
        "killed at {point:?}"
    );
}
