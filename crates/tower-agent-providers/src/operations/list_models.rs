use serde_json::{Map, Value};

use tower_agent::call::CallKind;
use tower_agent::message::Metadata;
use tower_agent::{Request, RunContext};

/// A call that lists a provider's models.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ListModels {
    /// The [`next`](ModelList::next) of the list before. Defaults to the first.
    pub page: Option<String>,
    context: RunContext,
}

impl ListModels {
    /// Creates a call for the first page.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the page.
    #[must_use]
    pub fn with_page(mut self, page: impl Into<String>) -> Self {
        self.page = Some(page.into());
        self
    }

    /// Sets the run that the call belongs to.
    #[must_use]
    pub fn with_context(mut self, context: RunContext) -> Self {
        self.context = context;
        self
    }
}

impl Request for ListModels {
    type Response = ModelList;

    const CALL: CallKind = CallKind::Other("list_models");

    fn context(&self) -> &RunContext {
        &self.context
    }
}

/// A page of a provider's models.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ModelList {
    /// The models, in the provider's order.
    pub models: Vec<ListedModel>,
    /// The page after this one, if there is one.
    pub next: Option<String>,
    /// Further fields of the provider's response.
    pub metadata: Metadata,
}

impl ModelList {
    /// Creates a page.
    #[must_use]
    pub fn new(models: Vec<ListedModel>, next: Option<String>, metadata: Metadata) -> Self {
        Self {
            models,
            next,
            metadata,
        }
    }
}

/// A model of a list.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ListedModel {
    /// The name by which the model is called.
    pub id: String,
    /// All that the provider says of it, such as the size of its context.
    pub fields: Map<String, Value>,
}

impl ListedModel {
    /// Returns the entries of models whose name stands in this field. An entry without one is left
    /// out.
    #[cfg(any(
        feature = "anthropic",
        feature = "gemini",
        feature = "ollama",
        feature = "openai"
    ))]
    pub(crate) fn all(fields: Vec<Map<String, Value>>, name: &str) -> Vec<Self> {
        let entry = |fields: Map<String, Value>| {
            let id = fields.get(name)?.as_str()?.to_owned();
            Some(Self::new(id, fields))
        };
        fields.into_iter().filter_map(entry).collect()
    }

    /// Creates the entry of a model.
    #[must_use]
    pub fn new(id: impl Into<String>, fields: Map<String, Value>) -> Self {
        Self {
            id: id.into(),
            fields,
        }
    }
}
