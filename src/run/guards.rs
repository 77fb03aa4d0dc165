//! Guards that come with a run, and that its conversation does not go on without.

use serde_json::{Map, Value};

use crate::context::RunContext;
use crate::error::{Error, ErrorKind, Result};
use crate::state::GUARDS;

/// The guards of a run, each with what whoever goes on without it is told.
#[derive(Clone, Default)]
pub(crate) struct Guards(pub(super) Vec<(String, String)>);

impl Guards {
    /// Notes the guards of a run in its conversation, where its outermost agent begins. Fails if
    /// the conversation has one that the run has not, or if an agent inside brings one along.
    pub(crate) fn check(context: &RunContext) -> Result<()> {
        let own = context.extensions().get::<Self>();
        let state = context.private_state();
        // Nobody has called this agent.
        let is_outermost = context.path().is_empty();
        if let Some(own) = own.filter(|_| is_outermost) {
            let mut all: Map<String, Value> = state.read(GUARDS, |known| {
                let known = known.and_then(Value::as_object);
                known.cloned().unwrap_or_default()
            });
            let more = own.0.iter();
            all.extend(more.map(|(name, why)| (name.clone(), why.as_str().into())));
            state.set(GUARDS, all);
        }
        let is_own =
            |name: &String| own.is_some_and(|own| own.0.iter().any(|(known, _)| known == name));
        let refusal = state.read(GUARDS, |known| {
            let known = known.and_then(Value::as_object);
            let mut noted = known.into_iter().flatten();
            if let Some((name, why)) = noted.find(|(name, _)| !is_own(name)) {
                let why = why.as_str().unwrap_or_default();
                return Some(format!(
                    "the conversation does not go on without its guard `{name}`: {why}"
                ));
            }
            let has = |name: &str| known.is_some_and(|known| known.contains_key(name));
            let mut brought = own.into_iter().flat_map(|own| &own.0);
            let (name, _) = brought.find(|(name, _)| !has(name))?;
            Some(format!(
                "the guard `{name}` belongs to a whole run, and was given to an agent inside one"
            ))
        });
        match refusal {
            None => Ok(()),
            Some(why) => Err(Error::new(ErrorKind::InvalidRequest, why)),
        }
    }
}
