use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;

use super::config::{Plan, TeamConfig};
use super::service::service;
use crate::agent::agent::{Agent, AgentInner};
use crate::agent::build_error::BuildError;
use crate::agent::builder::check_members;
use crate::agent::explain::Explained;
use crate::agent::named_tools::{self, KnownTools, ToolNames};
use crate::agent::outline::Outline;
use crate::agent::shell::{Shell, shell_setters};
use crate::callback::{Bundle, Callback, LayerInner, Rules};
use crate::error::Result;
use crate::message::Message;
use crate::run::{AgentRequest, AgentResponse, AgentService};

/// Builds a team of agents; created by [`Agent::sequential`], [`Agent::parallel`],
/// [`Agent::for_each`] and [`Agent::repeat`].
///
/// The result is an [`Agent`] like any other: it has a name and a place in the path, its own
/// callbacks and layers, and may be a member, a tool or a sub-agent itself. Its response contains
/// all messages of its members, and counts their model calls.
///
/// | a member | in turn | in parallel |
/// |---|---|---|
/// | responds | the next one continues the conversation | the others continue; responses are in the members' order |
/// | satisfies [`until`](Self::until), or [escalates](crate::RunContext::escalate) | no further member is called | the others are dropped, and its response comes last |
/// | is interrupted | the team is interrupted, with its messages so far | the others finish, then the team is interrupted, with all interrupts |
/// | ends its invocation | as if it had responded | as if it had responded |
/// | fails | the team fails with that error | the same, and the others are dropped; with [`allow_failures`](Self::allow_failures) it is left out |
/// | aborts | the run ends with that error | the same |
///
/// A team that is ended by its members has the end reason
/// [`Completed`](crate::EndReason::Completed), also after the last round; a team that is ended by
/// `until` or an escalation has [`StopCondition`](crate::EndReason::StopCondition).
///
/// A team that was interrupted or failed [resumes](crate::AgentRequest::resume) like any agent:
/// members that have finished are not called again, and the one that was interrupted or failed
/// continues where it stopped. A repeating team goes on in the round in which it was interrupted;
/// after any other end it counts its rounds from zero. After a user message the team starts over.
///
/// In a parallel team, all members that were interrupted or dropped continue, each with its own
/// conversation. The team's transcript ends with the first member that waits, and the messages of
/// the members after it join it once that one has finished: it has the members' order, however
/// often the team was interrupted. A stream shows the messages of all of them as they come, and a
/// resumed one does not show them again.
///
/// The [`Checkpoint`](crate::Checkpoint) records which member continues. Messages alone do not: if
/// they have open tool calls, the team fails with an
/// [`InvalidRequest`](crate::ErrorKind::InvalidRequest), so that no other member executes them.
///
/// ```
/// use tower_agent::Agent;
/// use tower_agent::callback::before_agent;
/// use tower_agent_test::{ScriptedModel, Turn};
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
    shell: Shell,
    team: TeamConfig,
}

impl Agent {
    /// Creates a team whose members run in turn: each continues the conversation of those before
    /// it. See [`TeamBuilder`].
    pub fn sequential(name: impl Into<Arc<str>>) -> TeamBuilder {
        TeamBuilder::new(name.into(), Plan::InTurn { rounds: 1 })
    }

    /// Creates a team whose members respond to the same conversation in parallel. See
    /// [`TeamBuilder`].
    pub fn parallel(name: impl Into<Arc<str>>) -> TeamBuilder {
        TeamBuilder::new(name.into(), Plan::SideBySide)
    }

    /// Creates a team whose members run in turn, for at most `max_rounds` rounds. See
    /// [`TeamBuilder`].
    pub fn repeat(name: impl Into<Arc<str>>, max_rounds: u32) -> TeamBuilder {
        TeamBuilder::new(name.into(), Plan::InTurn { rounds: max_rounds })
    }

    /// Creates a team that runs one agent once for each task, in parallel. The tasks are made when
    /// the team begins, for example of a list in the answer of the member before it. See
    /// [`TeamBuilder`].
    ///
    /// Each run has the team's conversation and its task, by default as a user's message, and a
    /// name and a path of its own: `worker.0`, `worker.1`, .. At most 8 of them are made at the
    /// same time, or as many as [`concurrency`](TeamBuilder::concurrency) says. The tasks and their
    /// answers are in the transcript, in the order of the tasks. A run that resumes has the tasks
    /// that it began with.
    ///
    /// If `make_tasks` fails, the team fails with its error. Let it depend on the request only, so
    /// that a run that is made again from a journal has the same tasks. A list that a model has
    /// written can be long: take as many of it as you can afford.
    ///
    /// ```
    /// use tower_agent::{Agent, AgentRequest};
    /// use tower_agent_test::{ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// # let worker = ScriptedModel::always(Turn::from_text("From the west."));
    /// # let worker = Agent::builder(worker).name("worker").build()?;
    /// let research = Agent::for_each("research", worker, |request: &AgentRequest| {
    ///     let plan = request.messages().last().map(|plan| plan.text()).unwrap_or_default();
    ///     Ok(plan.lines().take(20).map(String::from).collect::<Vec<_>>())
    /// })
    /// .concurrency(4)
    /// .build()?;
    /// let response = research.run("tides\nwinds").await?;
    /// assert_eq!(response.new_messages().count(), 4);
    /// # Ok(())
    /// # }
    /// ```
    pub fn for_each<T>(
        name: impl Into<Arc<str>>,
        worker: Self,
        make_tasks: impl Fn(&AgentRequest) -> Result<T> + Send + Sync + 'static,
    ) -> TeamBuilder
    where
        T: IntoIterator<Item: Into<Message>>,
    {
        let make_tasks = move |request: &AgentRequest| {
            let tasks = make_tasks(request)?;
            Ok(tasks.into_iter().map(Into::into).collect())
        };
        TeamBuilder::new(name.into(), Plan::ForEach(Box::new(make_tasks))).agent(worker)
    }
}

impl TeamBuilder {
    fn new(name: Arc<str>, plan: Plan) -> Self {
        Self {
            shell: Shell::new(name),
            team: TeamConfig {
                plan,
                members: Vec::new(),
                until: None,
                concurrency: None,
                allows_failures: false,
            },
        }
    }

    shell_setters!("team");

    /// Adds a member.
    pub fn agent(mut self, member: Agent) -> Self {
        self.team.members.push(member);
        self
    }

    /// Adds several members.
    pub fn agents(mut self, members: impl IntoIterator<Item = Agent>) -> Self {
        self.team.members.extend(members);
        self
    }

    /// Ends the team if `until` returns `true` for the response of a member that has finished. It
    /// does not run for a member that was interrupted.
    ///
    /// In a parallel team this makes a race:
    ///
    /// ```
    /// # use tower_agent::Agent;
    /// let race = Agent::parallel("race").until(|response| !response.text().is_empty());
    /// # drop(race);
    /// ```
    pub fn until(mut self, until: impl Fn(&AgentResponse) -> bool + Send + Sync + 'static) -> Self {
        self.team.until = Some(Box::new(until));
        self
    }

    /// Sets how many members of a parallel team run at the same time. Defaults to all of them, and
    /// to 8 for a team that runs an agent [for each task](Agent::for_each).
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.team.concurrency = Some(concurrency);
        self
    }

    /// Leaves a member of a parallel team out if it fails: the team's response is that of the
    /// others. Its error is logged, and told by the stream at the member's end. If all fail, the
    /// team fails with the error of the first of them. An abort, or the cancellation of the run,
    /// still ends the team.
    ///
    /// Without it, the team fails with the error of that member. The checkpoint then has what the
    /// others have finished, and a run that resumes calls only those that have not.
    ///
    /// With an [`until`](Self::until) that is always true, one answer is enough:
    ///
    /// ```
    /// use tower_agent::{Agent, Error, ErrorKind};
    /// use tower_agent_test::{ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// # let agent = |name: &str, turn| Agent::builder(ScriptedModel::new([turn])).name(name).build();
    /// let busy = Turn::error(Error::new(ErrorKind::Overloaded, "busy"));
    /// let any = Agent::parallel("any")
    ///     .agents([agent("one", busy)?, agent("other", Turn::from_text("Hello."))?])
    ///     .allow_failures()
    ///     .until(|_| true)
    ///     .build()?;
    /// assert_eq!(any.run("Hi.").await?.text(), "Hello.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn allow_failures(mut self) -> Self {
        self.team.allows_failures = true;
        self
    }

    /// Builds the team.
    ///
    /// # Errors
    ///
    /// Fails if the team has no members or no rounds, two members have the same name, the team's
    /// name is invalid, a setting is not for this kind of team, or a global callback names a tool
    /// that no member has.
    pub fn build(mut self) -> Result<Agent, BuildError> {
        self.shell.settle()?;
        check_members(&self.team.members)?;
        if self.team.members.is_empty() {
            return Err(BuildError::NoMembers(self.shell.name));
        }
        if let Plan::InTurn { rounds: 0 } = self.team.plan {
            return Err(BuildError::NoRounds(self.shell.name));
        }
        if let Plan::InTurn { .. } = self.team.plan
            && (self.team.allows_failures || self.team.concurrency.is_some())
        {
            return Err(BuildError::NotParallel(self.shell.name));
        }
        if let Plan::ForEach(_) = self.team.plan
            && self.team.members.len() > 1
        {
            return Err(BuildError::OneWorker(self.shell.name));
        }
        if let Some(0) = self.team.concurrency {
            return Err(BuildError::NoConcurrency(self.shell.name));
        }
        let mut all = ToolNames::new();
        let of_members = self.team.members.iter().flat_map(Agent::known_tools);
        named_tools::add(&mut all, of_members.map(|(name, is)| (&**name, *is)));
        let mut named: Vec<_> = self
            .shell
            .global
            .iter()
            .flat_map(Bundle::named_tools)
            .collect();
        named_tools::check(named.iter().cloned(), &all)?;
        // Those that a run brings are known then.
        named.retain(|named| named.as_agent);
        let outline = self.outline();
        let gives_one_answer = match self.team.plan {
            Plan::InTurn { .. } => {
                let last = self.team.members.last();
                last.is_some_and(Agent::gives_one_answer)
            }
            Plan::SideBySide | Plan::ForEach(_) => false,
        };
        let Shell { rules, own, .. } = self.shell;
        let stack = own.agent.in_agent(service(self.team), rules.as_deref());
        Ok(Agent::new(AgentInner {
            // The members have limits of their own.
            max_iterations: u32::MAX,
            known_tools: KnownTools {
                all,
                brought: named,
            },
            explanation: outline.explain(&None, None),
            outline: Arc::new(outline),
            gives_one_answer,
            output_key: None,
            stack,
        }))
    }

    fn outline(&self) -> Outline {
        let plan = match self.team.plan {
            Plan::InTurn { rounds: 1 } => "in turn".to_owned(),
            Plan::InTurn { rounds } => format!("in turn, at most {rounds} rounds"),
            Plan::SideBySide => "in parallel".to_owned(),
            Plan::ForEach(_) => "once for each task, in parallel".to_owned(),
        };
        let at_once = match self.team.most_at_once() {
            usize::MAX => String::new(),
            most => format!(", {most} at a time"),
        };
        let failures = if self.team.allows_failures {
            ", without those that fail"
        } else {
            ""
        };
        let until = if self.team.until.is_some() {
            ", with a stop condition"
        } else {
            ""
        };
        Outline {
            shell: self.shell.clone(),
            body: Explained::Team {
                plan: plan + &at_once + failures + until,
                members: Vec::new(),
            },
            inside: self.team.members.iter().map(Agent::outline).collect(),
            in_tools: Vec::new(),
        }
    }
}

impl fmt::Debug for TeamBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outline = self.outline();
        write!(f, "TeamBuilder({})", outline.explain(&None, None))
    }
}
