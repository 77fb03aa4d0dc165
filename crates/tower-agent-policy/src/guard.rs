//! The callbacks of a rulebook.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use cedar_policy::{Entities, EntityUid};
use serde_json::{Value, json};
use tower_agent::call::Request;
use tower_agent::callback::{Action, Callback, Outcome, Recovery};
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::model::{ModelRequest, ModelResponse};
use tower_agent::tool::{ToolRequest, ToolResponse};
use tower_agent_middleware::approval::Approval;
use tower_agent_middleware::flow::SeenCall;
use tracing::field::debug;

use crate::call_state::{CallState, GuardKey, Numbered, keep, kept};
use crate::case::text_of;
use crate::counts::{Counts, counted};
use crate::decide::{Facts, FlowFacts, Output, may_call};
use crate::rulebook::Rulebook;
use crate::rules::Rules;
use crate::ruling::{RefusalReason, Ruling, RulingVerdict};
use crate::schema::{KnownTool, entity};

/// The name of the callbacks and of their events.
const NAME: &str = "policy";

/// The most times that one call is decided because a person has edited its arguments.
const MAX_EDITS: usize = 16;

/// The key of the tools that a run shows, in its values.
const SHOWN: &str = "tower_agent.guard.policy shown";

/// The effect of rules: they decide, or are only watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Enforce,
    Observe,
}

/// A rulebook as it is registered.
struct Guard {
    book: Rulebook,
    mode: Mode,
}

/// The part outside everything else.
pub(crate) struct Calls(Guard);

/// The part directly around the tools.
pub(crate) struct Innermost(Guard);

/// The part around the model, which leaves out tools that nobody may have called.
pub(crate) struct Shown(pub(crate) Rulebook);

/// The facts about a call apart from its arguments.
struct Subject<'a> {
    tool: &'a KnownTool,
    principal: EntityUid,
    resource: EntityUid,
    entities: Arc<Entities>,
    flow: Option<FlowFacts>,
    app: Option<Value>,
}

/// The answer of the rules.
struct Ruled {
    ruling: Ruling,
    shadow: Option<Ruling>,
    number: u64,
}

/// The answer of people.
enum Answered {
    Approved,
    Edited,
    Rejected(ToolResponse),
}

impl Guard {
    fn key(&self) -> GuardKey {
        (Arc::as_ptr(&self.book.0).addr(), self.mode == Mode::Observe)
    }

    /// Returns whether rules leave this tool out: it is a part of how agents work, and nobody has
    /// declared it to them.
    fn is_exempt(&self, request: &ToolRequest) -> bool {
        let is_part = request
            .declaration()
            .is_some_and(|tool| tool.is_part_of_loop());
        is_part && !self.book.0.requests.tools.contains_key(request.name())
    }

    /// Returns whether a guard further inside has to say first what the call is.
    fn is_too_early(&self, request: &ToolRequest) -> bool {
        if SeenCall::of(request).is_some() {
            return false;
        }
        self.book.0.requests.has_flow || has_reference(request.arguments())
    }

    async fn subject(&self, request: &ToolRequest) -> std::result::Result<Subject<'_>, Ruling> {
        let inner = &self.book.0;
        let refused = Ruling::refused;
        let declaration = request.declaration();
        let tool = inner.requests.tools.get(request.name());
        let (Some(tool), Some(declaration)) = (tool, declaration) else {
            return Err(refused(RefusalReason::UnknownTool));
        };
        // Somebody else's tool has the name of one that the rules are about.
        let known = &tool.declaration;
        let is_known = known.effect() == declaration.effect()
            && known.is_agent() == declaration.is_agent()
            && known.is_described_by_others() == declaration.is_described_by_others();
        if !is_known {
            let detail = "the tool is not the one that the rules are about";
            return Err(refused(RefusalReason::UnknownTool).with_detail(detail));
        }
        let Some(principal) = (inner.principal)(request.context().extensions()) else {
            return Err(refused(RefusalReason::NoPrincipal));
        };
        let no_entities = |detail: String| refused(RefusalReason::NoEntities).with_detail(detail);
        let entities = inner.source.of(&principal, &inner.requests).await;
        let entities = entities.map_err(no_entities)?;
        let uid = entity(principal.kind(), principal.id());
        let uid = uid.map_err(|problem| no_entities(problem.to_string()))?;
        let resource = self.book.resource_of(request, &tool.resource);
        let misfit = |detail: String| refused(RefusalReason::Misfit).with_detail(detail);
        let resource = resource.map_err(misfit)?;
        let app = match &inner.app {
            None => None,
            Some(app) => Some(app(request).map_err(|error| {
                tracing::warn!(
                    run_id = request.context().run_id(),
                    tool = request.name(),
                    error = %error.to_string().escape_debug(),
                    "what the application adds to a call is not known"
                );
                misfit("what the application adds is not known".to_owned())
            })?),
        };
        let flow = SeenCall::of(request).map(|seen| {
            let untrusted = seen
                .arguments
                .iter()
                .filter(|(_, label)| !label.is_trusted());
            FlowFacts {
                is_untrusted: !seen.context.is_trusted(),
                arguments: untrusted.map(|(place, _)| place.clone()).collect(),
                sources: seen.sources,
            }
        });
        Ok(Subject {
            tool,
            principal: uid,
            resource,
            entities,
            flow,
            app,
        })
    }

    /// Returns what the rules say about a call, or about its result.
    async fn rule(
        &self,
        request: &ToolRequest,
        arguments: &Value,
        counts: Counts,
        output: Option<Output<'_>>,
    ) -> Ruled {
        let subject = self.subject(request).await;
        // Read after everything that takes time: a run decides by the rules that count now.
        let now = self.book.in_force();
        // A set that names no result leaves those of permitted calls alone.
        let is_about = |rules: &Rules| output.is_none() || self.is_about_result(request, rules);
        let subject = match subject {
            Ok(subject) => subject,
            Err(ruling) => {
                let is_about = is_about(&now.rules);
                return Ruled {
                    ruling: if is_about {
                        ruling
                    } else {
                        Ruling::allowed(Vec::new())
                    },
                    shadow: None,
                    number: now.number,
                };
            }
        };
        let session = self.book.session(request, counts);
        let requests = &self.book.0.requests;
        let facts = Facts {
            tool: subject.tool,
            principal: subject.principal,
            resource: subject.resource,
            entities: &subject.entities,
            input: arguments,
            session: &session,
            flow: subject.flow.as_ref(),
            app: subject.app.as_ref(),
            output,
        };
        let decide = |rules: &Rules| {
            if is_about(rules) {
                facts.decide(rules, requests)
            } else {
                Ruling::allowed(Vec::new())
            }
        };
        Ruled {
            ruling: decide(&now.rules),
            shadow: now.shadow.as_ref().map(decide),
            number: now.number,
        }
    }

    /// Decides about a call, and asks whom the rules ask.
    async fn decide(
        &self,
        request: &mut ToolRequest,
        state: &CallState,
        is_inner: bool,
    ) -> Result<Action<ToolResponse>> {
        if request.declaration().is_none() {
            let unknown = format!("unknown tool `{}`", request.name());
            return Err(Error::new(ErrorKind::UnknownTool, unknown));
        }
        let counts = Numbered::begin((self.key(), is_inner), request)?;
        for _ in 0..MAX_EDITS {
            let ruled = self.rule(request, request.arguments(), counts, None).await;
            let roles = match &ruled.ruling.verdict {
                RulingVerdict::Asked { roles } if self.mode == Mode::Enforce => roles.clone(),
                RulingVerdict::Refused { .. } if self.mode == Mode::Enforce => {
                    self.tell(request, &ruled, None, false).await;
                    state.refuse();
                    let text = ruled.ruling.text(request.name(), false);
                    return Ok(Action::Respond(ToolResponse::error(text)));
                }
                _ => {
                    self.tell(request, &ruled, None, false).await;
                    state.allow(request, ruled.number);
                    return Ok(Action::Continue);
                }
            };
            match self.ask(request, &roles).await {
                Ok(Answered::Approved) => {
                    self.tell(request, &ruled, Some("approved"), false).await;
                    state.allow(request, ruled.number);
                    return Ok(Action::Continue);
                }
                // The rules have not seen these arguments.
                Ok(Answered::Edited) => state.known().is_edited = true,
                Ok(Answered::Rejected(response)) => {
                    self.tell(request, &ruled, Some("rejected"), false).await;
                    state.refuse();
                    return Ok(Action::Respond(response));
                }
                Err(error) => {
                    let decision = match error.kind() {
                        ErrorKind::Interrupted => None,
                        _ => Some("failed"),
                    };
                    self.tell(request, &ruled, decision, false).await;
                    return Err(error);
                }
            }
        }
        state.refuse();
        let text = format!("refused: `{}` was edited too often", request.name());
        Ok(Action::Respond(ToolResponse::error(text)))
    }

    /// Asks these roles one after the other, as an approval does.
    async fn ask(&self, request: &mut ToolRequest, roles: &[String]) -> Result<Answered> {
        for role in roles {
            let before = request.changed_arguments().cloned();
            let approval = (self.book.0.ask_with)(Approval::when(|_| true).by_role(role));
            if let Action::Respond(response) = approval.before(request).await? {
                return Ok(Answered::Rejected(response));
            }
            if before.as_ref() != request.changed_arguments() {
                return Ok(Answered::Edited);
            }
        }
        Ok(Answered::Approved)
    }

    /// Decides about what leaves a call. Returns the refusal, if it is one.
    async fn judge_output(
        &self,
        request: &ToolRequest,
        state: Option<&CallState>,
        output: Output<'_>,
    ) -> Result<Option<String>> {
        let now = self.book.in_force();
        let mut sets = std::iter::once(&now.rules).chain(&now.shadow);
        if !sets.any(|rules| self.is_about_result(request, rules)) {
            return Ok(None);
        }
        let arguments = match state {
            Some(state) => state.arguments(request),
            None => request.arguments().clone(),
        };
        // A result is no call: it sees the numbers of the next one.
        let counts = counted(request.context(), request.name())?;
        let ruled = self.rule(request, &arguments, counts, Some(output)).await;
        self.tell(request, &ruled, None, true).await;
        let is_refused = self.mode == Mode::Enforce && !ruled.ruling.is_allowed();
        Ok(is_refused.then(|| ruled.ruling.text(request.name(), true)))
    }

    /// Returns whether a set of rules names the results of this tool.
    fn is_about_result(&self, request: &ToolRequest, rules: &Rules) -> bool {
        let tool = self.book.0.requests.tools.get(request.name());
        let slice = tool.and_then(|tool| rules.slice(&tool.result));
        slice.is_some_and(|slice| slice.is_named)
    }

    /// Decides about a response that came before anything could be decided about the call.
    async fn judge_answered(&self, request: &ToolRequest) -> Result<Option<String>> {
        let counts = counted(request.context(), request.name())?;
        let mut ruled = self.rule(request, request.arguments(), counts, None).await;
        // Nobody can be asked about a call that is over.
        if !ruled.ruling.is_allowed() && ruled.ruling.refusal().is_none() {
            ruled.ruling = Ruling::refused(RefusalReason::NotDecided);
        }
        self.tell(request, &ruled, None, false).await;
        let is_refused = self.mode == Mode::Enforce && !ruled.ruling.is_allowed();
        Ok(is_refused.then(|| ruled.ruling.text(request.name(), false)))
    }

    /// Reports a decision: policies by their ids, and no value.
    async fn tell(
        &self,
        request: &ToolRequest,
        ruled: &Ruled,
        decision: Option<&'static str>,
        is_result: bool,
    ) {
        let context = request.context();
        let mut event = json!(ruled.ruling);
        if let Some(decision) = decision {
            event["decision"] = decision.into();
        }
        let about = if is_result { "result" } else { "call" };
        event["about"] = about.into();
        event["call"] = context.call_path().into();
        event["iteration"] = context.iteration().into();
        event["tool"] = request.name().into();
        event["set"] = ruled.number.into();
        event["enforced"] = (self.mode == Mode::Enforce).into();
        if let Some(shadow) = &ruled.shadow
            && shadow.verdict != ruled.ruling.verdict
        {
            event["shadow"] = json!(shadow);
        }
        self.trace(request, ruled, &event);
        context.note(NAME, event).await;
    }

    /// Leaves a span with the decision in the program's trace. It is a span of its own, since that
    /// of the call begins further inside and a refused call has none, and one agent has many calls.
    fn trace(&self, request: &ToolRequest, ruled: &Ruled, event: &Value) {
        let ruling = &ruled.ruling;
        let text = |key: &str| event[key].as_str();
        let errors = (!ruling.errors.is_empty()).then(|| debug(&ruling.errors));
        let shadow = event
            .get("shadow")
            .and_then(|shadow| shadow["decision"].as_str());
        let span = tracing::info_span!(
            "policy",
            call = text("call"),
            tool = request.name(),
            about = text("about"),
            decision = text("decision"),
            why = text("why"),
            policies = ?ruling.policies,
            errors,
            shadow,
            set = ruled.number,
            enforced = self.mode == Mode::Enforce,
        );
        if text("decision") == Some("allowed") {
            return;
        }
        let detail = ruling.detail.as_deref();
        span.in_scope(|| {
            tracing::info!(
                detail = detail.map(|text| text.escape_debug().to_string()),
                "rules decide about a tool call"
            );
        });
    }

    /// Tells the model which arguments a person has written.
    async fn note_edit(
        &self,
        request: &ToolRequest,
        response: &ToolResponse,
    ) -> Result<Option<ToolResponse>> {
        let approval = (self.book.0.ask_with)(Approval::when(|_| true));
        Ok(match approval.after(request, response).await? {
            Action::Respond(response) => Some(response),
            _ => None,
        })
    }
}

/// Returns whether arguments have a reference of [`Flow`](tower_agent_middleware::flow::Flow),
/// which is replaced further inside.
fn has_reference(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains("{{@"),
        Value::Array(items) => items.iter().any(has_reference),
        Value::Object(entries) => {
            let is_one = entries.len() == 1
                && entries
                    .get("$ref")
                    .and_then(Value::as_str)
                    .is_some_and(|name| name.starts_with('@'));
            is_one || entries.values().any(has_reference)
        }
        _ => false,
    }
}

impl Calls {
    pub(crate) fn new(book: Rulebook, mode: Mode) -> Self {
        Self(Guard { book, mode })
    }
}

impl Innermost {
    pub(crate) fn new(book: Rulebook, mode: Mode) -> Self {
        Self(Guard { book, mode })
    }
}

impl Callback<ToolRequest> for Calls {
    async fn before(&self, request: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        let guard = &self.0;
        if guard.is_exempt(request) {
            return Ok(Action::Continue);
        }
        let state = CallState::begin(guard.key(), request);
        if guard.is_too_early(request) {
            return Ok(Action::Continue);
        }
        guard.decide(request, &state, false).await
    }

    async fn after(
        &self,
        request: &ToolRequest,
        response: &ToolResponse,
    ) -> Result<Action<ToolResponse>> {
        let guard = &self.0;
        if guard.is_exempt(request) {
            return Ok(Action::Continue);
        }
        let context = request.context();
        let state = match CallState::find(guard.key(), request.extensions()) {
            Some(state) => Some(state),
            // What is shown of a result is asked about apart from the call.
            None => kept(guard.key(), context)?,
        };
        let (is_decided, is_own, is_edited) = match &state {
            Some(state) => {
                let known = state.known();
                let is_decided = known.is_refused || known.allowed.is_some();
                // Of several attempts one may have been made.
                let is_own = known.is_refused && !known.is_made;
                (is_decided, is_own, known.is_edited)
            }
            None => (false, false, false),
        };
        if !is_decided && let Some(text) = guard.judge_answered(request).await? {
            return Ok(Action::Respond(ToolResponse::error(text)));
        }
        if let Some(state) = &state {
            keep(guard.key(), context, state)?;
        }
        if is_own {
            return Ok(Action::Continue);
        }
        let noted = if is_edited {
            guard.note_edit(request, response).await?
        } else {
            None
        };
        let shown = noted.as_ref().unwrap_or(response);
        let text = text_of(shown);
        let output = Output {
            text: &text,
            is_error: shown.is_error(),
            value: shown.value(),
        };
        if let Some(text) = guard
            .judge_output(request, state.as_deref(), output)
            .await?
        {
            return Ok(Action::Respond(ToolResponse::error(text)));
        }
        Ok(noted.map_or(Action::Continue, Action::Respond))
    }

    /// The model reads the text of an error, which may have been written by a server.
    async fn on_error(
        &self,
        request: &mut ToolRequest,
        error: &Error,
    ) -> Result<Recovery<ToolResponse>> {
        let guard = &self.0;
        if guard.is_exempt(request) {
            return Ok(Recovery::Propagate);
        }
        let text = match error.model_message() {
            Some(text) => text.to_owned(),
            None => error.to_string(),
        };
        let output = Output {
            text: &text,
            is_error: true,
            value: &Value::Null,
        };
        let state = CallState::find(guard.key(), request.extensions());
        let refusal = guard
            .judge_output(request, state.as_deref(), output)
            .await?;
        Ok(match refusal {
            Some(text) => Recovery::Fail(error.clone().with_model_message(text)),
            None => Recovery::Propagate,
        })
    }

    fn on_end(&self, request: &ToolRequest, _: Outcome<'_, ToolResponse>) {
        Numbered::end((self.0.key(), false), request);
    }

    fn name(&self) -> Cow<'static, str> {
        self.0.name()
    }

    fn is_guard(&self) -> bool {
        true
    }
}

impl Guard {
    fn name(&self) -> Cow<'static, str> {
        match self.mode {
            // Nothing more: a call that waits for an answer is held by this name, and goes on with
            // other rules in force.
            Mode::Enforce => NAME.into(),
            Mode::Observe => format!("{NAME} (observing {})", self.book.in_words()).into(),
        }
    }
}

impl Callback<ToolRequest> for Innermost {
    async fn before(&self, request: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        let guard = &self.0;
        if guard.is_exempt(request) {
            return Ok(Action::Continue);
        }
        let state = CallState::begin(guard.key(), request);
        if !state.reach(request, guard.book.in_force().number) {
            let action = guard.decide(request, &state, true).await?;
            if !matches!(action, Action::Continue) {
                return Ok(action);
            }
        }
        if guard.mode == Mode::Enforce {
            // What was decided on is what the tool gets: a function would read the text of the
            // model once more, and perhaps otherwise.
            let _ = request.arguments_mut();
        }
        Numbered::make(request);
        state.known().is_made = true;
        Ok(Action::Continue)
    }

    async fn after(
        &self,
        request: &ToolRequest,
        response: &ToolResponse,
    ) -> Result<Action<ToolResponse>> {
        let guard = &self.0;
        let state = CallState::find(guard.key(), request.extensions());
        if state.is_some_and(|state| state.known().is_edited)
            && let Some(noted) = guard.note_edit(request, response).await?
        {
            return Ok(Action::Respond(noted));
        }
        Ok(Action::Continue)
    }

    fn on_end(&self, request: &ToolRequest, _: Outcome<'_, ToolResponse>) {
        Numbered::end((self.0.key(), true), request);
    }

    fn name(&self) -> Cow<'static, str> {
        self.0.name()
    }

    fn is_guard(&self) -> bool {
        true
    }
}

/// The tools that an agent's model may see in a run, by the agent's path.
#[derive(Clone, Default)]
struct ShownTools(Arc<Mutex<ByAgent>>);

/// The tools that are shown or not, by the rulebook and the path of the agent.
type ByAgent = HashMap<(usize, String), HashMap<Arc<str>, bool>>;

impl Callback<ModelRequest> for Shown {
    async fn before(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        let inner = &self.0.0;
        let context = request.context();
        let shown = match context.values().get::<ShownTools>(SHOWN)? {
            Some(shown) => ShownTools::clone(&shown),
            None => context
                .values()
                .update(SHOWN, |new: &mut ShownTools| new.clone())?,
        };
        let key = (Arc::as_ptr(inner).addr(), context.path().to_owned());
        // The same in each step of a run, so that requests begin alike.
        let mut known = {
            let all = shown.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.get(&key).cloned().unwrap_or_default()
        };
        let is_new = |name: &str| !known.contains_key(name);
        if request.tools().iter().any(|tool| is_new(tool.name())) {
            let (new, is_final) = self.may_call_of(request).await;
            for (name, may) in new {
                known.entry(name).or_insert(may);
            }
            if is_final {
                let mut all = shown.0.lock().unwrap_or_else(PoisonError::into_inner);
                all.insert(key, known.clone());
            }
        }
        if known.values().all(|may| *may) {
            return Ok(Action::Continue);
        }
        request
            .tools_mut()
            .retain(|tool| known.get(tool.name()).copied().unwrap_or(false));
        Ok(Action::Continue)
    }

    fn name(&self) -> Cow<'static, str> {
        format!("{NAME} (enforcing {})", self.0.in_words()).into()
    }

    fn is_guard(&self) -> bool {
        true
    }
}

impl Shown {
    /// Returns which tools of a request may be called, and whether that is known for good.
    async fn may_call_of(&self, request: &ModelRequest) -> (Vec<(Arc<str>, bool)>, bool) {
        let inner = &self.0.0;
        let principal = (inner.principal)(request.context().extensions());
        let entities = match &principal {
            Some(principal) => inner.source.of(principal, &inner.requests).await,
            None => Err("the run does not say who it is for".to_owned()),
        };
        let uid = principal.and_then(|one| entity(one.kind(), one.id()).ok());
        let now = self.0.in_force();
        let tools = request.tools().iter().map(|tool| {
            let known = inner.requests.tools.get(tool.name());
            let may = match (known, &uid, &entities) {
                (Some(known), Some(uid), Ok(entities)) => {
                    may_call(known, uid, entities, &now.rules)
                }
                (None, ..) => tool.is_part_of_loop(),
                // Each call would be refused.
                _ => false,
            };
            (Arc::from(tool.name()), may)
        });
        (tools.collect(), entities.is_ok())
    }
}
