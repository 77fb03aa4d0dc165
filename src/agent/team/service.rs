use std::sync::Arc;

use super::config::{Plan, TeamConfig};
use super::{parallel, sequence};
use crate::call::{BoxCallFuture, Request};
use crate::conversation::make_whole;
use crate::run::{AgentRequest, BoxAgent};

/// The plan at the bottom of a team's stack.
pub(super) fn service(config: TeamConfig) -> BoxAgent {
    let config = Arc::new(config);
    BoxAgent::internal(move |request| call(config.clone(), request))
}

#[inline(never)]
fn call(team: Arc<TeamConfig>, mut request: AgentRequest) -> BoxCallFuture<AgentRequest> {
    Box::pin(async move {
        // Once for all its members.
        let added = make_whole(request.messages_mut());
        let context = request.context();
        if let Some(emitter) = &context.listeners().emitter {
            let new_from = request.messages().len();
            let mut conversation = context.place().begin(request.messages()).into_arrived();
            if let Plan::SideBySide | Plan::ForEach(_) = team.plan {
                let shown = parallel::shown_before(&team, context);
                emitter.resume(&shown);
                conversation.extend(shown.iter().cloned());
            }
            emitter.begin(&conversation, new_from).await;
        }
        context.listeners().tell_results(&added).await;
        let result = match team.plan {
            Plan::InTurn { rounds } => sequence::run(&team, rounds, &request).await,
            Plan::SideBySide | Plan::ForEach(_) => parallel::run(&team, &request).await,
        };
        context.endings().settle::<AgentRequest, _>(None, result)
    })
}
