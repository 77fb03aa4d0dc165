//! Export and removal of runs, by run and by user, and the audit of who did it.

use http::request::Parts;
use http::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use tower_agent::BoxError;

use super::body::ResponseBody;
use super::input;
use super::reply::{self, Refusal};
use crate::console::{Console, Found};
use crate::lock::lock;
use crate::operator::Operator;

/// A request for one run, or for all of a user: named, or as the user of a run, whom the operator
/// need not know.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum Which {
    Run(String),
    User(String),
    UserOf(String),
}

/// The operation on runs.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Action {
    Export,
    Delete,
}

impl Action {
    fn name(self) -> &'static str {
        match self {
            Self::Export => "export",
            Self::Delete => "delete",
        }
    }
}

/// Exports or removes what the body of a request names, and writes down who did.
pub(super) async fn act<B>(
    console: &Console,
    operator: &Operator,
    action: Action,
    parts: &Parts,
    body: B,
) -> Result<Response<ResponseBody>, Refusal>
where
    B: http_body::Body<Error: Into<BoxError>>,
{
    let mut about = "?".to_owned();
    let done = Data { console, operator };
    let done = done.act(action, parts, body, &mut about).await;
    let status = done.as_ref().map_or_else(Refusal::status, Response::status);
    console
        .inner
        .audited(operator, action.name(), about, status);
    done
}

struct Data<'a> {
    console: &'a Console,
    operator: &'a Operator,
}

impl Data<'_> {
    /// Does it. The audit is about what `about` says then.
    async fn act<B>(
        &self,
        action: Action,
        parts: &Parts,
        body: B,
        about: &mut String,
    ) -> Result<Response<ResponseBody>, Refusal>
    where
        B: http_body::Body<Error: Into<BoxError>>,
    {
        if !self.operator.manages_data {
            return Err(forbidden("the operator does not manage data"));
        }
        let user = match input::json(parts, body, input::NAMES).await? {
            Which::Run(id) => {
                *about = format!("run {}", shortened(&id));
                return self.act_on_run(action, &id).await;
            }
            Which::User(user) => {
                if !self.operator.sees_users {
                    return Err(forbidden("the operator does not see users"));
                }
                user
            }
            Which::UserOf(id) => self.user_of(&id).await?,
        };
        // Not everybody who reads the audit may know who it is.
        *about = format!("runs of {}", self.console.inner.hash(&user));
        if action == Action::Delete {
            let deleted = self.console.delete_user(&user).await?;
            return Ok(reply::json(&json!({ "deleted": deleted })));
        }
        let runs = self.console.export_user(&user).await?;
        Ok(self.exported(runs))
    }

    async fn act_on_run(
        &self,
        action: Action,
        id: &str,
    ) -> Result<Response<ResponseBody>, Refusal> {
        if action == Action::Delete {
            if !self.console.delete_run(id).await? {
                return Err(Refusal::not_found());
            }
            return Ok(reply::json(&json!({ "deleted": 1 })));
        }
        let run = self.console.export_run(id).await?;
        Ok(self.exported(vec![run.ok_or_else(Refusal::not_found)?]))
    }

    async fn user_of(&self, id: &str) -> Result<String, Refusal> {
        let inner = &self.console.inner;
        inner.collector.collect();
        let user = match inner.find(id).await? {
            Found::Nowhere => None,
            Found::Stored(_, head) => head.user,
            Found::Recent(number) => {
                let store = lock(&inner.collector.store);
                let run = store.runs.get(&number);
                run.and_then(|run| run.summary.user.as_deref().map(str::to_owned))
            }
        };
        user.ok_or_else(Refusal::not_found)
    }

    /// Returns runs as far as the operator may see them.
    fn exported(&self, mut runs: Vec<Value>) -> Response<ResponseBody> {
        for run in &mut runs {
            if !self.operator.sees_users
                && let Some(user) = run["run"]["user"].as_str()
            {
                run["run"]["user"] = self.console.inner.hash(user).into();
            }
            if !self.operator.sees_content
                && let Some(entries) = run["entries"].as_array_mut()
            {
                for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
                    entry.remove("input");
                    entry.remove("output");
                }
            }
        }
        reply::json(&json!({ "runs": runs }))
    }
}

fn forbidden(why: &str) -> Refusal {
    Refusal::new(StatusCode::FORBIDDEN, "forbidden", why)
}

fn shortened(id: &str) -> String {
    id.chars().take(200).collect()
}
