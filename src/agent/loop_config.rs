use std::borrow::Cow;
use std::sync::Arc;

use super::agent::Agent;
use super::outline::Outline;
use super::progress::LoopProgress;
use super::tool_messages::ShowTool;
use crate::callback::LayerInner;
use crate::model::{ModelRequest, Settings};
use crate::tool::{ToolRequest, ToolSet};

/// The parts of an agent's loop.
pub(super) struct LoopConfig {
    pub(super) model: LayerInner<ModelRequest>,
    pub(super) tools: LayerInner<ToolRequest>,
    pub(super) tool_set: ToolSet,
    pub(super) outline: Arc<Outline>,
    pub(super) options: LoopOptions,
}

/// The settings that a builder passes on to the loop.
pub(super) struct LoopOptions {
    pub(super) instructions: Option<Arc<str>>,
    pub(super) settings: Arc<Settings>,
    pub(super) tool_concurrency: usize,
    pub(super) show_tool: Option<ShowTool>,
    pub(super) tool_failure_message: Option<Cow<'static, str>>,
    pub(super) stop_when: Option<StopWhen>,
    pub(super) sub_agents: Vec<Agent>,
    /// The key of the state that the agent's text is stored under.
    pub(super) output_key: Option<Arc<str>>,
    /// The model reads the current turn alone.
    pub(super) is_without_history: bool,
}

pub(super) type StopWhen = Box<dyn Fn(&LoopProgress<'_>) -> bool + Send + Sync>;
