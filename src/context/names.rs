use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::run_context::RunContext;
use crate::lock::lock;

/// Names in a text that one conversation alone can read, such as a placeholder or a reference, and
/// what each means there: an empty text if it means nothing.
pub type Names = BTreeMap<String, String>;

type FindNames = dyn Fn(&RunContext, &str) -> Names + Send + Sync;

/// Finds the names that the layers of a run have declared.
#[derive(Default)]
pub(super) struct NameFinders(Mutex<Vec<(Arc<str>, Arc<FindNames>)>>);

impl RunContext {
    /// Declares names that mean something in this conversation alone: `find` returns those in a
    /// text. The first declaration under a `kind` counts for the whole run.
    ///
    /// **When:** a callback, a layer or a tool writes names into requests or responses which it, or
    /// another part of it, replaces by something else later. Before the first call in which one
    /// may stand. Without it a cache replays the name in a conversation where it means somebody
    /// else.
    ///
    /// `find` should also return a name that means nothing so far. It must declare no names.
    ///
    /// ```
    /// use tower_agent::RunContext;
    /// use tower_agent::context::Names;
    ///
    /// // The model reads `#1` in place of the first file of this user.
    /// let context = RunContext::default();
    /// let files = ["taxes.pdf"];
    /// context.declare_names("files", move |_, text| {
    ///     let numbered = files.iter().enumerate();
    ///     let named = numbered.map(|(at, file)| (format!("#{}", at + 1), file.to_string()));
    ///     named.filter(|(name, _)| text.contains(name)).collect()
    /// });
    /// assert_eq!(context.names_in("Read #1."), Names::from([("#1".into(), "taxes.pdf".into())]));
    /// ```
    pub fn declare_names(
        &self,
        kind: impl Into<Arc<str>>,
        find: impl Fn(&Self, &str) -> Names + Send + Sync + 'static,
    ) {
        let kind = kind.into();
        let mut finders = lock(&self.values().names.0);
        if finders.iter().all(|(known, _)| *known != kind) {
            finders.push((kind, Arc::new(find)));
        }
    }

    /// Returns whether a part of the run has [declared](Self::declare_names) names.
    #[must_use]
    pub fn has_names(&self) -> bool {
        !lock(&self.values().names.0).is_empty()
    }

    /// Returns the [declared](Self::declare_names) names in a text, and what they mean.
    ///
    /// **When:** something outlives the conversation, as an entry of a cache does. It is of use
    /// elsewhere if it has no names, or where they mean the same.
    #[must_use]
    pub fn names_in(&self, text: &str) -> Names {
        // Without the lock: `find` is code of others.
        let finders = lock(&self.values().names.0).clone();
        let found = finders.iter().flat_map(|(_, find)| find(self, text));
        found.collect()
    }
}
