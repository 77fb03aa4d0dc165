use std::sync::Arc;

use crate::wire::Event;

/// The events for the client that one event is translated to: any number of them. Cloning is O(1).
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
    /// Creates a response of these events, in this order.
    #[must_use]
    pub fn new(events: impl IntoIterator<Item = Event>) -> Self {
        events.into_iter().collect()
    }

    /// Creates a response without events.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns the events.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.0
    }

    /// Returns the events, to change them.
    pub fn events_mut(&mut self) -> &mut Vec<Event> {
        Arc::make_mut(&mut self.0)
    }

    /// Returns the events.
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
