/// One event of a streamed response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event<'a> {
    /// The name of a server-sent event, if it has one. A line has none.
    pub name: Option<&'a str>,
    /// The data of a server-sent event, or a line. Not empty, without white space at either end.
    pub data: &'a str,
}

impl<'a> Event<'a> {
    /// Creates an event without a name.
    #[must_use]
    pub const fn new(data: &'a str) -> Self {
        Self { name: None, data }
    }

    /// Sets the name.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<Option<&'a str>>) -> Self {
        self.name = name.into();
        self
    }
}
