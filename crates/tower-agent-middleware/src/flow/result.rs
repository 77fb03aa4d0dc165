//! The result of a tool call: its label, and the part of it that the model reads.

use std::borrow::Cow;
use std::iter;

use serde_json::{Value, json};
use tower_agent::call::{Origin, Request};
use tower_agent::error::Error;
use tower_agent::message::Part;
use tower_agent::tool::{InvalidArguments, ToolRequest, ToolResponse};

use super::book::{Book, Variable};
use super::checked::{CallPlace, Checked};
use super::declaration::ToolFlow;
use super::hide::{kind_of, stub};
use super::inside::{note_read, noted_inside};
use super::label::Label;
use super::meta::{self, ASK_ABOUT, SHOW};
use super::pointer::{PointerPattern, pointer};
use super::settings::FlowSettings;
use super::steps::variable_name;
use super::turn::Brought;

/// The text in place of a result for which there is no room.
const FULL: &str = "the result is hidden, and too large to be kept: it cannot be used";

/// A call that was made.
pub(super) struct CallResult<'a> {
    settings: &'a FlowSettings,
    request: &'a ToolRequest,
    checked: &'a Checked,
    flow: Cow<'a, ToolFlow>,
    book: Book<'a>,
}

impl<'a> CallResult<'a> {
    pub(super) fn new(
        settings: &'a FlowSettings,
        request: &'a ToolRequest,
        checked: &'a Checked,
    ) -> Self {
        Self {
            settings,
            request,
            checked,
            flow: settings.flow_of_call(request),
            book: Book::of(request.context()),
        }
    }

    /// Records what the call has brought, and returns the parts that the model reads in place of
    /// it, if it does not read it.
    pub(super) fn record(&self, response: &ToolResponse) -> Option<Vec<Part>> {
        let inside = noted_inside(self.request.context());
        let call = self.label_of_call();
        let whole = if self.is_of_callback(response) {
            Label::unknown()
        } else {
            self.label(&call, inside.as_ref())
        };
        let shown = self.shown_label(&whole, response);
        let hides = match self.own_name() {
            _ if shown.is_within(&self.checked.context) => false,
            Some(SHOW) => false,
            Some(ASK_ABOUT) => true,
            _ => self.settings.hide.hides(&self.flow, response.value()),
        };
        if hides {
            return Some(vec![Part::from_text(self.hide(
                response,
                &call,
                whole,
                inside.as_ref(),
            ))]);
        }
        self.set(Brought {
            from: self.checked.origin(),
            ..Brought::shown(shown)
        });
        self.shown_media()
    }

    /// Returns the label of what decided the call, of its arguments, and of what it has read in the
    /// state.
    fn label_of_call(&self) -> Label {
        let mut label = self.checked.label();
        // What agents in it have read there has the label of what they say of it.
        if !self.flow.is_agent
            && let Some((trace, labels)) = self.checked.state_labels(self.request)
        {
            let read = trace.read();
            let known = read
                .iter()
                .filter_map(|(key, value)| labels.of_value(key, value));
            for known in known {
                label = label.join(&known);
            }
        }
        label
    }

    /// Records the labels of what the call has written into the state, as it ends.
    pub(super) fn record_written(&self) {
        let Some((trace, labels)) = self.checked.state_labels(self.request) else {
            return;
        };
        let written = trace.written();
        if written.is_empty() {
            return;
        }
        let inside = noted_inside(self.request.context());
        let label = self.label(&self.label_of_call(), inside.as_ref());
        for key in &written {
            if !trace.has_written_last(key) {
                labels.join(key, &label);
            } else if self.flow.is_agent {
                // The tools of an agent have said what they write. Its callbacks have not.
                labels.set_unknown(key, &label.join(&self.settings.callbacks));
            } else {
                labels.set(key, &label);
            }
        }
    }

    /// Records that the agent which has made the call may end with the error of the call, which no
    /// model of its own has read then.
    pub(super) fn note_failure(&self) {
        let inside = noted_inside(self.request.context());
        let label = self.label(&self.label_of_call(), inside.as_ref());
        note_read(self.request.context(), &label);
    }

    /// Records that the model reads words of the program alone.
    pub(super) fn record_own_words(&self) {
        self.set(Brought::shown(self.checked.context.clone()));
    }

    /// Returns whether a callback has answered in place of a transfer, which has no words of its
    /// own.
    fn is_of_callback(&self, response: &ToolResponse) -> bool {
        let declaration = self.request.declaration();
        declaration.is_some_and(|tool| tool.is_transfer()) && response.origin() != Origin::Service
    }

    /// Returns the name of the tool of this crate that was called.
    fn own_name(&self) -> Option<&'static str> {
        meta::own_name(self.request.declaration()?)
    }

    fn set(&self, brought: Brought) {
        self.book
            .set_result(&self.checked.turn(), self.checked.index(), brought);
    }

    /// Keeps a result as a variable, and returns what the model reads of it.
    fn hide(
        &self,
        response: &ToolResponse,
        call: &Label,
        whole: Label,
        inside: Option<&Label>,
    ) -> String {
        let parts = response.parts();
        let has_own_parts = parts != [Part::from(response.value())];
        let labels = self.flow.parts.iter().map(|(pattern, label)| {
            // Of a part, too, the arguments decide.
            (pattern.clone(), label.join(call))
        });
        let in_arguments = self.checked.origin();
        let own = self.own_name();
        let from = match own {
            // It only says again, or says about, what is in the arguments.
            Some(SHOW | ASK_ABOUT) => in_arguments,
            _ => {
                let called = iter::once(self.request.name().to_owned());
                called.chain(in_arguments).collect()
            }
        };
        let variable = Variable {
            value: response.value().clone(),
            // Parts are of the whole, whichever part of the value they show.
            label: if has_own_parts {
                whole
            } else {
                self.label_without_parts(call, inside)
            },
            parts: has_own_parts.then_some(parts),
            labels: labels.collect::<Vec<(PointerPattern, Label)>>(),
            tool: self.request.name().to_owned(),
            from,
            message: self.checked.turn().to_string(),
        };
        let name = variable_name(self.request.context());
        let context = self.checked.context.clone();
        if !self.book.keep(&name, &variable, self.settings.max_stored) {
            self.set(Brought::shown(context));
            return FULL.to_owned();
        }
        let text = match own {
            // The content decides how long an answer is, and whether there is one.
            Some(ASK_ABOUT) => json!({
                "$ref": name,
                "from": ASK_ABOUT,
                "is": meta::kind_of_answer(self.request.arguments()),
            }),
            _ => stub(&name, &variable, &self.flow, &context, response.is_error()),
        };
        self.set(Brought {
            variable: Some(name),
            ..Brought::shown(context)
        });
        text.to_string()
    }

    /// Returns the label of what the call has returned.
    fn label(&self, call: &Label, inside: Option<&Label>) -> Label {
        if self.flow.is_agent {
            let declaration = self.request.declaration();
            // An agent that works in the call says what it has read.
            let is_known = declaration.is_some_and(|tool| match inside {
                Some(_) => tool.is_agent() || tool.is_transfer(),
                None => tool.is_transfer(),
            });
            if !is_known {
                return Label::unknown();
            }
        }
        let without_parts = self.label_without_parts(call, inside);
        without_parts.join(&self.flow.label_of_any())
    }

    /// Returns the label of the result where no part of it has another.
    fn label_without_parts(&self, call: &Label, inside: Option<&Label>) -> Label {
        let declared = self.flow.result.join(call);
        match inside {
            Some(inside) => declared.join(inside),
            None => declared,
        }
    }

    /// Returns the label of the result for the model that reads it.
    fn shown_label(&self, label: &Label, response: &ToolResponse) -> Label {
        if self.own_name() == Some(ASK_ABOUT)
            && let Some(bits) = meta::narrow_bits(self.request.arguments(), response)
            && self
                .checked
                .substitutions
                .iter()
                .all(|one| meta::is_subject(&one.path))
            && self.book.leak(bits, self.settings.max_leaked_bits)
        {
            return self.checked.context.clone();
        }
        label.clone()
    }

    /// Returns the parts of a hidden result that is shown, if they are not its value: images, for
    /// example.
    fn shown_media(&self) -> Option<Vec<Part>> {
        match &*self.checked.substitutions {
            [whole] if self.own_name() == Some(SHOW) => self.book.variable(&whole.name)?.parts,
            _ => None,
        }
    }

    /// Returns the message for the model about arguments that do not fit, without a value of a
    /// reference.
    pub(super) fn misfit(&self, error: &Error) -> Option<String> {
        let invalid = error.downcast_ref::<InvalidArguments>()?;
        if self.checked.substitutions.is_empty() {
            return None;
        }
        let field = invalid.field.replace(']', "").replace('[', ".");
        let mut place = field.as_str();
        let mut kind = String::new();
        for substitution in &self.checked.substitutions {
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
        let expected = self
            .request
            .declaration()
            .map(|tool| tool.parameters().to_string())
            .unwrap_or_default();
        Some(format!(
            "{}: {what}.\nThe arguments of `{}` must match this schema: {expected}",
            error.kind(),
            self.request.name(),
        ))
    }
}

/// Looks at a message that was made of a result outside its call: it says no more of a hidden
/// result than the model may read. Returns what it says instead.
pub(super) fn review(settings: &FlowSettings, request: &ToolRequest) -> Option<ToolResponse> {
    let call = CallPlace::of(request);
    let book = Book::of(request.context());
    let turn = book.turn(&call.turn())?;
    let name = turn.result(call.index)?.variable.clone()?;
    let flow = settings.flow_of_call(request);
    let text = match book.variable(&name) {
        Some(variable) => stub(&name, &variable, &flow, &turn.label, false).to_string(),
        None => FULL.to_owned(),
    };
    Some(ToolResponse::new(Value::Null).with_parts([Part::from_text(text)]))
}
