//! One question, and the cases of its answer.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tower_agent::callback::before_tool;
use tower_agent::message::ToolCall;
use tower_agent::{
    Agent, AgentBuilder, BoxError, Effect, Interrupt, Message, ModelRequest, ModelResponse,
    Request, Resolution, Tool, ToolRequest,
};
use tower_agent_conversations::ConversationKey;
use tower_agent_durable::journal::RunKey;
use tower_agent_middleware::approval::{Approval, Decision};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Case {
    Once,
    /// Again on each way.
    Twice,
    Rejected,
    /// Its time was over.
    Late,
    /// Its time was over, and somebody who may not answer says what the question then names.
    Due,
    /// It does not fit the question.
    Unfit,
    /// The call has had other arguments when it was resumed.
    Changed,
    WrongRole,
    /// The user's own approval.
    Own,
}

impl Case {
    pub(crate) const ALL: [Self; 9] = [
        Self::Once,
        Self::Twice,
        Self::Rejected,
        Self::Late,
        Self::Due,
        Self::Unfit,
        Self::Changed,
        Self::WrongRole,
        Self::Own,
    ];

    /// Returns how often the tool is called.
    pub(crate) fn calls(self) -> usize {
        match self {
            Self::Once | Self::Twice => 1,
            _ => 0,
        }
    }

    /// Returns the answer to a question that is known under this id.
    pub(crate) fn answer(self, id: &str, question: &Interrupt) -> Resolution {
        let answer = match self {
            Self::Rejected => Resolution::resolved(id, Decision::reject("no")),
            Self::Unfit => Resolution::resolved(id, json!({ "approved": "maybe" })),
            Self::Due => {
                let due = question.answer_at(SystemTime::now()).unwrap();
                let mut answer = Resolution::cancelled(id);
                answer.outcome = due.outcome;
                answer
            }
            _ => Resolution::resolved(id, Decision::Approve),
        };
        answer.with_name(self.name())
    }

    /// Returns the name of who answers. `ada` is the user.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Own | Self::Due => "ada",
            _ => "sam",
        }
    }

    /// Returns what a callback makes of the amount when the answer comes.
    pub(crate) fn factor(self) -> i64 {
        match self {
            Self::Changed => 100,
            _ => 1,
        }
    }
}

/// The user of a payment, and its amount.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Payment(pub(crate) String, pub(crate) i64);

/// The payments.
pub(crate) type Paid = Arc<Mutex<Vec<Payment>>>;

/// Returns an agent that pays once somebody else than its user has approved it, and says what has
/// become of it. A callback multiplies the amount by the factor.
pub(crate) fn clerk<F>(
    case: Case,
    factor: &Arc<AtomicI64>,
    pay: impl Fn(Payment) -> F + Send + Sync + 'static,
) -> AgentBuilder
where
    F: Future<Output = ()> + Send + 'static,
{
    let model = tower::service_fn(|request: ModelRequest| async move {
        let results = request.messages().iter().flat_map(Message::tool_results);
        Ok::<_, BoxError>(match results.last() {
            None => {
                let call = ToolCall::new("c", "pay", json!({ "cents": 7 }));
                ModelResponse::from_tool_calls([call])
            }
            Some(result) => ModelResponse::from_text(result.text()),
        })
    });
    let pay = Tool::function_with(
        "pay",
        "Pays.",
        move |arguments: Value, call: ToolRequest| {
            let context = call.context();
            let user = match ConversationKey::of(context) {
                Some(key) => key.user.to_string(),
                None => {
                    let run = context.extensions().get::<RunKey>();
                    let user = run.and_then(|run| run.user.as_deref());
                    user.unwrap_or_default().to_owned()
                }
            };
            let cents = arguments["cents"].as_i64().unwrap();
            let paid = pay(Payment(user, cents));
            async move {
                paid.await;
                "paid"
            }
        },
    );
    let time = match case {
        Case::Late | Case::Due => Duration::ZERO,
        _ => Duration::from_secs(24 * 60 * 60),
    };
    let approval = Approval::of_tools(["pay"])
        .by_role("support")
        .not_by(|_| Some("ada".to_owned()))
        .deny_after(time);
    let factor = factor.clone();
    let converts = before_tool(move |call: &mut ToolRequest| {
        let cents = call.arguments()["cents"].as_i64().unwrap_or_default();
        if cents < 1000 {
            let cents = cents * factor.load(Ordering::SeqCst);
            *call.arguments_mut() = json!({ "cents": cents });
        }
    });
    Agent::builder(model)
        .name("clerk")
        .tool(pay.effect(Effect::Mutating))
        .on_tool(converts)
        .on_tool(approval)
}
