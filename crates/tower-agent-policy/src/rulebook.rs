use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use cedar_policy::EntityUid;
use serde_json::Value;
use tower_agent::Agent;
use tower_agent::BoxError;
use tower_agent::agent::{Explained, Explanation};
use tower_agent::call::{Extensions, Request};
use tower_agent::tool::{ToolDeclaration, ToolRequest};
use tower_agent_middleware::approval::Approval;

use crate::case::Case;
use crate::decide::{Facts, Output, Session, may_call};
use crate::entities::{EntitySource, Source, entities_of};
use crate::error::{PolicyError, Problem, nearest};
use crate::principal::Principal;
use crate::rules::Rules;
use crate::ruling::{RefusalReason, Ruling};
use crate::schema::{ALL, Requests, SchemaParts, entity};

pub(crate) type PrincipalOf = dyn Fn(&Extensions) -> Option<Principal> + Send + Sync;
pub(crate) type ResourceOf = dyn Fn(&ToolRequest) -> Option<(String, String)> + Send + Sync;
pub(crate) type AppOf = dyn Fn(&ToolRequest) -> Result<Value, BoxError> + Send + Sync;
pub(crate) type AskWith = dyn Fn(Approval) -> Approval + Send + Sync;

/// The rules of a business, which decide about each tool call. See the [crate](crate).
///
/// Clones are the same rulebook: [`reload`](Self::reload) changes the rules of all.
#[derive(Clone)]
pub struct Rulebook(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) requests: Requests,
    pub(crate) source: Source,
    pub(crate) principal: Box<PrincipalOf>,
    pub(crate) resource: Option<Box<ResourceOf>>,
    pub(crate) app: Option<Box<AppOf>>,
    pub(crate) ask_with: Box<AskWith>,
    pub(crate) clock: Box<dyn Fn() -> SystemTime + Send + Sync>,
    in_force: RwLock<Arc<InForce>>,
}

/// The rules that count now.
pub(crate) struct InForce {
    pub(crate) rules: Rules,
    /// Rules that are only watched.
    pub(crate) shadow: Option<Rules>,
    /// The number of the set, from 1.
    pub(crate) number: u64,
}

/// Creates a [`Rulebook`].
#[must_use = "a builder does nothing until `build` is called"]
pub struct RulebookBuilder {
    parts: SchemaParts,
    files: Vec<(String, String)>,
    shadow: Vec<(String, String)>,
    source: Source,
    principal: Option<Box<PrincipalOf>>,
    resource: Option<Box<ResourceOf>>,
    app: Option<Box<AppOf>>,
    ask_with: Box<AskWith>,
    clock: Box<dyn Fn() -> SystemTime + Send + Sync>,
}

impl Rulebook {
    /// Creates a builder.
    pub fn builder() -> RulebookBuilder {
        RulebookBuilder {
            parts: SchemaParts::default(),
            files: Vec::new(),
            shadow: Vec::new(),
            source: Source::default(),
            principal: None,
            resource: None,
            app: None,
            ask_with: Box::new(|approval| approval),
            clock: Box::new(SystemTime::now),
        }
    }

    /// Returns the schema that rules are checked against, in Cedar's language, for editors and for
    /// checks without an agent.
    #[must_use]
    pub fn schema(&self) -> &str {
        &self.0.requests.text
    }

    /// Replaces the rules by those in these files, each with its name and its text. They are
    /// checked first: if anything is wrong, the rules stay as they are. Runs that are under way
    /// decide their next call by the new ones.
    ///
    /// A shadow set stays as it is.
    ///
    /// # Errors
    ///
    /// Fails with each problem, and changes nothing.
    pub fn reload<N: Into<String>, T: Into<String>>(
        &self,
        files: impl IntoIterator<Item = (N, T)>,
    ) -> Result<(), PolicyError> {
        let rules = Rules::load(&texts(files), &self.0.requests)?;
        self.swap(|now| InForce {
            rules,
            shadow: now.shadow.clone(),
            number: now.number + 1,
        });
        Ok(())
    }

    /// Replaces the [shadow set](RulebookBuilder::shadow_rules); without files there is none.
    ///
    /// # Errors
    ///
    /// Fails with each problem, and changes nothing.
    pub fn reload_shadow<N: Into<String>, T: Into<String>>(
        &self,
        files: impl IntoIterator<Item = (N, T)>,
    ) -> Result<(), PolicyError> {
        let files = texts(files);
        let shadow = match &files[..] {
            [] => None,
            files => Some(Rules::load(files, &self.0.requests)?),
        };
        self.swap(|now| InForce {
            rules: now.rules.clone(),
            shadow,
            number: now.number,
        });
        Ok(())
    }

    fn swap(&self, change: impl FnOnce(&InForce) -> InForce) {
        let in_force = &self.0.in_force;
        let mut now = in_force.write().unwrap_or_else(PoisonError::into_inner);
        *now = Arc::new(change(&now));
    }

    /// Returns the rules that count now.
    pub(crate) fn in_force(&self) -> Arc<InForce> {
        let in_force = &self.0.in_force;
        let now = in_force.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&now)
    }

    /// Returns how many policies are in force.
    #[must_use]
    pub fn count(&self) -> usize {
        self.in_force().rules.count()
    }

    /// Returns how many rules are in force, for the names of callbacks.
    pub(crate) fn in_words(&self) -> String {
        match self.count() {
            1 => "1 rule".to_owned(),
            count => format!("{count} rules"),
        }
    }

    /// Decides about a call that is described, without an agent: for tests of rules, and for
    /// questions about calls of the past.
    ///
    /// The [source of entities](RulebookBuilder::entities) is not asked: the case brings its own.
    #[must_use]
    pub fn decide(&self, case: &Case) -> Ruling {
        let now = self.in_force();
        self.decide_by(case, &now.rules)
    }

    /// Decides about a call by the shadow set, if there is one.
    #[must_use]
    pub fn decide_shadow(&self, case: &Case) -> Option<Ruling> {
        let now = self.in_force();
        let shadow = now.shadow.as_ref()?;
        Some(self.decide_by(case, shadow))
    }

    /// Returns whether a model would be shown the tool of a case: `false` if the principal can have
    /// no call of it made, whatever the arguments and the time.
    #[must_use]
    pub fn is_shown(&self, case: &Case) -> bool {
        let requests = &self.0.requests;
        let Some(tool) = requests.tools.get(&*case.tool) else {
            return false;
        };
        let entities = entities_of(&case.principal, &case.entities, requests);
        let principal = entity(case.principal.kind(), case.principal.id());
        let (Ok(entities), Ok(principal)) = (entities, principal) else {
            return false;
        };
        may_call(tool, &principal, &entities, &self.in_force().rules)
    }

    /// Returns the cases that the rules in force do not simply allow, with what they say: which of
    /// last week's calls would this set have refused, or asked about?
    ///
    /// ```
    /// use tower_agent::message::Messages;
    /// use tower_agent_policy::{Case, Principal, Rulebook};
    ///
    /// fn review(rulebook: &Rulebook, user: Principal, conversation: &Messages) {
    ///     for (case, ruling) in rulebook.not_allowed(Case::of_messages(&user, conversation)) {
    ///         println!("{} of {}: {:?}", case.tool(), case.place(), ruling.verdict);
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn not_allowed(&self, cases: impl IntoIterator<Item = Case>) -> Vec<(Case, Ruling)> {
        let mut found = Vec::new();
        for case in cases {
            let ruling = self.decide(&case);
            if !ruling.is_allowed() {
                found.push((case, ruling));
            }
        }
        found
    }

    fn decide_by(&self, case: &Case, rules: &Rules) -> Ruling {
        let requests = &self.0.requests;
        let Some(tool) = requests.tools.get(&*case.tool) else {
            return Ruling::refused(RefusalReason::UnknownTool);
        };
        let failed =
            |detail: String| Ruling::refused(RefusalReason::NoEntities).with_detail(detail);
        let entities = match entities_of(&case.principal, &case.entities, requests) {
            Ok(entities) => entities,
            Err(detail) => return failed(detail),
        };
        let uid = |kind: &str, id: &str| entity(kind, id).map_err(|problem| problem.to_string());
        let principal = uid(case.principal.kind(), case.principal.id());
        let resource = match &case.resource {
            Some((kind, id)) => uid(kind, id),
            None => Ok(tool.resource.clone()),
        };
        let (principal, resource) = match (principal, resource) {
            (Ok(principal), Ok(resource)) => (principal, resource),
            (Err(detail), _) | (_, Err(detail)) => return failed(detail),
        };
        let output = case.output.as_ref().map(|(text, is_error, value)| Output {
            text,
            is_error: *is_error,
            value,
        });
        let facts = Facts {
            tool,
            principal,
            resource,
            entities: &entities,
            input: &case.arguments,
            session: &case.session,
            flow: case.flow.as_ref(),
            app: case.app.as_ref(),
            output,
        };
        facts.decide(rules, requests)
    }

    /// Compares the rules with an agent: each tool of it and of the agents inside that no rule can
    /// be about, and each tool that a rule names and no agent has. Tools that come with a run are
    /// not among those of the agent.
    ///
    /// # Errors
    ///
    /// Fails with a problem for each tool.
    pub fn check_agent(&self, agent: &Agent) -> Result<(), PolicyError> {
        let mut tools = BTreeSet::new();
        collect_tools(agent.explain(), &mut tools);
        let requests = &self.0.requests;
        let known = || requests.tools.keys().map(|name| &**name);
        let mut problems = Vec::new();
        for name in &tools {
            if requests.tools.contains_key(&**name) {
                continue;
            }
            let problem = Problem::new(format!(
                "no rule can be about tool `{name}`, so each call of it is refused"
            ));
            problems.push(match nearest(name, known()) {
                Some(near) => problem.with_help(format!("the policy knows `{near}`")),
                None => problem.with_help("give its declaration to `tools`"),
            });
        }
        let now = self.in_force();
        for tool in requests.tools.values() {
            let name = tool.declaration.name();
            let is_named = now.rules.names(&tool.call) || now.rules.names(&tool.result);
            if is_named && !tools.contains(name) {
                problems.push(Problem::new(format!(
                    "a rule is about tool `{name}`, and the agent has no such tool"
                )));
            }
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(PolicyError::new(problems))
        }
    }

    pub(crate) fn resource_of(
        &self,
        request: &ToolRequest,
        tool: &EntityUid,
    ) -> Result<EntityUid, String> {
        let Some(resource) = &self.0.resource else {
            return Ok(tool.clone());
        };
        let Some((kind, id)) = resource(request) else {
            return Err("the application does not say what the resource is".to_owned());
        };
        entity(&kind, &id).map_err(|problem| problem.to_string())
    }

    /// Returns what is known about the run of a call.
    pub(crate) fn session(&self, request: &ToolRequest, counts: crate::counts::Counts) -> Session {
        let context = request.context();
        Session {
            time: (self.0.clock)(),
            calls: counts.of_run,
            conversation_calls: counts.of_conversation,
            iteration: i64::from(context.iteration()),
            run_id: context.run_id().to_owned(),
            agent: context.path().to_owned(),
            is_streamed: context.is_streamed(),
        }
    }
}

/// Collects the tools of an agent and of those inside it, but for those with which agents work.
fn collect_tools(explained: &Explanation, tools: &mut BTreeSet<String>) {
    match &explained.body {
        Explained::Loop {
            tools: own,
            sub_agents,
            ..
        } => {
            let own = own.iter().filter(|tool| !tool.is_part_of_loop);
            tools.extend(own.map(|tool| tool.name.clone()));
            for agent in sub_agents {
                collect_tools(agent, tools);
            }
        }
        Explained::Team { members, .. } => {
            for member in members {
                collect_tools(member, tools);
            }
        }
        _ => {}
    }
}

fn texts<N: Into<String>, T: Into<String>>(
    files: impl IntoIterator<Item = (N, T)>,
) -> Vec<(String, String)> {
    let files = files.into_iter();
    files
        .map(|(name, text)| (name.into(), text.into()))
        .collect()
}

impl RulebookBuilder {
    /// Adds tools that rules may be about: each becomes an action of its name, whose
    /// `context.input` has the type of its arguments. Calls of other tools are refused.
    pub fn tools<'a>(
        mut self,
        declarations: impl IntoIterator<Item = &'a Arc<ToolDeclaration>>,
    ) -> Self {
        self.parts.tools.extend(declarations.into_iter().cloned());
        self
    }

    /// Leaves an argument out of what rules see, because Cedar has no type for it. It may have any
    /// value then: let an [attribute](Self::attributes) say what rules need of it.
    pub fn without_argument(
        mut self,
        tool: impl Into<String>,
        argument: impl Into<String>,
    ) -> Self {
        let hidden = self.parts.hidden.entry(tool.into()).or_default();
        hidden.insert(argument.into());
        self
    }

    /// Leaves all arguments of a tool out of what rules see, as
    /// [`without_argument`](Self::without_argument) does with one.
    pub fn without_arguments(self, tool: impl Into<String>) -> Self {
        self.without_argument(tool, ALL)
    }

    /// Sets the JSON Schema of the [value](tower_agent::ToolResponse::value) that a tool returns:
    /// rules about results see it as `context.output.value`. A result of another type is refused
    /// where rules are about it.
    pub fn output(mut self, tool: impl Into<String>, schema: Value) -> Self {
        self.parts.outputs.insert(tool.into(), schema);
        self
    }

    /// Adds a file of the application's own schema, in Cedar's language: the types of principals,
    /// of what they are in, and of what the application adds. The name is for errors.
    pub fn schema(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.parts.files.push((name.into(), text.into()));
        self
    }

    /// Sets who a run is for, and the types of entities that this may be. It is made of what the
    /// server has [given](tower_agent::AgentRequest::with_extension) the run; without a principal
    /// each call is refused.
    pub fn principals(
        mut self,
        types: impl IntoIterator<Item = impl Into<String>>,
        of: impl Fn(&Extensions) -> Option<Principal> + Send + Sync + 'static,
    ) -> Self {
        self.parts.principals = types.into_iter().map(Into::into).collect();
        self.principal = Some(Box::new(of));
        self
    }

    /// Sets what a call is about, as the type and the id of an entity, and the types that this may
    /// be. By default it is the tool, `Tool::"refund"`. `None` is a refusal.
    pub fn resources(
        mut self,
        types: impl IntoIterator<Item = impl Into<String>>,
        of: impl Fn(&ToolRequest) -> Option<(String, String)> + Send + Sync + 'static,
    ) -> Self {
        self.parts.resources = types.into_iter().map(Into::into).collect();
        self.resource = Some(Box::new(of));
        self
    }

    /// Adds what the application knows about a call, as `context.app` of a type of the
    /// [schema](Self::schema). The value is Cedar's JSON. An error is a refusal.
    ///
    /// It is asked again whenever the call is decided again, with the arguments as they are then.
    pub fn attributes(
        mut self,
        type_name: impl Into<String>,
        of: impl Fn(&ToolRequest) -> Result<Value, BoxError> + Send + Sync + 'static,
    ) -> Self {
        self.parts.app = Some(type_name.into());
        self.app = Some(Box::new(of));
        self
    }

    /// Adds what [`Flow`](tower_agent_middleware::flow::Flow) knows about a call, as
    /// `context.flow`: whether what the model had read is `untrusted`, which `arguments` are, by
    /// the results of which tools (`sources`). Without that guard around a call it is refused.
    pub fn flow(mut self) -> Self {
        self.parts.has_flow = true;
        self
    }

    /// Sets where the entities of a principal come from.
    pub fn entities(mut self, source: impl EntitySource) -> Self {
        self.source.set(source);
        self
    }

    /// Sets how long the [source of entities](Self::entities) may take. Defaults to 5 s.
    pub fn entities_timeout(mut self, time: Duration) -> Self {
        self.source.time_limit = time;
        self
    }

    /// Sets after which time the [source of entities](Self::entities) has to give everything again,
    /// whatever it says of versions. Defaults to 5 minutes.
    pub fn entities_max_age(mut self, time: Duration) -> Self {
        self.source.max_age = time;
        self
    }

    /// Adds a file of rules, in Cedar's language. The name is for errors, and for the policies
    /// without an `@id`.
    pub fn rules(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.files.push((name.into(), text.into()));
        self
    }

    /// Adds a file to a second set of rules, which is asked about the same calls and decides
    /// nothing: events say where it would.
    pub fn shadow_rules(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.shadow.push((name.into(), text.into()));
        self
    }

    /// Changes the approval with which the roles of `@ask` are asked: how long they have, whether
    /// they may edit the arguments, whether somebody else than the user must answer.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_agent_policy::Rulebook;
    ///
    /// let day = Duration::from_secs(24 * 60 * 60);
    /// let builder = Rulebook::builder().asking(move |approval| approval.deny_after(day));
    /// # drop(builder);
    /// ```
    pub fn asking(mut self, change: impl Fn(Approval) -> Approval + Send + Sync + 'static) -> Self {
        self.ask_with = Box::new(change);
        self
    }

    /// Sets the clock of `context.session.time`. Defaults to the system's.
    pub fn clock(mut self, now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.clock = Box::new(now);
        self
    }

    /// Checks everything and creates the rulebook.
    ///
    /// # Errors
    ///
    /// Fails with each problem of the schema, the tools and the rules.
    pub fn build(self) -> Result<Rulebook, PolicyError> {
        let requests = self.parts.build()?;
        let rules = Rules::load(&self.files, &requests)?;
        let shadow = match &self.shadow[..] {
            [] => None,
            files => Some(Rules::load(files, &requests)?),
        };
        let Some(principal) = self.principal else {
            return Err(Problem::new("the policy does not say who a principal is").into());
        };
        Ok(Rulebook(Arc::new(Inner {
            requests,
            source: self.source,
            principal,
            resource: self.resource,
            app: self.app,
            ask_with: self.ask_with,
            clock: self.clock,
            in_force: RwLock::new(Arc::new(InForce {
                rules,
                shadow,
                number: 1,
            })),
        })))
    }
}

impl fmt::Debug for Rulebook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rulebook")
            .field("policies", &self.count())
            .field("tools", &self.0.requests.tools.keys())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RulebookBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RulebookBuilder")
            .field("tools", &self.parts.tools.len())
            .field("files", &self.files.len())
            .finish_non_exhaustive()
    }
}
