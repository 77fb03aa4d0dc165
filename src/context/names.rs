use std::collections::BTreeMap;
use std::sync::Arc;

use super::run_context::RunContext;

/// Names in a text that one conversation alone can read, such as a placeholder or a reference, and
/// what each means there: an empty text if it means nothing.
pub type Names = BTreeMap<String, String>;

type FindNames = dyn Fn(&RunContext, &str) -> Names + Send + Sync;

const KEY: &str = "tower_agent.names";

/// Find the names that the layers of a run have declared, by kind.
type NameFinders = Vec<(Arc<str>, Arc<FindNames>)>;

/// The names of a run's conversation that mean something there alone; see
/// [`RunContext::names`].
#[derive(Clone, Copy, Debug)]
pub struct DeclaredNames<'a>(&'a RunContext);

impl RunContext {
    /// Returns the names that mean something in this conversation alone, as the layers of the run
    /// [declare](DeclaredNames::declare) them.
    #[must_use]
    pub fn names(&self) -> DeclaredNames<'_> {
        DeclaredNames(self)
    }
}

impl DeclaredNames<'_> {
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
    /// context.names().declare("files", move |_, text| {
    ///     let numbered = files.iter().enumerate();
    ///     let named = numbered.map(|(at, file)| (format!("#{}", at + 1), file.to_string()));
    ///     named.filter(|(name, _)| text.contains(name)).collect()
    /// });
    /// let names = context.names().in_text("Read #1.");
    /// assert_eq!(names, Names::from([("#1".into(), "taxes.pdf".into())]));
    /// ```
    pub fn declare(
        self,
        kind: impl Into<Arc<str>>,
        find: impl Fn(&RunContext, &str) -> Names + Send + Sync + 'static,
    ) {
        let kind = kind.into();
        let find: Arc<FindNames> = Arc::new(find);
        let values = self.0.values();
        let add = |finders: &mut NameFinders| {
            if finders.iter().all(|(known, _)| *known != kind) {
                finders.push((kind.clone(), find.clone()));
            }
        };
        if values.update(KEY, add).is_err() {
            // Somebody else's value: to leave it would let the names into other conversations.
            values.set(KEY, vec![(kind, find)]);
        }
    }

    /// Returns whether no part of the run has declared names.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.finders().is_none()
    }

    /// Returns the names in a text, and what they mean.
    ///
    /// **When:** something outlives the conversation, as an entry of a cache does. It is of use
    /// elsewhere if it has no names, or where they mean the same.
    #[must_use]
    pub fn in_text(self, text: &str) -> Names {
        let finders = self.finders();
        let finders = finders.iter().flat_map(|finders| finders.iter());
        finders.flat_map(|(_, find)| find(self.0, text)).collect()
    }

    fn finders(self) -> Option<Arc<NameFinders>> {
        self.0.values().get(KEY).ok().flatten()
    }
}
