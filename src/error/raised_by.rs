use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The callback and hook that raised an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RaisedBy {
    /// The [`name`](crate::Callback::name) of the callback or wrap.
    pub callback: Cow<'static, str>,
    /// The hook: `before`, `after`, `on_error` or `wrap`.
    pub hook: Cow<'static, str>,
}

impl fmt::Display for RaisedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` in {}", self.callback, self.hook)
    }
}
