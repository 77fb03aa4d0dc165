use std::iter;
use std::sync::{Arc, Mutex};

use super::effects::EffectLog;
use super::inherited::WrapperCall;
use super::state_trace::StateTrace;
use crate::lock::lock;

/// Things that a call carries in its context besides its run. Few calls carry any.
#[derive(Default)]
pub(crate) struct Carried {
    /// The log of the call that this is part of, if its effects are collected.
    pub(super) effects: Option<EffectLog>,
    /// The state as the call has it, if what it does there is traced.
    pub(super) trace: Option<StateTrace>,
    /// The wrapper that the call has entered, if a probe watches it.
    wrapper: Option<WrapperCall>,
    reasons: Mutex<Reasons>,
    outer: Option<Arc<Self>>,
}

#[derive(Default)]
struct Reasons {
    all: Vec<Arc<str>>,
    /// The number of those that the notes of callbacks have.
    told: usize,
}

impl Carried {
    pub(super) fn log(effects: EffectLog, outer: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self {
            effects: Some(effects),
            outer,
            ..Self::default()
        })
    }

    pub(super) fn traced(trace: StateTrace, outer: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self {
            trace: Some(trace),
            ..Self::inside(outer)
        })
    }

    pub(super) fn wrapper(wrapper: WrapperCall, outer: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self {
            wrapper: Some(wrapper),
            ..Self::inside(outer)
        })
    }

    /// Returns what an agent called here carries: not the wrappers of its caller.
    pub(super) fn in_agent(&self) -> Option<Arc<Self>> {
        let keeps = self.effects.is_some() || self.trace.is_some();
        keeps.then(|| {
            Arc::new(Self {
                effects: self.effects.clone(),
                trace: self.trace.clone(),
                ..Self::default()
            })
        })
    }

    fn inside(outer: Option<Arc<Self>>) -> Self {
        Self {
            effects: outer.as_ref().and_then(|outer| outer.effects.clone()),
            trace: outer.as_ref().and_then(|outer| outer.trace.clone()),
            outer,
            ..Self::default()
        }
    }

    pub(crate) fn entered(&self) -> Option<&WrapperCall> {
        self.wrapper.as_ref()
    }

    pub(super) fn add_reason(&self, reason: Arc<str>) {
        lock(&self.reasons).all.push(reason);
    }

    /// Returns the reasons that were given since this was asked last.
    pub(crate) fn new_reasons(&self) -> Vec<Arc<str>> {
        let mut reasons = lock(&self.reasons);
        let new = reasons.all[reasons.told..].to_vec();
        reasons.told = reasons.all.len();
        new
    }

    pub(crate) fn has_reasons(&self) -> bool {
        !lock(&self.reasons).all.is_empty()
    }

    pub(crate) fn reasons(&self) -> Vec<Arc<str>> {
        lock(&self.reasons).all.clone()
    }

    /// Returns this and what was carried outside, from the inside out.
    pub(crate) fn around(self: &Arc<Self>) -> impl Iterator<Item = &Arc<Self>> {
        iter::successors(Some(self), |carried| carried.outer.as_ref())
    }
}
