use std::iter;
use std::sync::Arc;

use super::effects::EffectLog;
use super::inherited::WrapperCall;

/// What a call carries in its context besides its run. Few calls carry anything.
pub(crate) struct Carried {
    /// The log of the call that this is part of, if its effects are collected.
    pub(super) effects: Option<EffectLog>,
    /// The wrapper that the call has entered, if a probe watches it.
    wrapper: Option<WrapperCall>,
    /// What was carried outside.
    outer: Option<Arc<Self>>,
}

impl Carried {
    /// Carries the log of a call, inside of what is carried already.
    pub(super) fn log(effects: EffectLog, outer: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self {
            effects: Some(effects),
            wrapper: None,
            outer,
        })
    }

    /// Carries the wrapper that a call enters, inside of what is carried already.
    pub(super) fn wrapper(wrapper: WrapperCall, outer: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self {
            effects: outer.as_ref().and_then(|outer| outer.effects.clone()),
            wrapper: Some(wrapper),
            outer,
        })
    }

    /// Returns the wrapper that the call has entered here.
    pub(crate) fn entered(&self) -> Option<&WrapperCall> {
        self.wrapper.as_ref()
    }

    /// Returns this and what was carried outside, from the inside out.
    pub(super) fn around(self: &Arc<Self>) -> impl Iterator<Item = &Arc<Self>> {
        iter::successors(Some(self), |carried| carried.outer.as_ref())
    }
}
