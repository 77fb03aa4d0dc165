use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;

use super::{Config, Plan, Team, Until};
use crate::agent::agent::{Agent, AgentInner};
use crate::agent::build_error::BuildError;
use crate::agent::builder::{check_members, check_name};
use crate::agent::named_tools::{self, KnownTools};
use crate::agent::options::Semantics;
use crate::agent::outline::{Body, Outline};
use crate::callback::{Bundle, Callback, Carried, InTree, LayerInner, StackBuilder};
use crate::context;
use crate::run::{AgentRequest, AgentResponse, AgentService, BoxAgent};

/// Composes an agent of agents; [`Agent::sequential`], [`Agent::parallel`] and [`Agent::repeat`]
/// make it.
///
/// What it builds is an [`Agent`] like any other: it has a name and a place in the path, callbacks
/// and layers of its own, and may be a member, a tool or a sub-agent in turn. Its response has
/// everything that its members have said, and counts their model calls.
///
/// | a member | one after another | side by side |
/// |---|---|---|
/// | answers | the next one goes on with the conversation | the others go on; answers stand in the members' order |
/// | satisfies [`until`](Self::until), or [escalates](crate::RunContext::escalate) | no further member is called | the others are dropped, and its answer stands last |
/// | is interrupted | the team is, with what it has | the others finish, then the team is, with everything they wait for |
/// | ends its invocation | as if it had answered | as if it had answered |
/// | fails or aborts | with that error the team does | the others are dropped, with that error the team fails |
///
/// A team that its members, rather than `until` or an escalation, brought to its end is
/// [`Finished`](crate::EndReason::Completed), also when it has repeated as often as it may; otherwise it
/// is [`Stopped`](crate::EndReason::StopCondition).
///
/// A team that was interrupted or failed [resumes](crate::AgentRequest::resume) as every agent does:
/// members that have had their turn are not called again, and the one that waits or failed goes on
/// where it stopped. Side by side, all that wait or were dropped go on, each with its own
/// conversation. The team's transcript shows the last of those that wait alone, and the others once
/// that one is done, so that no call in it stays open. A team that repeats counts its rounds anew.
/// Once the user has spoken, the team starts over.
///
/// The [`Checkpoint`](crate::Checkpoint) says whose turn it is. Messages alone do not: with those of
/// a run that has left tool calls open the team fails, as an
/// [`InvalidRequest`](crate::ErrorKind::InvalidRequest), rather than let another member make them.
///
/// ```
/// use tower_agent::testing::{ScriptedModel, Turn};
/// use tower_agent::Agent;
/// use tower_agent::callback::before_agent;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_agent::BoxError> {
/// # let agent = |name: &str, text: &str| {
/// #     Agent::builder(ScriptedModel::new([Turn::from_text(text)])).name(name).build()
/// # };
/// let critics = Agent::parallel("critics")
///     .agent(agent("style", "Too long.")?)
///     .agent(agent("facts", "All true.")?)
///     .build()?;
/// let essay = Agent::sequential("essay")
///     .on_agent(before_agent(|_| println!("begins")))
///     .agent(agent("writer", "A long essay.")?)
///     .agent(critics)
///     .agent(agent("editor", "A short essay.")?)
///     .build()?;
///
/// let response = essay.run("Write an essay.").await?;
/// let said: Vec<_> = response.new_messages().map(|message| message.text()).collect();
/// assert_eq!(said, ["A long essay.", "Too long.", "All true.", "A short essay."]);
/// assert_eq!(response.text(), "A short essay.");
/// # Ok(())
/// # }
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct TeamBuilder {
    name: Arc<str>,
    description: Arc<str>,
    plan: Plan,
    members: Vec<Agent>,
    until: Option<Until>,
    max_nesting: Option<u32>,
    semantics: Option<Semantics>,
    global: Bundle,
    stack: StackBuilder<AgentRequest>,
}

impl TeamBuilder {
    pub(in crate::agent) fn sequential(name: Arc<str>) -> Self {
        Self::new(name, Plan::InTurn { rounds: 1 })
    }

    pub(in crate::agent) fn parallel(name: Arc<str>) -> Self {
        Self::new(name, Plan::SideBySide)
    }

    pub(in crate::agent) fn repeat(name: Arc<str>, rounds: u32) -> Self {
        Self::new(name, Plan::InTurn { rounds })
    }

    fn new(name: Arc<str>, plan: Plan) -> Self {
        Self {
            name,
            description: "".into(),
            plan,
            members: Vec::new(),
            until: None,
            max_nesting: None,
            semantics: None,
            global: Bundle::new(),
            stack: StackBuilder::new(),
        }
    }

    /// Says what the team is for, to the models of agents that may hand over to it.
    pub fn description(mut self, description: impl Into<Arc<str>>) -> Self {
        self.description = description.into();
        self
    }

    /// Adds a member.
    pub fn agent(mut self, member: Agent) -> Self {
        self.members.push(member);
        self
    }

    /// Adds members.
    pub fn agents(mut self, members: impl IntoIterator<Item = Agent>) -> Self {
        self.members.extend(members);
        self
    }

    /// Ends the team when `until` says so of the response of a member that is done. It is not
    /// asked of a member that was interrupted.
    ///
    /// Side by side this makes a race:
    ///
    /// ```
    /// # use tower_agent::Agent;
    /// let race = Agent::parallel("race").until(|response| !response.text().is_empty());
    /// # drop(race);
    /// ```
    pub fn until(mut self, until: impl Fn(&AgentResponse) -> bool + Send + Sync + 'static) -> Self {
        self.until = Some(Box::new(until));
        self
    }

    /// Registers a callback for the team as a whole.
    pub fn on_agent(mut self, callback: impl Callback<AgentRequest>) -> Self {
        self.stack.callback(callback);
        self
    }

    /// Registers a layer for the team as a whole. What is registered after it is inside it.
    pub fn agent_layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<LayerInner<AgentRequest>, Service: AgentService> + Send + 'static,
    {
        self.stack.layer(layer);
        self
    }

    /// Registers a bundle for the team and all agents in it. In each it stands around everything
    /// of the agent's own, unless the [semantics](crate::compat::Globals) put it first in every
    /// phase.
    pub fn global(mut self, bundle: impl Into<Bundle>) -> Self {
        self.global = self.global.and(bundle);
        self
    }

    /// Sets how many agents may be at work inside this team and one another: as tools, as sub-agents
    /// that take over, as members of teams. Defaults to 10 for the agent that is called first.
    ///
    /// What the agents around it allow holds as well, so the limit of the whole tree is set on its
    /// root. One agent more fails with [`MaxNesting`](crate::ErrorKind::MaxNesting); where it is a
    /// tool, that is the tool's error, of which the model is told. A call of an agent in a tool or a
    /// callback counts if it is part of the run, by
    /// [`with_context`](crate::AgentRequest::with_context).
    pub fn max_nesting(mut self, max: u32) -> Self {
        self.max_nesting = Some(max);
        self
    }

    /// Sets how the team's callbacks answer what frameworks answer differently, and its members
    /// that have no semantics of their own. Defaults to the semantics of the agent that contains
    /// the team, and to [`Semantics::default`] for one that is called itself.
    pub fn semantics(mut self, semantics: Semantics) -> Self {
        self.semantics = Some(semantics);
        self
    }

    /// Composes the team.
    ///
    /// # Errors
    ///
    /// When it has no members or no rounds, two of them have one name, the team's name cannot
    /// stand in a path, or a global callback names a tool that none of them has.
    pub fn build(self) -> Result<Agent, BuildError> {
        check_name(&self.name)?;
        check_members(&self.members)?;
        if self.members.is_empty() {
            return Err(BuildError::NoMembers(self.name));
        }
        if let Plan::InTurn { rounds: 0 } = self.plan {
            return Err(BuildError::NoRounds(self.name));
        }
        let all = self.members.iter().flat_map(Agent::known_tools).cloned().collect();
        named_tools::check(self.global.named_tools(), &all)?;
        let outline = self.outline();
        let Self { name, description, plan, members, until, max_nesting, semantics, stack, .. } =
            self;
        let team = Team(Arc::new(Config { plan, members, until }));
        let inmost = BoxAgent::new(Carried::new(team));
        let stack = stack.around(inmost, semantics.map(|semantics| semantics.band));
        Ok(Agent::new(AgentInner {
            name,
            description,
            // Its members have limits of their own.
            max_iterations: u32::MAX,
            max_nesting,
            known_tools: KnownTools { all, ..KnownTools::default() },
            explanation: outline.explain(&context::Carried::default()),
            outline,
            stack: InTree::new(stack),
        }))
    }

    fn outline(&self) -> Outline {
        let plan = match self.plan {
            Plan::InTurn { rounds: 1 } => "one after another".to_owned(),
            Plan::InTurn { rounds } => format!("one after another, {rounds} rounds at most"),
            Plan::SideBySide => "side by side".to_owned(),
        };
        let until = if self.until.is_some() { ", until told" } else { "" };
        Outline {
            name: self.name.clone(),
            semantics: self.semantics,
            global: self.global.clone(),
            agent: (&self.stack).into(),
            body: Body::Team { plan: plan + until, members: self.members.clone() },
        }
    }
}

impl fmt::Debug for TeamBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outline = self.outline();
        write!(f, "TeamBuilder({})", outline.explain(&context::Carried::default()))
    }
}
