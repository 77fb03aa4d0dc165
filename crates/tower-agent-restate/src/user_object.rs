use restate_sdk::prelude::{
    ContextReadState, ContextWriteState, HandlerResult, Json, ObjectContext, SharedObjectContext,
};
use tower_agent_durable::journal::RunKey;

use crate::wire::Answer;

/// Knows the runs of a user, who is its key: the server finds none by their user. Each has an entry
/// in the state.
pub(crate) struct UserObject;

#[restate_sdk::object(
    name = "TowerAgentUser",
    client_visibility = "pub(crate)",
    lazy_state,
    journal_retention = "0s"
)]
impl UserObject {
    #[handler]
    async fn add(
        &self,
        context: ObjectContext<'_>,
        Json(run): Json<RunKey>,
    ) -> HandlerResult<Json<Answer<()>>> {
        context.set(&run.to_text(), true);
        Ok(Json(Ok(())))
    }

    #[handler]
    async fn remove(
        &self,
        context: ObjectContext<'_>,
        Json(run): Json<RunKey>,
    ) -> HandlerResult<Json<Answer<()>>> {
        context.clear(&run.to_text());
        Ok(Json(Ok(())))
    }

    #[handler]
    async fn runs(
        &self,
        context: SharedObjectContext<'_>,
        _: Json<()>,
    ) -> HandlerResult<Json<Answer<Vec<RunKey>>>> {
        let keys = context.get_keys().await?;
        let runs = keys.iter().map(|key| RunKey::from_text(key)).collect();
        Ok(Json(Ok(runs)))
    }
}
