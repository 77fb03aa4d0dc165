use std::sync::Arc;

use crate::Event;

/// What a front end is sent of one event: any number of events. Cloning is O(1).
///
/// ```
/// use tower_agent_agui::{Event, TranslateResponse};
///
/// let response = TranslateResponse::new([Event::custom("hello", "world")]);
/// assert_eq!(response.events().len(), 1);
/// assert!(TranslateResponse::none().events().is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TranslateResponse(Arc<Vec<Event>>);

impl TranslateResponse {
    /// These events, in this order.
    #[must_use]
    pub fn new(events: impl IntoIterator<Item = Event>) -> Self {
        events.into_iter().collect()
    }

    /// Nothing is sent.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// The events.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.0
    }

    /// The events, to change.
    pub fn events_mut(&mut self) -> &mut Vec<Event> {
        Arc::make_mut(&mut self.0)
    }

    /// The events.
    #[must_use]
    pub fn into_events(self) -> Vec<Event> {
        Arc::unwrap_or_clone(self.0)
    }
}

impl From<Event> for TranslateResponse {
    fn from(event: Event) -> Self {
        Self::new([event])
    }
}

impl FromIterator<Event> for TranslateResponse {
    fn from_iter<I: IntoIterator<Item = Event>>(events: I) -> Self {
        Self(Arc::new(events.into_iter().collect()))
    }
}
