//! The entities that rules are about: from the run, and from a source of the application.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cedar_policy::Entities;
use serde_json::Value;
use tokio::time::{Instant, timeout};
use tower_agent::BoxError;

use crate::principal::Principal;
use crate::schema::Requests;

/// The most principals whose entities are kept.
const MAX_KEPT: usize = 1024;

/// A source of the entities of a principal: the roles, tenants and things that it has to do with.
///
/// A source is asked before each call, and says with a version whether anything has changed: what
/// is kept is then used again. If it fails, or does not answer [in
/// time](crate::RulebookBuilder::entities_timeout), the call is refused.
///
/// ```
/// use serde_json::json;
/// use tower_agent::BoxError;
/// use tower_agent_policy::{EntitySource, Loaded, Principal};
///
/// struct Directory;
///
/// impl EntitySource for Directory {
///     async fn load(&self, principal: &Principal, known: Option<&str>) -> Result<Loaded, BoxError> {
///         let version = "7"; // of this user in the database
///         if known == Some(version) {
///             return Ok(Loaded::Unchanged);
///         }
///         let user = json!({
///             "uid": { "type": "User", "id": principal.id() },
///             "attrs": {},
///             "parents": [{ "type": "Role", "id": "support" }],
///         });
///         Ok(Loaded::new(version, json!([user])))
///     }
/// }
/// # drop(Directory);
/// ```
pub trait EntitySource: Send + Sync + 'static {
    /// Returns the entities, in Cedar's JSON. `known` is the version of those that are kept for
    /// this principal, if any are.
    ///
    /// # Errors
    ///
    /// Fails if it does not know: the call is refused.
    fn load(
        &self,
        principal: &Principal,
        known: Option<&str>,
    ) -> impl Future<Output = Result<Loaded, BoxError>> + Send;
}

/// The answer of an [`EntitySource`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Loaded {
    /// The known version counts.
    Unchanged,
    /// These entities, with their version.
    #[non_exhaustive]
    Entities {
        /// The version.
        version: String,
        /// A list in Cedar's JSON.
        entities: Value,
    },
}

impl Loaded {
    /// Creates entities with their version.
    #[must_use]
    pub fn new(version: impl Into<String>, entities: impl Into<Value>) -> Self {
        Self::Entities {
            version: version.into(),
            entities: entities.into(),
        }
    }
}

type LoadFuture<'a> = Pin<Box<dyn Future<Output = Result<Loaded, BoxError>> + Send + 'a>>;

trait AnySource: Send + Sync {
    fn load<'a>(&'a self, principal: &'a Principal, known: Option<&'a str>) -> LoadFuture<'a>;
}

impl<S: EntitySource> AnySource for S {
    fn load<'a>(&'a self, principal: &'a Principal, known: Option<&'a str>) -> LoadFuture<'a> {
        Box::pin(EntitySource::load(self, principal, known))
    }
}

/// The source of the application, if it has one, and what is kept of it.
pub(crate) struct Source {
    source: Option<Box<dyn AnySource>>,
    pub(crate) time_limit: Duration,
    pub(crate) max_age: Duration,
    kept: Mutex<HashMap<(String, String), Arc<Kept>>>,
}

struct Kept {
    principal: Principal,
    version: Option<String>,
    /// The JSON that the source has returned.
    raw: Arc<Value>,
    entities: Arc<Entities>,
    loaded_at: Instant,
}

impl Default for Source {
    fn default() -> Self {
        Self {
            source: None,
            time_limit: Duration::from_secs(5),
            max_age: Duration::from_secs(5 * 60),
            kept: Mutex::default(),
        }
    }
}

impl Source {
    pub(crate) fn set(&mut self, source: impl EntitySource) {
        self.source = Some(Box::new(source));
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<(String, String), Arc<Kept>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the entities of a principal, or why there are none.
    pub(crate) async fn of(
        &self,
        principal: &Principal,
        requests: &Requests,
    ) -> Result<Arc<Entities>, String> {
        let key = (principal.kind().to_owned(), principal.id().to_owned());
        let kept = self.kept().get(&key).cloned();
        let is_same = |kept: &Arc<Kept>| kept.principal == *principal;
        let Some(source) = &self.source else {
            if let Some(kept) = kept.filter(is_same) {
                return Ok(kept.entities.clone());
            }
            let raw = Arc::new(Value::Array(Vec::new()));
            return self.keep(key, principal, None, raw, Instant::now(), requests);
        };
        // A source that never changes its version is asked for everything now and then.
        let kept = kept.filter(|kept| kept.loaded_at.elapsed() < self.max_age);
        let known = kept.as_ref().and_then(|kept| kept.version.as_deref());
        let loaded = timeout(self.time_limit, source.load(principal, known)).await;
        let loaded = match loaded {
            Ok(Ok(loaded)) => loaded,
            Ok(Err(error)) => return Err(format!("the source of entities has failed: {error}")),
            Err(_) => {
                return Err(format!(
                    "the source of entities has not answered within {:?}",
                    self.time_limit
                ));
            }
        };
        match (loaded, kept) {
            (Loaded::Entities { version, entities }, _) => {
                let raw = Arc::new(entities);
                self.keep(key, principal, Some(version), raw, Instant::now(), requests)
            }
            (Loaded::Unchanged, Some(kept)) if is_same(&kept) => Ok(kept.entities.clone()),
            // The run says something else about the principal than before.
            (Loaded::Unchanged, Some(kept)) => {
                let version = kept.version.clone();
                let raw = kept.raw.clone();
                self.keep(key, principal, version, raw, kept.loaded_at, requests)
            }
            (Loaded::Unchanged, None) => Err(
                "the source of entities says that nothing has changed, and nothing is known"
                    .to_owned(),
            ),
        }
    }

    fn keep(
        &self,
        key: (String, String),
        principal: &Principal,
        version: Option<String>,
        raw: Arc<Value>,
        loaded_at: Instant,
        requests: &Requests,
    ) -> Result<Arc<Entities>, String> {
        let entities = Arc::new(entities_of(principal, &raw, requests)?);
        let mut all = self.kept();
        if all.len() >= MAX_KEPT && !all.contains_key(&key) {
            let oldest = all.iter().min_by_key(|(_, kept)| kept.loaded_at);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                all.remove(&oldest);
            }
        }
        let kept = Kept {
            principal: principal.clone(),
            version,
            raw,
            entities: entities.clone(),
            loaded_at,
        };
        all.insert(key, Arc::new(kept));
        Ok(entities)
    }
}

/// Returns the entities of the source, with the principal and the tools, as the schema has them.
pub(crate) fn entities_of(
    principal: &Principal,
    raw: &Value,
    requests: &Requests,
) -> Result<Entities, String> {
    let Value::Array(raw) = raw else {
        return Err("entities are not a list".to_owned());
    };
    let mut all = raw.clone();
    principal.join(&mut all)?;
    let tools = requests.tools.values().map(|tool| tool.entity());
    let tools: Result<Vec<_>, _> = tools.collect();
    let tools = tools.map_err(|problem| problem.to_string())?;
    let entities = Entities::from_json_value(Value::Array(all), Some(&requests.schema))
        .map_err(|error| text_of(&error))?;
    entities
        .add_entities(tools, Some(&requests.schema))
        .map_err(|error| text_of(&error))
}

/// Returns the text of an error with those behind it: Cedar's first line seldom says enough.
pub(crate) fn text_of(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("has_source", &self.source.is_some())
            .field("time_limit", &self.time_limit)
            .finish_non_exhaustive()
    }
}
