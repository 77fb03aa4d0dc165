//! The cases of an answer where runs are in an engine.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::SystemTime;

use tower_agent::{Agent, AgentRequest, Resolution};
use tower_agent_durable::journal::{Durable, Journal, RunEnd, RunKey};
use tower_agent_middleware::approval::Decision;

use crate::support::answers::{Case, Paid, Payment, clerk};

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
