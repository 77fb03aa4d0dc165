//! Checks that a layer that journals calls sees each call once.
//!
//! What is outside it could repeat a call, leave it out or move it to another task, and would be asked
//! again about a call that is not made again.

use super::build_error::BuildError;
use crate::call::CallKind;
use crate::callback::{Bundle, InBundle, Purpose, Registered};
use crate::error::{Error, ErrorKind, Result};
use crate::model::ModelRequest;
use crate::run::AgentRequest;
use crate::tool::ToolRequest;

fn is_durable(it: &Registered) -> bool {
    it.purpose == Some(Purpose::Durability)
}

/// Returns whether a bundle has a layer that journals calls.
pub(super) fn is_journaled(bundle: &Bundle) -> bool {
    bundle.layers::<ModelRequest>().all().any(is_durable)
}

/// Fails if something in a bundle is outside its layer that journals calls.
pub(super) fn check_bundle(bundle: &Bundle) -> Result<(), BuildError> {
    check_layers::<ModelRequest>(bundle)?;
    check_layers::<ToolRequest>(bundle)
}

fn check_layers<R: InBundle>(bundle: &Bundle) -> Result<(), BuildError> {
    let mut layers = bundle.layers::<R>().all();
    let Some(first) = layers.next() else {
        return Ok(());
    };
    let Some(durable) = layers.find(|it| is_durable(it)) else {
        return Ok(());
    };
    let why = match first.purpose {
        Some(Purpose::Durability) => "it is registered twice".to_owned(),
        _ => format!("`{}` is outside; register that after it", first.name),
    };
    Err(BuildError::NotDurable {
        by: durable.name.clone(),
        call: R::CALL,
        why,
    })
}

/// Fails if an agent has a layer that journals calls among its own, which sub-agents lack.
pub(super) fn check_own(call: CallKind, own: &[Registered]) -> Result<(), BuildError> {
    match own.iter().find(|it| is_durable(it)) {
        Some(durable) => Err(BuildError::NotDurable {
            by: durable.name.clone(),
            call,
            why: "sub-agents lack it, and the agent's own layers may be outside; pass it to \
                  `global_callbacks`"
                .to_owned(),
        }),
        None => Ok(()),
    }
}

/// Fails if an agent with journaled calls is repeated as a whole.
pub(super) fn check_agent(global: &Bundle, own: &[Registered]) -> Result<(), BuildError> {
    check_own(CallKind::Agent, own)?;
    let Some(durable) = global
        .layers::<ModelRequest>()
        .all()
        .find(|it| is_durable(it))
    else {
        return Ok(());
    };
    let of_tree = global.layers::<AgentRequest>().all();
    let mut around = of_tree.chain(own);
    match around.find(|it| it.purpose == Some(Purpose::Retry)) {
        Some(retry) => Err(BuildError::NotDurable {
            by: durable.name.clone(),
            call: CallKind::Model,
            why: format!(
                "`{}` repeats the whole agent; put it around the model",
                retry.name
            ),
        }),
        None => Ok(()),
    }
}

/// Fails if the layer of a run that journals calls is inside others.
pub(super) fn check_run(global: &Bundle, of_run: &Bundle) -> Result<()> {
    let invalid = |why: String| Err(Error::new(ErrorKind::InvalidRequest, why));
    if let Err(error) = check_bundle(of_run) {
        return invalid(error.to_string());
    }
    let is_durable = of_run.layers::<ModelRequest>().all().any(is_durable);
    let outside = global
        .layers::<ModelRequest>()
        .all()
        .chain(global.layers::<ToolRequest>().all());
    match outside.into_iter().next().filter(|_| is_durable) {
        Some(layer) => invalid(format!(
            "a run whose calls are journaled was given to an agent with `{}` outside: pass the \
             journal to `global_callbacks`, before that",
            layer.name
        )),
        None => Ok(()),
    }
}
