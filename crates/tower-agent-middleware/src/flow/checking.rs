//! The rules around tool calls, and the labels of what calls bring.

use std::borrow::Cow;
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tower_agent::call::Request;
use tower_agent::callback::{Action, Callback, Recovery};
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::message::Part;
use tower_agent::tool::{InvalidArguments, ToolRequest, ToolResponse};

use super::book::{Book, Brought, Variable, noted_inside, variable_name};
use super::declaration::ToolFlow;
use super::hide::{kind_of, stub};
use super::label::Label;
use super::meta::{self, ASK_ABOUT, SHOW};
use super::place;
use super::pointer::{PointerPattern, pointer};
use super::question::{self, FlowAnswer};
use super::reading::{in_call_with_id, two_guards};
use super::resolve::{Resolver, Substitution, UnknownReference};
use super::rules::{Resolved, Rule, Violation, refusal};
use super::settings::{FlowSettings, NAME, OnViolation};

/// A call that the guard has looked at: an extension of the request.
#[derive(Clone)]
struct Checked {
    guard: Arc<FlowSettings>,
    message: String,
    index: usize,
    /// The resolved arguments that were checked, if they are not the call's own.
    arguments: Option<Arc<Value>>,
    /// The key of the label for agents that work in this call.
    in_call: Option<String>,
    context: Label,
    substitutions: Arc<[Substitution]>,
    /// The guard has answered the call itself.
    is_refused: bool,
    /// What the call has brought is recorded. Of a guard that is registered twice, one does so.
    is_kept: Arc<AtomicBool>,
}

impl Checked {
    /// Returns the label of what decided the call and of all its arguments.
    fn label(&self) -> Label {
        let labels = self.substitutions.iter().map(|one| &one.label);
        labels.fold(self.context.clone(), |all, label| all.join(label))
    }

    /// Returns the tools whose results are in the arguments, each once.
    fn origin(&self) -> Vec<String> {
        let mut tools = Vec::new();
        for tool in self.substitutions.iter().flat_map(|one| &one.from) {
            if !tools.contains(tool) {
                tools.push(tool.clone());
            }
        }
        tools
    }

    /// Returns the arguments that were checked.
    fn arguments<'a>(&'a self, request: &'a ToolRequest) -> &'a Value {
        let own = request.call().arguments.value();
        self.arguments.as_deref().unwrap_or(own)
    }
}

/// The part of the guard around tool calls, outside everything else.
pub(super) struct Checking(pub(super) Arc<FlowSettings>);

impl Checking {
    fn settings(&self) -> &Arc<FlowSettings> {
        &self.0
    }

    fn flow<'a>(&'a self, request: &ToolRequest) -> Cow<'a, ToolFlow> {
        self.settings()
            .flow_of(request.name(), request.declaration().map(|tool| &**tool))
    }

    /// Returns the message with this call and the place of the call there.
    fn place(id_in_stream: Option<&str>) -> (String, usize) {
        let place = id_in_stream.and_then(place::of_call);
        // A call outside a run has no message, and so no label.
        let (message, call) = place.unwrap_or_default();
        (message.to_owned(), call)
    }

    async fn check(&self, request: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        let earlier = request.extensions().get::<Checked>().cloned();
        if let Some(earlier) = &earlier {
            if !Arc::ptr_eq(&earlier.guard, self.settings()) {
                return Err(two_guards());
            }
            // The guard is registered twice, or a callback makes the call again as it was.
            let is_same = match (&earlier.arguments, request.changed_arguments()) {
                (None, None) => true,
                _ => earlier.arguments(request) == request.arguments(),
            };
            if is_same && !earlier.is_refused {
                return Ok(Action::Continue);
            }
        }
        let id = request.context().tool_call_in_stream();
        let (message, index) = Self::place(id.as_deref());
        let context = request.context().clone();
        let book = Book::of(&context);
        let turn = book.turn(&message);
        let (context_label, sources) = match turn {
            Some(turn) => (turn.label, Vec::from_iter(turn.sources)),
            // The model was called without the guard.
            None => (Label::unknown(), Vec::new()),
        };
        let mut resolver = Resolver::new(&book, &message);
        let resolved = if may_refer(request) {
            resolver.resolve(request.arguments())
        } else {
            Ok(None)
        };
        let mut substitutions = resolver.substitutions;
        let mut checked = Checked {
            guard: self.settings().clone(),
            message,
            index,
            arguments: None,
            in_call: id.as_deref().map(in_call_with_id),
            context: context_label,
            substitutions: Arc::default(),
            is_refused: false,
            is_kept: Arc::default(),
        };
        match resolved {
            Ok(Some(arguments)) => *request.arguments_mut() = arguments,
            Ok(None) => {}
            Err(UnknownReference) => {
                return Ok(Self::refuse(
                    request,
                    &book,
                    checked,
                    UnknownReference::TEXT,
                ));
            }
        }
        if let Some(earlier) = earlier {
            // A callback has changed the arguments for another attempt: the values of references are still
            // in them, for all that is known.
            substitutions.extend(earlier.substitutions.iter().cloned());
        }
        let changed = request.changed_arguments();
        checked.arguments = changed.map(|arguments| Arc::new(arguments.clone()));
        checked.substitutions = substitutions.into();
        let flow = self.flow(request);
        let resolved = Resolved {
            request,
            flow: &flow,
            context: &checked.context,
            sources: &sources,
            substitutions: &checked.substitutions,
        };
        let violations = resolved.violations(&book);
        if !violations.is_empty() {
            let decision = self.decide(request, &book, &checked, &violations);
            self.tell(request, &checked, &violations, &decision).await;
            match decision? {
                None => {}
                Some(refusal) => return Ok(Self::refuse(request, &book, checked, &refusal)),
            }
        }
        // For agents that work in this call.
        if let Some(key) = &checked.in_call {
            context.values().set(&**key, checked.label());
        }
        request.extensions_mut().insert(checked);
        Ok(Action::Continue)
    }

    /// Returns the text of the refusal of a call that breaks rules, or `None` if a person allows it.
    fn decide(
        &self,
        request: &ToolRequest,
        book: &Book<'_>,
        checked: &Checked,
        violations: &[Violation],
    ) -> Result<Option<String>> {
        match &self.settings().on_violation {
            OnViolation::Refuse => Ok(Some(refusal(request.name(), violations))),
            OnViolation::End => Err(Error::abort(refusal(request.name(), violations))),
            OnViolation::Ask => {
                match question::answer(request, violations, &self.settings().approver)? {
                    FlowAnswer::Approve => Ok(None),
                    FlowAnswer::Endorse(arguments) => {
                        self.endorse(request, book, checked, &arguments);
                        Ok(None)
                    }
                    FlowAnswer::Reject { reason } => {
                        let why = reason.map(|reason| format!(": {reason}"));
                        let why = why.unwrap_or_default();
                        Ok(Some(format!("the approver rejected this call{why}")))
                    }
                }
            }
        }
    }

    fn endorse(
        &self,
        request: &ToolRequest,
        book: &Book<'_>,
        checked: &Checked,
        arguments: &[String],
    ) {
        let flow = self.flow(request);
        let declaration = request.declaration().map(|tool| &**tool);
        for substitution in &*checked.substitutions {
            let place = flow.place(&substitution.path, declaration);
            if !substitution.label.is_trusted() && arguments.contains(&place) {
                book.endorse(&substitution.value);
            }
        }
    }

    /// Answers the call without making it. The model reads the program's own words.
    fn refuse(
        request: &mut ToolRequest,
        book: &Book<'_>,
        checked: Checked,
        text: &str,
    ) -> Action<ToolResponse> {
        let brought = Brought::shown(checked.context.clone());
        book.set_result(&checked.message, checked.index, brought);
        request.extensions_mut().insert(Checked {
            is_refused: true,
            ..checked
        });
        Action::Respond(ToolResponse::error(text))
    }

    /// Reports a decision: rules, places of arguments and labels, and no value.
    async fn tell(
        &self,
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
        tracing::info!(
            call = context.call_path(),
            tool = request.name(),
            decision,
            rules = ?violations.iter().map(|one| one.rule).collect::<Vec<Rule>>(),
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
        context.emit(EVENT, event).await;
    }

    /// Returns the label of what a call has returned.
    fn result_label(&self, request: &ToolRequest, flow: &ToolFlow, call: &Label) -> Label {
        let inside = noted_inside(request.context());
        let parts = flow.parts().iter().map(|(_, label)| label);
        let declared = parts.fold(flow.result().join(call), |all, part| all.join(part));
        match inside {
            // An agent that works in the call says what it has read.
            Some(inside) => declared.join(&inside),
            None if flow.is_agent()
                && request.declaration().is_some_and(|tool| tool.is_agent()) =>
            {
                Label::unknown()
            }
            None => declared,
        }
    }

    /// Records what a call has brought, and returns the parts that the model reads in place of it, if it
    /// does not read it.
    fn keep(
        &self,
        request: &ToolRequest,
        checked: &Checked,
        response: &ToolResponse,
    ) -> Option<Vec<Part>> {
        let book = Book::of(request.context());
        let flow = self.flow(request);
        let call = checked.label();
        let whole = self.result_label(request, &flow, &call);
        let shown = self.shown_label(request, checked, &whole, &book);
        let hides = match request.name() {
            _ if shown.is_within(&checked.context) => false,
            SHOW => false,
            ASK_ABOUT => true,
            _ => self.settings().hide.hides(&flow, response.value()),
        };
        let in_arguments = checked.origin();
        if !hides {
            let brought = Brought {
                from: in_arguments,
                ..Brought::shown(shown)
            };
            book.set_result(&checked.message, checked.index, brought);
            return shown_media(request, checked, &book);
        }
        let from = match request.name() {
            // It only says again, or says about, what is in the arguments.
            SHOW | ASK_ABOUT => in_arguments,
            own => Vec::from_iter(iter::once(own.to_owned()).chain(in_arguments)),
        };
        let parts = response.parts();
        let has_own_parts = parts != [Part::from(response.value())];
        let labels = flow.parts().iter().map(|(pattern, label)| {
            // Of a part, too, the arguments decide.
            (pattern.clone(), label.join(&call))
        });
        let variable = Variable {
            value: response.value().clone(),
            // Parts are of the whole, whichever part of the value they show.
            label: if has_own_parts {
                whole
            } else {
                whole_but_parts(&flow, &call, noted_inside(request.context()))
            },
            parts: has_own_parts.then_some(parts),
            labels: labels.collect::<Vec<(PointerPattern, Label)>>(),
            tool: request.name().to_owned(),
            from,
            message: checked.message.clone(),
        };
        let name = variable_name(request.context());
        let is_kept = book.keep(&name, &variable, self.settings().max_stored);
        let brought = Brought {
            variable: is_kept.then(|| name.clone()),
            ..Brought::shown(checked.context.clone())
        };
        book.set_result(&checked.message, checked.index, brought);
        let text = if is_kept {
            let is_error = response.is_error();
            stub(&name, &variable, &flow, &checked.context, is_error).to_string()
        } else {
            FULL.to_owned()
        };
        Some(vec![Part::from_text(text)])
    }

    /// Returns the label of a result for the model that reads it.
    fn shown_label(
        &self,
        request: &ToolRequest,
        checked: &Checked,
        label: &Label,
        book: &Book<'_>,
    ) -> Label {
        if request.name() == ASK_ABOUT
            && let Some(bits) = meta::narrow_bits(request.arguments())
            && checked
                .substitutions
                .iter()
                .all(|one| meta::is_subject(&one.path))
            && book.leak(bits, self.settings().max_leaked_bits)
        {
            return checked.context.clone();
        }
        label.clone()
    }

    /// Returns the message for the model about arguments that do not fit, without a value of a reference.
    fn misfit(&self, request: &ToolRequest, checked: &Checked, error: &Error) -> Option<String> {
        let invalid = error.downcast_ref::<InvalidArguments>()?;
        if checked.substitutions.is_empty() {
            return None;
        }
        let field = invalid.field.replace(']', "").replace('[', ".");
        let mut place = field.as_str();
        let mut kind = String::new();
        for substitution in &*checked.substitutions {
            let path = substitution.path.join(".");
            let is_at = field == path
                || field
                    .strip_prefix(&path)
                    .is_some_and(|below| below.starts_with('.'));
            if is_at || field.is_empty() {
                // Below it, the keys are the value's own.
                place = "";
                let found = kind_of(&substitution.value);
                kind = format!(
                    "`{}` is a reference to: {found}",
                    pointer(&substitution.path)
                );
            }
        }
        let what = if place.is_empty() {
            kind
        } else {
            format!("`{place}` does not fit")
        };
        let expected = request
            .declaration()
            .map(|tool| tool.parameters().to_string())
            .unwrap_or_default();
        Some(format!(
            "{}: {what}.\nThe arguments of `{}` must match this schema: {expected}",
            error.kind(),
            request.name(),
        ))
    }
}

/// Returns whether the arguments of a call may have a reference. Most have none, which their text says
/// before it is parsed.
fn may_refer(request: &ToolRequest) -> bool {
    // Each reference has an `@`, which JSON can escape.
    request.changed_arguments().is_some() || request.call().arguments.as_str().contains(['@', '\\'])
}

/// Returns the label of a result where no part of it has another.
fn whole_but_parts(flow: &ToolFlow, call: &Label, inside: Option<Label>) -> Label {
    let declared = flow.result().join(call);
    inside.map_or(declared.clone(), |inside| declared.join(&inside))
}

/// Returns the parts of a hidden result that is shown, if they are not its value: images, for example.
fn shown_media(request: &ToolRequest, checked: &Checked, book: &Book<'_>) -> Option<Vec<Part>> {
    match &*checked.substitutions {
        [whole] if request.name() == SHOW => book.variable(&whole.name)?.parts,
        _ => None,
    }
}

/// The name of the event about a decision.
pub(super) const EVENT: &str = "flow";

/// What the model reads of a result for which there is no room.
const FULL: &str = "the result is hidden, and too large to be kept: it cannot be used";

impl Callback<ToolRequest> for Checking {
    async fn before(&self, request: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        self.check(request).await
    }

    async fn after(
        &self,
        request: &ToolRequest,
        response: &ToolResponse,
    ) -> Result<Action<ToolResponse>> {
        let Some(checked) = request.extensions().get::<Checked>() else {
            return Ok(self.review(request));
        };
        if checked.is_refused || checked.is_kept.swap(true, Ordering::AcqRel) {
            return Ok(Action::Continue);
        }
        Ok(match self.keep(request, checked, response) {
            None => Action::Continue,
            Some(parts) => Action::Respond(response.clone().with_parts(parts)),
        })
    }

    async fn on_error(
        &self,
        request: &mut ToolRequest,
        error: &Error,
    ) -> Result<Recovery<ToolResponse>> {
        let Some(checked) = request.extensions().get::<Checked>().cloned() else {
            return Ok(Recovery::Propagate);
        };
        if let Some(text) = self.misfit(request, &checked, error) {
            let brought = Brought::shown(checked.context.clone());
            let book = Book::of(request.context());
            book.set_result(&checked.message, checked.index, brought);
            return Ok(Recovery::Fail(error.clone().with_model_message(text)));
        }
        // What the model would read of it.
        let text = match error.model_message() {
            Some(message) => message.to_owned(),
            None => format!("{}: {}", error.kind(), error.message()),
        };
        let response = ToolResponse::error(text);
        Ok(match self.keep(request, &checked, &response).as_deref() {
            Some([Part::Text(stub)]) => {
                Recovery::Fail(error.clone().with_model_message(stub.text.clone()))
            }
            _ => Recovery::Propagate,
        })
    }

    fn on_end(&self, request: &ToolRequest, _: tower_agent::callback::Outcome<'_, ToolResponse>) {
        let checked = request.extensions().get::<Checked>();
        if let Some(key) = checked.and_then(|checked| checked.in_call.as_deref()) {
            request.context().values().remove(key);
        }
    }

    fn name(&self) -> Cow<'static, str> {
        NAME.into()
    }

    fn is_guard(&self) -> bool {
        true
    }

    fn named_tools(&self) -> Vec<Arc<str>> {
        // A tool of others may not be there, and is declared all the same.
        Vec::new()
    }
}

impl Checking {
    /// Looks at a message that was made of a result outside its call: it says no more of a hidden result
    /// than the model may read.
    fn review(&self, request: &ToolRequest) -> Action<ToolResponse> {
        let id = request.context().tool_call_in_stream();
        let (message, index) = Self::place(id.as_deref());
        let book = Book::of(request.context());
        let turn = book.turn(&message);
        let variable = turn.and_then(|turn| turn.result(index)?.variable.clone());
        let Some(name) = variable else {
            return Action::Continue;
        };
        let flow = self.flow(request);
        let context = book
            .turn(&message)
            .map_or_else(Label::unknown, |turn| turn.label);
        let text = match book.variable(&name) {
            Some(variable) => stub(&name, &variable, &flow, &context, false).to_string(),
            None => FULL.to_owned(),
        };
        let shown = ToolResponse::new(Value::Null).with_parts([Part::from_text(text)]);
        Action::Respond(shown)
    }
}
