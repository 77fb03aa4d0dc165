//! Orders of callbacks and layers that never do what is intended.

use std::fmt;

use serde::Serialize;

use super::explain::{Explained, Explanation, Wrapper};
use crate::call_kind::CallKind;
use crate::tool::Effect;

/// An order of callbacks and layers that never does what is intended; see
/// [`Explanation::warnings`].
///
/// Its `Display` is a sentence with the effect and what to do instead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OrderWarning {
    /// The agent, by its name behind those of the agents around it: `boss/worker`.
    pub agent: String,
    /// The thing that both are around, in words, such as `the model`.
    pub around: &'static str,
    /// The kind of this call.
    pub call: CallKind,
    /// The tool, if they are around one tool alone.
    pub tool: Option<String>,
    /// The callback or layer outside.
    pub outside: String,
    /// Its place among the [wrappers](Wrapper) of the call, from 0.
    pub outside_at: usize,
    /// The callback or layer inside; or the model, the tool or the agent that is called.
    pub inside: String,
    /// Its place among the wrappers of the call; `None` if it is none of them.
    pub inside_at: Option<usize>,
    /// The effect of this order.
    pub effect: &'static str,
    /// The cure.
    pub instead: &'static str,
}

/// An order, a line of the guide's table.
struct Order {
    /// The thing that both are around, in words.
    around: &'static str,
    outside: &'static str,
    /// The names of the inner part, one of which is enough.
    inside: &'static [&'static str],
    effect: &'static str,
    instead: &'static str,
    find: Find,
}

/// A way to find an order.
#[derive(Clone, Copy)]
enum Find {
    /// Both are around this call, or the inner one is called.
    Around(CallKind),
    /// Anything that does not know of it is outside the inner one. It is no mistake beside the
    /// third.
    Anything(CallKind, Option<&'static str>),
    /// The layer is around a tool whose calls are never repeated.
    Mutating,
    /// The guard is around the calls of an agent, and not around those of the agents inside.
    OneAgent,
    /// The layer is around a call of an agent, and the other around a call in it.
    InCall,
    /// The layer is around a call of this kind, and around one inside it.
    Again(CallKind),
}

/// Names that may stand outside a redaction: parts of it, and what looks at no content.
const OUTSIDE_REDACT: [&str; 4] = ["Redact", "Flow", "DurableLayer", "policy"];

/// Types of the other crates are known by their names, as in everything that is explained. The
/// tests of these crates make each order, and fail if it is not found.
const ORDERS: &[Order] = &[
    Order {
        around: "the tools",
        outside: "CallRetryLayer",
        inside: &["Approval"],
        effect: "each attempt asks again, and cannot change what the person decided",
        instead: "register the approval before the retry",
        find: Find::Around(CallKind::Tool),
    },
    Order {
        around: "the model",
        outside: "CallRetryLayer",
        inside: &["Fallback"],
        effect: "each attempt calls every model again",
        instead: "put the retry around each of the models",
        find: Find::Around(CallKind::Model),
    },
    Order {
        around: "the model",
        outside: "CallTimeoutLayer",
        inside: &["Fallback"],
        effect: "a model that hangs uses up the time of the models after it",
        instead: "put a timeout around each of the models",
        find: Find::Around(CallKind::Model),
    },
    Order {
        around: "the model",
        outside: "CircuitBreakerLayer",
        inside: &["Fallback"],
        effect: "it never opens while one of the models works, and every call waits for the one \
                 that does not",
        instead: "put a breaker around each of the models",
        find: Find::Around(CallKind::Model),
    },
    Order {
        around: "the model",
        outside: "AdaptiveConcurrencyLayer",
        inside: &["RateLimitLayer"],
        effect: "calls that wait for the rate look like a slow provider, and the limit falls",
        instead: "put the rate limit outside",
        find: Find::Around(CallKind::Model),
    },
    Order {
        around: "the model",
        outside: "CacheLayer",
        inside: &["Redact(prompt)", "Guardrail"],
        effect: "what is replayed is not checked again",
        instead: "put the guards outside",
        find: Find::Around(CallKind::Model),
    },
    Order {
        around: "the model",
        outside: "Budget",
        inside: &["CacheLayer"],
        effect: "once it is used up, a call that could be replayed is refused, though a replay is \
                 charged nothing",
        instead: "put the budget inside the cache, around each of the models",
        find: Find::Around(CallKind::Model),
    },
    Order {
        around: "the model",
        outside: "anything",
        inside: &["Redact(prompt)"],
        effect: "what is outside sees the input of the model that `redact_input` hides",
        instead: "pass the redaction to `global_callbacks` or `callbacks`, before everything else",
        find: Find::Anything(CallKind::Model, None),
    },
    Order {
        around: "the model",
        outside: "anything",
        inside: &["Redact(at model)"],
        effect: "what is outside the layer `around_model` can write what the redaction no longer \
                 sees",
        instead: "pass the redaction to `global_callbacks` or `callbacks`; the layer is for a \
                  model without an agent",
        find: Find::Anything(CallKind::Model, Some("Redact(answer)")),
    },
    Order {
        around: "the tools",
        outside: "anything",
        inside: &["Redact(at tool)"],
        effect: "what is outside the layer `around_tool` can write what the redaction no longer \
                 sees",
        instead: "pass the redaction to `global_callbacks` or `callbacks`; the layer is for a tool \
                  without an agent",
        find: Find::Anything(CallKind::Tool, Some("Redact(result)")),
    },
    Order {
        around: "a tool",
        outside: "CallRetryLayer",
        inside: &["a tool with the default effect"],
        effect: "the tool is never retried",
        instead: "declare `.effect(Effect::Idempotent)` if a second call does no harm",
        find: Find::Mutating,
    },
    Order {
        around: "an agent",
        outside: "Flow",
        inside: &["a sub-agent, a member or an agent used as a tool, which do not have it"],
        effect: "it does not see their calls, so it refuses to call them once untrusted content \
                 was read",
        instead: "pass it to `global_callbacks`, and declare them as `ToolFlow::agent()`",
        find: Find::OneAgent,
    },
    Order {
        around: "the agent",
        outside: "CallRetryLayer",
        inside: &["DurableLayer"],
        effect: "the run fails at another attempt, whose calls the journal has made already",
        instead: "put the retry around the model",
        find: Find::InCall,
    },
    Order {
        around: "the tools",
        outside: "GlobalConcurrencyLimitLayer",
        inside: &["an agent used as a tool, with that layer around its own tools"],
        effect: "if they share one limit, runs wait for themselves once there are as many as places",
        instead: "use `AdaptiveConcurrencyLayer`, which lets a call inside another one pass",
        find: Find::Again(CallKind::Tool),
    },
    Order {
        around: "an agent",
        outside: "GlobalConcurrencyLimitLayer",
        inside: &["an agent inside it, with that layer around it"],
        effect: "if they share one limit, runs wait for themselves once there are as many as places",
        instead: "use `AdaptiveConcurrencyLayer`, which lets a call inside another one pass",
        find: Find::Again(CallKind::Agent),
    },
];

/// A callback or layer, with its place among the wrappers of a call.
struct NamedPart<'a> {
    name: &'a str,
    at: usize,
}

impl NamedPart<'_> {
    /// Returns whether it has this name, or one that goes on in brackets.
    fn is(&self, name: &str) -> bool {
        let rest = self.name.strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['(', ' ']))
    }
}

impl Explanation {
    /// Returns the orders of callbacks and layers that never do what is intended, here and in the
    /// agents inside: those of the [guide](crate::guide::guards#in-which-order). A test asserts
    /// that there are none:
    ///
    /// ```
    /// # use tower_agent_test::{ScriptedModel, Turn};
    /// # fn main() -> Result<(), tower_agent::BoxError> {
    /// # let model = ScriptedModel::always(Turn::from_text("Yes."));
    /// let agent = tower_agent::Agent::builder(model).build()?;
    /// assert_eq!(agent.explain().warnings(), []);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Parts are known by what is [explained](Self): a callback of yours with the name of a guard
    /// is taken for it, and a layer that was put around a model before the agent got it is not
    /// seen. Of tower's `GlobalConcurrencyLimitLayer` it is not seen whether two share a limit.
    #[must_use]
    pub fn warnings(&self) -> Vec<OrderWarning> {
        let mut found = Vec::new();
        self.warn(&self.agent, &mut found);
        found
    }

    fn warn(&self, path: &str, found: &mut Vec<OrderWarning>) {
        for order in ORDERS {
            order.find(self, path, found);
        }
        for agent in self.inside() {
            agent.warn(&format!("{path}/{}", agent.agent), found);
        }
    }

    /// Returns whether this agent, or one inside it, has this around a call of this kind.
    fn has(&self, call: CallKind, name: &str) -> bool {
        parts_of(self.around(call)).iter().any(|part| part.is(name))
            || self.inside().iter().any(|agent| agent.has(call, name))
    }
}

impl Order {
    /// Returns the outer part, if it is in this stack.
    fn outside_in<'a>(&self, around: &'a [Wrapper]) -> Option<NamedPart<'a>> {
        let mut parts = parts_of(around).into_iter();
        parts.find(|part| part.is(self.outside))
    }

    fn find(&self, agent: &Explanation, path: &str, found: &mut Vec<OrderWarning>) {
        let is_inside = |part: &NamedPart<'_>| self.inside.iter().any(|name| part.is(name));
        let mut warn = |call, outside: &NamedPart<'_>, inside: &str, inside_at| {
            found.push(OrderWarning {
                agent: path.to_owned(),
                around: self.around,
                call,
                tool: matches!(self.find, Find::Mutating).then(|| inside.to_owned()),
                outside: outside.name.to_owned(),
                outside_at: outside.at,
                inside: inside.to_owned(),
                inside_at,
                effect: self.effect,
                instead: self.instead,
            });
        };
        match self.find {
            Find::Around(call) => {
                let parts = parts_of(agent.around(call));
                let Some(first) = parts.iter().position(|part| part.is(self.outside)) else {
                    return;
                };
                let mut after = parts[first..].iter();
                if let Some(inside) = after.find(|part| is_inside(part)) {
                    warn(call, &parts[first], inside.name, Some(inside.at));
                } else if let (CallKind::Model, Explained::Loop { model, .. }) = (call, &agent.body)
                    && self.inside.contains(&head(&model.name))
                {
                    warn(call, &parts[first], &model.name, None);
                }
            }
            Find::Anything(call, unless) => {
                let parts = parts_of(agent.around(call));
                if unless.is_some_and(|name| parts.iter().any(|part| part.is(name))) {
                    return;
                }
                let Some(inside) = parts.iter().position(is_inside) else {
                    return;
                };
                let may_stand =
                    |part: &NamedPart<'_>| OUTSIDE_REDACT.iter().any(|name| part.is(name));
                if let Some(outside) = parts[..inside].iter().find(|part| !may_stand(part)) {
                    let inside = &parts[inside];
                    warn(call, outside, inside.name, Some(inside.at));
                }
            }
            Find::Mutating => {
                let Explained::Loop { tools, .. } = &agent.body else {
                    return;
                };
                let mutating = tools
                    .iter()
                    .filter(|tool| tool.effect == Some(Effect::Mutating));
                for tool in mutating {
                    if let Some(outside) = self.outside_in(&tool.around) {
                        warn(CallKind::Tool, &outside, &tool.name, None);
                    }
                }
            }
            Find::OneAgent => {
                let Some(outside) = self.outside_in(agent.around(CallKind::Agent)) else {
                    return;
                };
                for inner in agent.inside() {
                    if self.outside_in(inner.around(CallKind::Agent)).is_none() {
                        warn(CallKind::Agent, &outside, &inner.agent, None);
                    }
                }
            }
            Find::InCall => {
                let outside = self.outside_in(agent.around(CallKind::Agent));
                let mut inside = self.inside.iter();
                let inside = inside.find(|name| agent.has(CallKind::Model, name));
                if let (Some(outside), Some(inside)) = (outside, inside) {
                    warn(CallKind::Agent, &outside, inside, None);
                }
            }
            Find::Again(call) => {
                let Some(outside) = self.outside_in(agent.around(call)) else {
                    return;
                };
                let inside = match call {
                    CallKind::Tool => agent.in_tools().collect(),
                    _ => agent.inside(),
                };
                for inner in inside {
                    if inner.has(call, self.outside) {
                        warn(call, &outside, &inner.agent, None);
                    }
                }
            }
        }
    }
}

/// Returns the parts of a stack, outermost first.
fn parts_of(around: &[Wrapper]) -> Vec<NamedPart<'_>> {
    let mut parts = Vec::new();
    for (at, wrapper) in around.iter().enumerate() {
        match wrapper {
            Wrapper::Callbacks(names) => {
                parts.extend(names.iter().map(|name| NamedPart { name, at }));
            }
            Wrapper::Layer(name) => {
                let mut names = Vec::new();
                layers_in(name, &mut names);
                parts.extend(names.into_iter().map(|name| NamedPart { name, at }));
            }
        }
    }
    parts
}

/// Finds the layers in a type, outermost first: those of a `ServiceBuilder` and of a tuple as well.
fn layers_in<'a>(name: &'a str, found: &mut Vec<&'a str>) {
    let in_brackets = |open: &str, close: char| {
        let rest = name.strip_prefix(open)?;
        rest.strip_suffix(close)
    };
    if let Some(inside) = in_brackets("Stack<", '>') {
        // The second type is that of the layers outside.
        for layer in arguments(inside).into_iter().rev() {
            layers_in(layer, found);
        }
    } else if let Some(inside) = in_brackets("(", ')').or_else(|| in_brackets("Either<", '>')) {
        for layer in arguments(inside) {
            layers_in(layer, found);
        }
    } else {
        found.push(head(name));
    }
}

/// Returns the name of a type without its arguments.
fn head(name: &str) -> &str {
    name.split('<').next().unwrap_or(name)
}

/// Splits the arguments of a type at the commas that are not in the arguments of one of them.
fn arguments(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let mut start = 0;
    let mut found = Vec::new();
    for (at, c) in text.char_indices() {
        match c {
            '<' | '(' => depth += 1,
            '>' | ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                found.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(text[start..].trim());
    found.retain(|argument| !argument.is_empty());
    found
}

impl fmt::Display for OrderWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "agent `{}`, around {}: ", self.agent, self.around)?;
        write!(f, "`{}` is outside `{}`: ", self.outside, self.inside)?;
        write!(f, "{}; {}", self.effect, self.instead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The guide's table is this one.
    #[test]
    fn the_guide_has_each_order() {
        let mut table = String::from(
            "| around | outside | inside | effect | instead |\n|---|---|---|---|---|\n",
        );
        let named = |names: &[&str]| {
            let names = names.iter().map(|name| {
                // The others are words.
                if name.starts_with(char::is_uppercase) {
                    format!("`{}`", name.split('(').next().unwrap_or(name))
                } else {
                    (*name).to_owned()
                }
            });
            names.collect::<Vec<_>>().join(", ")
        };
        for order in ORDERS {
            table += &format!(
                "| {} | {} | {} | {} | {} |\n",
                order.around,
                named(&[order.outside]),
                named(order.inside),
                order.effect,
                order.instead,
            );
        }
        let guide = include_str!("../guide/guards.md");
        assert!(
            guide.contains(&table),
            "the guide does not have this:\n{table}"
        );
    }

    #[test]
    fn layers_are_found_in_the_types_of_builders_and_tuples() {
        for (name, layers) in [
            ("TimeoutLayer", &["TimeoutLayer"][..]),
            ("CallTimeoutLayer<ModelRequest>", &["CallTimeoutLayer"]),
            (
                "Stack<A<X, Y>, Stack<B, Identity>>",
                &["Identity", "B", "A"],
            ),
            ("(A, (B, C<(X, Y)>), D)", &["A", "B", "C", "D"]),
            (
                "Either<Stack<A, Identity>, Identity>",
                &["Identity", "A", "Identity"],
            ),
        ] {
            let mut found = Vec::new();
            layers_in(name, &mut found);
            assert_eq!(found, layers, "{name}");
        }
    }
}
