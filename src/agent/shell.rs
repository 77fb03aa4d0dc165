//! The settings that agents and teams have alike.

use std::sync::Arc;

use super::build_error::BuildError;
use crate::callback::{AtNoAnswer, Bundle, Rules, Stacks};

/// An agent or a team without its inside.
#[derive(Clone)]
pub(super) struct Shell {
    pub(super) name: Arc<str>,
    pub(super) description: Arc<str>,
    pub(super) max_nesting: Option<u32>,
    pub(super) rules: Option<Arc<dyn Rules>>,
    pub(super) at_no_answer: Option<AtNoAnswer>,
    /// The agent may transfer to the agent that has it; `None` for what the rules say.
    pub(super) transfer_to_parent: Option<bool>,
    /// The same for the other sub-agents of that one.
    pub(super) transfer_to_peers: Option<bool>,
    /// The bundles for the whole tree, outermost first.
    pub(super) global: Vec<Bundle>,
    /// The callbacks and layers around its own calls.
    pub(super) own: Stacks,
}

impl Shell {
    pub(super) fn new(name: Arc<str>) -> Self {
        Self {
            name,
            description: "".into(),
            max_nesting: None,
            rules: None,
            at_no_answer: None,
            transfer_to_parent: None,
            transfer_to_peers: None,
            global: Vec::new(),
            own: Stacks::default(),
        }
    }

    /// Checks that the name can be part of a path, and that no journal is for this agent alone.
    /// Puts the layers where the rules have them.
    pub(super) fn settle(&mut self) -> Result<(), BuildError> {
        if self.name.is_empty() || self.name.contains('/') {
            return Err(BuildError::Name(self.name.clone()));
        }
        if self.own.has_journal() {
            return Err(BuildError::NotDurable(self.name.clone()));
        }
        if let Some(rules) = &self.rules {
            self.own.arrange(rules.as_ref());
        }
        Ok(())
    }
}

/// The setters of a [`Shell`], for the builders of an `"agent"` and of a `"team"`.
//
// A macro, so that users find them among the other methods of each builder.
macro_rules! shell_setters {
    ($what:literal) => {
        #[doc = concat!("Sets the description, for the models of agents that may transfer to this ", $what, ".")]
        pub fn description(mut self, description: impl Into<Arc<str>>) -> Self {
            self.shell.description = description.into();
            self
        }

        #[doc = concat!("Adds a callback for calls of the ", $what, " itself.")]
        pub fn on_agent(mut self, callback: impl Callback<AgentRequest>) -> Self {
            self.shell.own.agent.callback(callback);
            self
        }

        #[doc = concat!("Adds a layer for calls of the ", $what, " itself. What is registered after it is inside it.")]
        pub fn agent_layer<L>(mut self, layer: L) -> Self
        where
            L: Layer<LayerInner<AgentRequest>, Service: AgentService> + Send + Sync + 'static,
        {
            self.shell.own.agent.layer(layer);
            self
        }

        #[doc = concat!("Adds a bundle for the ", $what, " and all agents inside it, including agents used as tools.")]
        /// In each agent it is placed around everything of the agent's own, unless the
        /// [semantics](crate::callback::CallbackRules::global_joins_band) put it first in every
        /// phase.
        pub fn global_callbacks(mut self, bundle: impl Into<Bundle>) -> Self {
            bundle.into().push_to(&mut self.shell.global);
            self
        }

        #[doc = concat!("Sets how deeply agents may be nested inside this ", $what, ": as tools, as sub-agents after a")]
        /// transfer, as members of teams. Defaults to 10 for the agent that is called first.
        ///
        /// Limits of outer agents apply as well, so set the limit of the whole tree on its root. An
        /// agent beyond the limit fails with [`MaxNesting`](crate::ErrorKind::MaxNesting); if it is
        /// a tool, that is the tool's error, which the model reads. An agent called in a tool or a
        /// callback counts if it is part of the run, by
        /// [`with_context`](crate::AgentRequest::with_context).
        pub fn max_nesting(mut self, max: u32) -> Self {
            self.shell.max_nesting = Some(max);
            self
        }

        #[doc = concat!("Sets the compatibility semantics for the callbacks and the loop of this ", $what, ", and for agents")]
        /// inside it without their own. Defaults to the semantics of the agent that contains it,
        /// and otherwise to [`Semantics::default`](crate::compat::Semantics).
        pub fn semantics(mut self, semantics: impl Rules) -> Self {
            self.shell.rules = Some(Arc::new(semantics));
            self
        }

        #[doc = concat!("Sets what the ", $what, ", and the agents inside it without their own, do if the last")]
        /// response of a model is no answer: cut off, filtered, refused or empty. Defaults to what
        /// the agent that contains it does, and otherwise to the
        /// [semantics](crate::callback::LoopRules::at_no_answer), which return it with the end
        /// reason [`NoAnswer`](crate::EndReason::NoAnswer).
        ///
        /// ```
        /// use tower_agent::agent::AtNoAnswer;
        /// # use tower_agent::Agent;
        /// # use tower_agent_test::{ScriptedModel, Turn};
        /// # #[tokio::main(flavor = "current_thread")]
        /// # async fn main() -> Result<(), tower_agent::BoxError> {
        /// # let model = ScriptedModel::new([Turn::from_text(""), Turn::from_text("Oslo.")]);
        /// let agent = Agent::builder(model).at_no_answer(AtNoAnswer::AskAgain(1)).build()?;
        /// assert_eq!(agent.run("The capital of Norway?").await?.text(), "Oslo.");
        /// # Ok(())
        /// # }
        /// ```
        pub fn at_no_answer(mut self, action: $crate::callback::AtNoAnswer) -> Self {
            self.shell.at_no_answer = Some(action);
            self
        }
    };
}
pub(super) use shell_setters;
