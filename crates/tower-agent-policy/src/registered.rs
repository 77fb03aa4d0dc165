//! A rulebook as callbacks and layers.

use tower_agent::callback::{Bundle, Callbacks};
use tower_agent::tool::ToolRequest;

use crate::guard::{Calls, Innermost, Mode, Shown};
use crate::rulebook::Rulebook;

impl Rulebook {
    /// Returns the callbacks that let a call through only if the rules allow it. Register them with
    /// [`global_callbacks`](tower_agent::AgentBuilder::global_callbacks), once for the whole tree
    /// of agents.
    #[must_use]
    pub fn enforce(&self) -> Bundle {
        self.bundle(Mode::Enforce)
    }

    /// Returns callbacks that report what the rules say of each call, and change nothing: calls are
    /// made, results are shown, nobody is asked.
    #[must_use]
    pub fn observe(&self) -> Bundle {
        self.bundle(Mode::Observe)
    }

    /// Returns the guard of one tool that no agent calls, such as one that an MCP server serves: a
    /// layer around it.
    ///
    /// ```
    /// use tower_agent::Tool;
    /// use tower_agent_policy::Rulebook;
    ///
    /// fn guarded(refund: Tool, rules: &Rulebook) -> Tool {
    ///     refund.layer(rules.layer())
    /// }
    /// ```
    #[must_use]
    pub fn layer(&self) -> Callbacks<ToolRequest> {
        Callbacks::new()
            .with(Calls::new(self.clone(), Mode::Enforce))
            .with(Innermost::new(self.clone(), Mode::Enforce))
    }

    fn bundle(&self, mode: Mode) -> Bundle {
        let bundle = Bundle::new()
            .outermost_tool(Calls::new(self.clone(), mode))
            .at_tool(Innermost::new(self.clone(), mode));
        match mode {
            Mode::Enforce => bundle.outermost_model(Shown(self.clone())),
            Mode::Observe => bundle,
        }
    }
}
