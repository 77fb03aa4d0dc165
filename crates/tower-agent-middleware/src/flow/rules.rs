//! The rules that a call must keep.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tower_agent::tool::ToolRequest;

use super::book::Book;
use super::declaration::{Sends, ToolFlow};
use super::label::{Label, Readers};
use super::resolve::Substitution;

/// A rule that a call has broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Rule {
    /// A consequential call is made from a context without untrusted content.
    TrustedContext,
    /// The arguments that decide what a consequential call does are trusted.
    TrustedArgument,
    /// Data is sent only to those who may read it.
    PermittedFlow,
}

impl Rule {
    fn text(self) -> &'static str {
        match self {
            Self::TrustedContext => "untrusted content has been read in this conversation",
            Self::TrustedArgument => "it comes from untrusted content",
            Self::PermittedFlow => "not everybody who would receive it may read it",
        }
    }
}

/// One rule that a call has broken, and with which argument.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Violation {
    pub(super) rule: Rule,
    /// The declared place of the argument; `None` if it is about the whole call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) argument: Option<String>,
    /// The tools whose results were read, or are in the argument.
    pub(super) from: Vec<String>,
}

/// A call with its references resolved.
pub(super) struct Resolved<'a> {
    pub(super) request: &'a ToolRequest,
    pub(super) flow: &'a ToolFlow,
    /// The label of all that the model had read.
    pub(super) context: &'a Label,
    pub(super) sources: &'a [String],
    pub(super) substitutions: &'a [Substitution],
}

impl Resolved<'_> {
    /// Returns the rules that the call breaks.
    pub(super) fn violations(&self, book: &Book<'_>) -> Vec<Violation> {
        let mut violations = Vec::new();
        if self.flow.is_consequential {
            if !self.context.is_trusted() {
                violations.push(self.of_context(Rule::TrustedContext));
            }
            for substitution in self.substitutions {
                let is_trusted =
                    substitution.label.is_trusted() || book.is_endorsed(&substitution.value);
                if !is_trusted && self.flow.controls(&substitution.path) {
                    self.add(&mut violations, Rule::TrustedArgument, substitution);
                }
            }
        }
        // Also of a call that is not consequential: to read a page can send what is in its address.
        let recipients = self.recipients();
        if !recipients.may_read(self.context.readers()) {
            violations.push(self.of_context(Rule::PermittedFlow));
        }
        for substitution in self.substitutions {
            if !recipients.may_read(substitution.label.readers()) {
                self.add(&mut violations, Rule::PermittedFlow, substitution);
            }
        }
        violations
    }

    fn of_context(&self, rule: Rule) -> Violation {
        Violation {
            rule,
            argument: None,
            from: self.sources.to_vec(),
        }
    }

    fn add(&self, violations: &mut Vec<Violation>, rule: Rule, substitution: &Substitution) {
        let declaration = self.request.declaration().map(|tool| &**tool);
        let place = self.flow.place(&substitution.path, declaration);
        // Several references may stand in one argument; the reader needs its name once.
        let at = violations.iter().position(|earlier| {
            earlier.rule == rule && earlier.argument.as_deref() == Some(&*place)
        });
        let Some(at) = at else {
            violations.push(Violation {
                rule,
                argument: Some(place),
                from: substitution.from.clone(),
            });
            return;
        };
        let from = &mut violations[at].from;
        for tool in &substitution.from {
            if !from.contains(tool) {
                from.push(tool.clone());
            }
        }
    }

    fn recipients(&self) -> Recipients {
        let patterns = match &self.flow.sends {
            Sends::Nothing => return Recipients::Named(Vec::new()),
            Sends::Unknown => return Recipients::Unknown,
            Sends::Computed(recipients) => {
                return Recipients::Named(recipients(self.request.arguments()));
            }
            Sends::To(patterns) => patterns,
        };
        let mut names = Vec::new();
        let mut is_known = true;
        for pattern in patterns {
            pattern.each(
                self.request.arguments(),
                false,
                &mut |_, value| match value {
                    Value::String(name) => names.push(name.clone()),
                    Value::Array(items) => {
                        for item in items {
                            match item {
                                Value::String(name) => names.push(name.clone()),
                                _ => is_known = false,
                            }
                        }
                    }
                    // An optional recipient that was left out.
                    Value::Null => {}
                    _ => is_known = false,
                },
            );
        }
        // Without a recipient, the tool has one of its own, or none: it is not known.
        if is_known && !names.is_empty() {
            Recipients::Named(names)
        } else {
            Recipients::Unknown
        }
    }
}

enum Recipients {
    Unknown,
    Named(Vec<String>),
}

impl Recipients {
    /// Returns whether each of these is a reader.
    fn may_read(&self, readers: &Readers) -> bool {
        match self {
            Self::Unknown => *readers == Readers::Anyone,
            Self::Named(names) => names.iter().all(|name| readers.contains(name)),
        }
    }
}

/// Returns what the model reads about a call that breaks rules: neither values nor names that
/// content has chosen.
pub(super) fn refusal(tool: &str, violations: &[Violation]) -> String {
    let mut text = format!("refused: `{tool}` may not be called like this.");
    for violation in violations {
        let what = match &violation.argument {
            Some(argument) => format!(" Argument `{argument}`: "),
            None => " The call: ".to_owned(),
        };
        text.push_str(&what);
        text.push_str(violation.rule.text());
        text.push('.');
    }
    text
}
