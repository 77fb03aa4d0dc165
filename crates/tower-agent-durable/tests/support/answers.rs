//! One question, and the cases of its answer.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tower_agent::callback::before_tool;
use tower_agent::model::ModelService;
use tower_agent::{Agent, AgentBuilder, Effect, Request, Tool, ToolRequest};
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
    /// The call has had other arguments when it was resumed.
    Changed,
    WrongRole,
    /// The user's own approval.
    Own,
}

impl Case {
    pub(crate) const ALL: [Self; 7] = [
        Self::Once,
        Self::Twice,
        Self::Rejected,
        Self::Late,
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

    pub(crate) fn decision(self) -> Decision {
        match self {
            Self::Rejected => Decision::reject("no"),
            _ => Decision::Approve,
        }
    }

    /// Returns the name of who answers. `ada` is the user.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Own => "ada",
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

/// The user of each payment, and its amount.
pub(crate) type Paid = Arc<Mutex<Vec<(String, i64)>>>;

/// Returns an agent that pays once somebody else than its user has approved it. A callback
/// multiplies the amount by the factor.
pub(crate) fn clerk(
    model: impl ModelService,
    case: Case,
    factor: &Arc<AtomicI64>,
    paid: &Paid,
) -> AgentBuilder {
    let paid = paid.clone();
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
            paid.lock().unwrap().push((user, cents));
            std::future::ready("paid")
        },
    );
    let time = match case {
        Case::Late => Duration::ZERO,
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
