//! The rules around tool calls.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::json;
use tower_agent::call::Request;
use tower_agent::callback::{Action, Callback, Outcome, Recovery};
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::message::Part;
use tower_agent::tool::{ToolRequest, ToolResponse};

use super::book::Book;
use super::checked::{CallPlace, Checked};
use super::declaration::ToolFlow;
use super::inside::is_read;
use super::label::Label;
use super::question::{self, FlowAnswer};
use super::resolve::{Resolver, UnknownReference};
use super::result::{CallResult, review};
use super::rules::{Resolved, Rule, Violation, refusal};
use super::run::FlowRun;
use super::settings::{FlowSettings, OnViolation, two_guards};
use super::turn::Brought;

/// The part of the guard around tool calls, outside everything else.
pub(super) struct Checking(pub(super) Arc<FlowSettings>);

/// The outcome of a look at a call.
enum CheckOutcome {
    Decided(Action<ToolResponse>),
    Broken(Box<Broken>),
}

/// A call that breaks rules.
struct Broken {
    checked: Checked,
    violations: Vec<Violation>,
}

impl Checking {
    /// Resolves the references in a call and looks at the rules.
    fn check(&self, request: &mut ToolRequest) -> Result<CheckOutcome> {
        let mut earlier_substitutions = Vec::new();
        if let Some(earlier) = request.extensions().get::<Checked>() {
            if !Arc::ptr_eq(&earlier.guard, &self.0) {
                return Err(two_guards());
            }
            // The guard is registered twice, or a callback makes the call again as it was.
            let is_same = match (&earlier.arguments, request.changed_arguments()) {
                (None, None) => true,
                _ => earlier.arguments(request) == request.arguments(),
            };
            if is_same && !earlier.is_refused {
                return Ok(CheckOutcome::Decided(Action::Continue));
            }
            earlier_substitutions.clone_from(&earlier.substitutions);
        }
        let run = FlowRun::of(request.context())?;
        let call = CallPlace::of(request);
        let book = Book::of(request.context());
        let (context, sources) = match book.turn(&call.turn()) {
            Some(turn) => (turn.label, turn.sources),
            // The model was called without the guard.
            None => (Label::unknown(), Vec::new()),
        };
        let mut resolver = Resolver::new(&book, call.turn());
        let resolved = if may_refer(request) {
            resolver.resolve(request.arguments())
        } else {
            Ok(None)
        };
        let substitutions = resolver.substitutions;
        let mut checked = Checked::new(self.0.clone(), run, call, context);
        match resolved {
            Ok(Some(arguments)) => *request.arguments_mut() = arguments,
            Ok(None) => {}
            Err(UnknownReference) => {
                let refusal = Self::refuse(request, checked, UnknownReference::TEXT);
                return Ok(CheckOutcome::Decided(refusal));
            }
        }
        checked.substitutions = substitutions;
        // A callback has changed the arguments for another attempt: the values of references are
        // still in them, for all that is known.
        checked.substitutions.extend(earlier_substitutions);
        let changed = request.changed_arguments();
        checked.arguments = changed.map(|arguments| Arc::new(arguments.clone()));
        let flow = self.0.flow_of_call(request);
        let resolved = Resolved {
            request,
            flow: &flow,
            context: &checked.context,
            sources: &sources,
            substitutions: &checked.substitutions,
        };
        let violations = resolved.violations(&Book::of(request.context()));
        if violations.is_empty() {
            return Ok(CheckOutcome::Decided(Self::allow(request, checked, &flow)));
        }
        Ok(CheckOutcome::Broken(Box::new(Broken {
            checked,
            violations,
        })))
    }

    /// Decides about a call that breaks rules.
    async fn judge(
        &self,
        request: &mut ToolRequest,
        broken: Broken,
    ) -> Result<Action<ToolResponse>> {
        let Broken {
            checked,
            violations,
        } = broken;
        let decision = self.decide(request, &checked, &violations);
        tell(request, &checked, &violations, &decision).await;
        Ok(match decision? {
            None => {
                let flow = self.0.flow_of_call(request);
                Self::allow(request, checked, &flow)
            }
            Some(refusal) => Self::refuse(request, checked, &refusal),
        })
    }

    /// Returns the text of the refusal of a call that breaks rules, or `None` if a person allows
    /// it.
    fn decide(
        &self,
        request: &ToolRequest,
        checked: &Checked,
        violations: &[Violation],
    ) -> Result<Option<String>> {
        match &self.0.on_violation {
            OnViolation::Refuse => Ok(Some(refusal(request.name(), violations))),
            OnViolation::End => Err(Error::abort(refusal(request.name(), violations))),
            OnViolation::Ask => match question::answer(request, violations, &self.0.approver)? {
                FlowAnswer::Approve => Ok(None),
                FlowAnswer::Endorse(arguments) => {
                    self.endorse(request, checked, &arguments);
                    Ok(None)
                }
                FlowAnswer::Reject { reason } => {
                    let why = reason.map(|reason| format!(": {reason}"));
                    let why = why.unwrap_or_default();
                    Ok(Some(format!("the approver rejected this call{why}")))
                }
            },
        }
    }

    fn endorse(&self, request: &ToolRequest, checked: &Checked, arguments: &[String]) {
        let book = Book::of(request.context());
        let flow = self.0.flow_of_call(request);
        let declaration = request.declaration().map(|tool| &**tool);
        for substitution in &checked.substitutions {
            let place = flow.place(&substitution.path, declaration);
            if !substitution.label.is_trusted() && arguments.contains(&place) {
                book.endorse(&substitution.value);
            }
        }
    }

    fn allow(
        request: &mut ToolRequest,
        mut checked: Checked,
        flow: &ToolFlow,
    ) -> Action<ToolResponse> {
        checked.begin_call(flow);
        checked.trace = Some(request.trace_state());
        request.extensions_mut().insert(checked);
        Action::Continue
    }

    /// Answers the call without making it. The model reads the program's own words.
    fn refuse(request: &mut ToolRequest, mut checked: Checked, text: &str) -> Action<ToolResponse> {
        let brought = Brought::shown(checked.context.clone());
        let book = Book::of(request.context());
        book.set_result(&checked.turn(), checked.index(), brought);
        checked.is_refused = true;
        request.extensions_mut().insert(checked);
        Action::Respond(ToolResponse::error(text))
    }
}

/// Reports a decision: rules, places of arguments and labels, and no value.
async fn tell(
    request: &ToolRequest,
    checked: &Checked,
    violations: &[Violation],
    decision: &Result<Option<String>>,
) {
    let context = request.context();
    let decision = match decision {
        Ok(None) => "allowed",
        Ok(Some(_)) => "refused",
        Err(error) if error.kind() == ErrorKind::Interrupted => "asked",
        Err(_) => "ended",
    };
    // On the span of the agent, if spans are exported: a call that is refused has none.
    let rules: Vec<Rule> = violations.iter().map(|one| one.rule).collect();
    let arguments = violations.iter().filter_map(|one| one.argument.as_deref());
    tracing::info!(
        run_id = context.run_id(),
        call = context.call_path(),
        tool = request.name(),
        decision,
        ?rules,
        arguments = ?arguments.collect::<Vec<_>>(),
        label = ?checked.context,
        "a tool call breaks a rule about the flow of data"
    );
    let event = json!({
        "call": context.call_path(),
        "iteration": context.iteration(),
        "tool": request.name(),
        "decision": decision,
        "violations": violations,
        "context": checked.context,
    });
    context.note(NOTE, event).await;
}

/// Returns whether the arguments of a call may have a reference. Most have none, which their text
/// says before it is parsed.
fn may_refer(request: &ToolRequest) -> bool {
    // Each reference has an `@`, which JSON can escape.
    request.changed_arguments().is_some() || request.call().arguments.as_str().contains(['@', '\\'])
}

/// The name of the event about a decision.
const NOTE: &str = "flow";

impl Callback<ToolRequest> for Checking {
    async fn before(&self, request: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        match self.check(request)? {
            CheckOutcome::Decided(action) => Ok(action),
            // In a box: few calls break a rule, and the future of each would have room for it.
            CheckOutcome::Broken(broken) => Box::pin(self.judge(request, *broken)).await,
        }
    }

    async fn after(
        &self,
        request: &ToolRequest,
        response: &ToolResponse,
    ) -> Result<Action<ToolResponse>> {
        let Some(checked) = request.extensions().get::<Checked>() else {
            return Ok(match review(&self.0, request) {
                Some(shown) => Action::Respond(shown),
                None => Action::Continue,
            });
        };
        if checked.is_refused || checked.begin_record() {
            return Ok(Action::Continue);
        }
        let result = CallResult::new(&self.0, request, checked);
        Ok(match result.record(response) {
            None => Action::Continue,
            Some(parts) => Action::Respond(response.clone().with_parts(parts)),
        })
    }

    async fn on_error(
        &self,
        request: &mut ToolRequest,
        error: &Error,
    ) -> Result<Recovery<ToolResponse>> {
        let Some(checked) = request.extensions().get::<Checked>() else {
            return Ok(Recovery::Propagate);
        };
        let result = CallResult::new(&self.0, request, checked);
        if let Some(text) = result.misfit(error) {
            result.record_own_words();
            return Ok(Recovery::Fail(error.clone().with_model_message(text)));
        }
        // The text that the model would read.
        let text = match error.model_message() {
            Some(message) => message.to_owned(),
            None => format!("{}: {}", error.kind(), error.message()),
        };
        let response = ToolResponse::error(text);
        Ok(match result.record(&response).as_deref() {
            Some([Part::Text(stub)]) => {
                Recovery::Fail(error.clone().with_model_message(stub.text.clone()))
            }
            _ => {
                if is_read(error) {
                    result.note_failure();
                }
                Recovery::Propagate
            }
        })
    }

    fn on_end(&self, request: &ToolRequest, _: Outcome<'_, ToolResponse>) {
        if let Some(checked) = request.extensions().get::<Checked>() {
            checked.end_call();
            if checked.uses_state() {
                CallResult::new(&self.0, request, checked).record_written();
            }
        }
    }

    fn name(&self) -> Cow<'static, str> {
        "Flow(check)".into()
    }

    fn is_guard(&self) -> bool {
        true
    }

    fn named_agents(&self) -> Vec<Arc<str>> {
        let tools = self.0.tools.iter();
        let agents = tools.filter(|(_, flow)| flow.is_agent);
        agents.map(|(name, _)| name.clone()).collect()
    }
}
