//! Gives a model many tools without sending all of them.
//!
//! ```text
//! ToolSearch: Callback<ModelRequest>
//! ```
//!
//! The declarations of a hundred tools can take half of a context window, and a model that sees
//! them all chooses worse. With this callback it sees two tools in their place:
//!
//! | tool | does |
//! |---|---|
//! | `search_tools` | returns the names and descriptions of the tools that match some words |
//! | `load_tools` | declares tools by their names, from the next model call on |
//!
//! ```
//! use serde_json::json;
//! use tower_agent::{Agent, BoxError, Tool};
//! use tower_agent_middleware::tool_search::ToolSearch;
//! use tower_agent_test::{ScriptedModel, Turn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let many = (0..200).map(|n| {
//!     Tool::function(format!("city_{n}"), format!("The weather in city {n}."), |_: ()| "It rains.")
//! });
//! let search = ToolSearch::new(many);
//! let model = ScriptedModel::new([
//!     Turn::tool("search_tools", json!({ "query": "weather in city 42" })),
//!     Turn::tool("load_tools", json!({ "names": ["city_42"] })),
//!     Turn::tool("city_42", json!(null)),
//!     Turn::from_text("It rains."),
//! ]);
//! let agent = Agent::builder(model.clone())
//!     .tools(search.tools())
//!     .on_model(search)
//!     .build()?;
//! agent.run("How is the weather in city 42?").await?;
//!
//! let declared = |call: usize| model.requests()[call].tools().len();
//! assert_eq!([declared(0), declared(1), declared(2)], [2, 2, 3]);
//! # Ok(())
//! # }
//! ```
//!
//! A tool that something outside has taken out of the request, such as a policy, is neither found
//! nor loaded.
//!
//! A tool that is not declared is not forbidden: a call of one that the model knows from elsewhere
//! is made, and guards see it like any other. Which tools were loaded is kept in the conversation's
//! [private state](tower_agent::RunContext::private_state), for each agent: they stay declared, in
//! the order in which they were loaded, so that requests begin alike until another one is.
//!
//! With [`Flow`](crate::flow::Flow) around it, what a search returns is trusted, as the program's
//! own words, unless one of the tools found is [described by
//! others](tower_agent::tool::ToolDeclaration::described_by_others), such as an MCP server.
//!
//! # Where to put it
//!
//! On the agent that has the tools, outside of what counts the tokens of a request, such as
//! [`context_window`](crate::context_window). Tools that the model needs most of the time, agents
//! used as tools and the tools of a client are given to the agent directly.

mod index;
mod meta;

use std::fmt;
use std::sync::Arc;

use tower_agent::Tool;
use tower_agent::call::Request;
use tower_agent::callback::{Action, Callback};
use tower_agent::error::Result;
use tower_agent::model::{ModelRequest, ModelResponse, ToolChoice};
use tower_agent::tool::ToolDeclaration;

use self::index::Index;

/// Declares tools to a model once it has looked for them.
///
/// See the [module](self).
#[derive(Clone)]
#[must_use = "a callback does nothing until it is registered"]
pub struct ToolSearch {
    tools: Arc<[Tool]>,
    index: Arc<Index>,
}

impl ToolSearch {
    /// Creates a search in these tools. Add its [tools](Self::tools) to the agent.
    pub fn new(tools: impl IntoIterator<Item = Tool>) -> Self {
        let tools: Arc<[Tool]> = tools.into_iter().collect();
        let declarations = tools.iter().map(|tool| tool.declaration().clone());
        Self {
            index: Arc::new(Index::new(declarations.collect())),
            tools,
        }
    }

    /// Returns the tools that are searched, `search_tools` and `load_tools`.
    #[must_use]
    pub fn tools(&self) -> Vec<Tool> {
        let mut tools = self.tools.to_vec();
        tools.push(meta::search(self.index.clone()));
        tools.push(meta::load(self.index.clone()));
        tools
    }
}

impl Callback<ModelRequest> for ToolSearch {
    async fn before(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        let forced = match &request.settings().tool_choice {
            Some(ToolChoice::Tool(name)) => Some(name.clone()),
            _ => None,
        };
        // What somebody outside has taken out, such as a policy, cannot be found.
        meta::note_missing(request.context(), self.index.not_in(request.tools()));
        let loaded = meta::loaded(request.context());
        let place =
            |tool: &Arc<ToolDeclaration>| loaded.iter().position(|name| name == tool.name());
        let is_wanted = |tool: &Arc<ToolDeclaration>| {
            place(tool).is_some() || forced.as_deref().is_some_and(|name| name == tool.name())
        };
        let (mut found, mut others): (Vec<_>, Vec<_>) = request
            .tools()
            .iter()
            .filter(|tool| !self.index.contains(tool.name()) || is_wanted(tool))
            .cloned()
            .partition(|tool| self.index.contains(tool.name()));
        // At the end, in the order in which they were loaded: a request begins like the one before.
        found.sort_by_key(|tool| place(tool));
        others.append(&mut found);
        *request.tools_mut() = others;
        Ok(Action::Continue)
    }
}

impl fmt::Debug for ToolSearch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolSearch")
            .field("tools", &self.tools.len())
            .finish_non_exhaustive()
    }
}
