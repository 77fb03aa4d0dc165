//! Rules of a business as data: who may have which tool called with what, written by people who do
//! not program, decided at each tool call without a model, and explained afterwards.
//!
//! ```text
//! Rulebook::enforce(): Into<Bundle>
//! ```
//!
//! The rules are [Cedar](https://docs.cedarpolicy.com) policies. A [`Rulebook`] makes a schema from
//! the tools, checks the rules against it when they are loaded, and gives a guard for a whole tree
//! of agents. What no rule permits is refused, and a `forbid` outweighs every `permit`.
//!
//! ```
//! use serde_json::json;
//! use tower_agent::{Agent, AgentRequest, BoxError, Tool};
//! use tower_agent_policy::{Principal, Rulebook};
//! use tower_agent_test::{ScriptedModel, Turn};
//!
//! /// Who the run is for: the server's word.
//! struct User(&'static str);
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let refund = Tool::function("refund", "Pays back.", |cents: u32| format!("paid {cents}"));
//! let rules = Rulebook::builder()
//!     .schema("users.cedarschema", "entity User;")
//!     .principals(["User"], |given| Some(Principal::new("User", given.get::<User>()?.0)))
//!     .tools([refund.declaration()])
//!     .rules("refunds.cedar", r#"
//!         @id("small") permit(principal, action == Action::"refund", resource)
//!         when { context.input.value <= 500 };
//!     "#)
//!     .build()?;
//!
//! let model = ScriptedModel::new([
//!     Turn::tool("refund", json!({ "value": 900 })),
//!     Turn::from_text("I may not."),
//! ]);
//! let agent = Agent::builder(model.clone())
//!     .tool(refund)
//!     .global_callbacks(rules.enforce())
//!     .build()?;
//! agent.run(AgentRequest::new("900 back, please.").with_extension(User("ann"))).await?;
//! let read = model.requests()[1].messages()[2].tool_results().next().unwrap().text();
//! assert_eq!(read, "refused: `refund` exists, and the rules do not allow this call");
//! # Ok(())
//! # }
//! ```
//!
//! # What a rule can be about
//!
//! | in a rule | is |
//! |---|---|
//! | `principal` | who the run is for, from what the server has given the run ([`principals`](RulebookBuilder::principals)), with the groups of the run and of a [source](RulebookBuilder::entities). Never from state, messages or arguments. |
//! | `action == Action::"refund"` | a call of this tool |
//! | `action in Action::"effect:pure"` | a call of any tool with this [effect](tower_agent::Effect): `pure`, `idempotent`, `mutating` |
//! | `action == Action::"result:refund"`, `action in Action::"results:all"` | whether the result of a call may be read |
//! | `resource` | the tool, `Tool::"refund"`, with `effect`, `agent` and `others`; or [what the application says](RulebookBuilder::resources) |
//! | `context.input` | the arguments, as the tool will get them |
//! | `context.session` | `time` in UTC, `calls` of this tool in the run and `conversation_calls` before this one (attempts at one call count once), `iteration`, the path of the `agent`, `streamed` |
//! | `context.flow` | with [`flow`](RulebookBuilder::flow): whether what the model had read is `untrusted`, which `arguments` are, and the `sources` |
//! | `context.app` | what the [application adds](RulebookBuilder::attributes) |
//! | `context.output` | of a result: its `text`, `is_error`, and its `value` if the tool's [output is declared](RulebookBuilder::output) |
//!
//! [`Rulebook::schema`] prints the types of all of it, for editors and for `cedar validate`.
//!
//! # Arguments
//!
//! | JSON Schema | Cedar |
//! |---|---|
//! | `string`, constants of texts | `String` |
//! | `integer` | `Long` |
//! | `number` | `decimal`: four digits after the point |
//! | `boolean` | `Bool` |
//! | `array` | `Set`, without order and count |
//! | `object` with named properties | a record |
//! | what is not required, or may be `null` | an optional attribute: rules ask `context.input has note` first |
//!
//! Anything else is an error of [`build`](RulebookBuilder::build) that names the tool and the
//! argument: leave it [out](RulebookBuilder::without_argument), and let an
//! [attribute](RulebookBuilder::attributes) say what rules need of it. A call whose arguments are
//! not of the type, such as one with an argument that the tool does not declare, is refused; a tool
//! might know it by another name.
//!
//! # Annotations
//!
//! | annotation | of a `permit` | of a `forbid` |
//! |---|---|---|
//! | `@id("name")` | the name in events | the same |
//! | `@ask("role")` | permits what somebody of this role has approved | forbids what nobody of this role has approved |
//! | `@tell("text")` | | the text that the model reads of the refusal |
//! | `@doc("text")` | for whoever reads the rules | the same |
//!
//! The question is that of an [approval](tower_agent_middleware::approval) by the role, in the same
//! inbox and with the same answers: an approval of both counts for both. It is asked once all other
//! rules allow the call, and the rules that count when the answer is there decide again: a new
//! `forbid` outlives an old yes. [`asking`](RulebookBuilder::asking) sets how long there is for an
//! answer, and whether it may edit the arguments, about which the rules decide then.
//!
//! # Results
//!
//! If a rule names the result of a tool, it is shown only if the rules permit that too; otherwise
//! the rules for calls are enough. Its text is withheld from the model, the user and every callback
//! outside. Nobody is asked about a result.
//!
//! A tool that a client carries out itself, as over AG-UI, has no result here: the client sends it
//! as a message of its own, and no rule is asked. Rules decide whether the client is to carry it
//! out.
//!
//! # What a model sees
//!
//! Tools of which no call can be permitted to the principal, whatever the arguments, are left out
//! of the model's requests, in each step of a run the same, and a
//! [search](tower_agent_middleware::tool_search) does not find them. A call all the same is refused
//! in other words than one of a tool that does not exist. What depends on a call is taken for
//! possible.
//!
//! # Errors
//!
//! | | the call |
//! |---|---|
//! | a rule cannot be evaluated, such as a number too large | is refused, with the rule's id in the event; Cedar alone would leave the rule out, a `forbid` as well |
//! | no principal; a source of entities that fails, hangs or gives what the schema does not have | is refused |
//! | an unknown tool, arguments or attributes of another type | is refused |
//!
//! # Seen
//!
//! Each decision is an event, [`Note`](tower_agent::stream::EventKind::Note) with the name
//! `policy`, and a span of `tracing` with the same name inside that of the agent: what was decided,
//! by which policies, in which set, and no value. It is for the program, and no client of a server
//! reads it. A decision other than to allow is a line of the program's log in that span as well.
//! [`observe`](Rulebook::observe) does that alone, and a [shadow
//! set](RulebookBuilder::shadow_rules) says beside it what another set would decide.
//!
//! [`explain_for`](tower_agent::Agent::explain_for) names the guard around the model with its mode
//! and how many rules are in force, such as `policy (enforcing 20 rules)`, and
//! [`explain`](tower_agent::Agent::explain) with how many were when the agent was built. A guard
//! that only observes has this name around the tools.
//!
//! [`Rulebook::decide`] answers for a [`Case`] without an agent, and [`Rulebook::not_allowed`] for
//! the calls of conversations and recordings.
//!
//! # Where to register it
//!
//! With [`global_callbacks`](tower_agent::AgentBuilder::global_callbacks), for the whole tree of
//! agents. Wherever it stands, it decides outside all other callbacks and layers but those of a
//! journal, whose stored calls are not decided again, and once more directly around the tool if the
//! arguments or the rules have changed, or the call is made again. Arguments with references of
//! [`Flow`](tower_agent_middleware::flow::Flow) are decided about once these have their values:
//! register that guard before it, so that nobody is asked about a call that is refused then.
//!
//! A tool that is served without an agent, such as by an MCP server, has no callbacks around it:
//! give it the [layer](Rulebook::layer).
//!
//! The tools with which agents themselves work are no business of the rules, unless they are among
//! the [tools](RulebookBuilder::tools): a transfer, a search for tools, a look at what a model was
//! sent before. Tools that a provider runs itself call nobody, and no rule is asked.
//!
//! | | decides by | is changed by |
//! |---|---|---|
//! | [`Approval`](tower_agent_middleware::approval) | what a person says about one call | the program |
//! | [`Flow`](tower_agent_middleware::flow) | where data comes from | the program |
//! | [`Budget`](tower_agent_middleware::budget) | what was used so far | the program |
//! | a [`Rulebook`] | who, what, when and with what, and the three others' facts that it is given | whoever writes the rules |
//!
//! # Cost
//!
//! Rules are cut when they are loaded: those about other tools cost a call nothing, and neither do
//! those for another principal, `principal == User::"bob"`. Those for groups are not cut by
//! principal: who is in a group is known only with the entities, which may change. Each rule that
//! is left takes about a microsecond, and a call some tens of microseconds beside. Nothing is
//! locked while it is decided.

#![cfg_attr(docsrs, feature(doc_cfg))]
// Tests and examples may; the library may not.
#![cfg_attr(
    not(test),
    warn(clippy::expect_used, clippy::panic, clippy::unwrap_used)
)]

mod arguments;
mod call_state;
mod case;
mod counts;
mod decide;
mod entities;
mod error;
mod guard;
pub mod guide;
mod principal;
mod registered;
mod rulebook;
mod rules;
mod ruling;
mod schema;

pub use self::case::Case;
pub use self::entities::{EntitySource, Loaded};
pub use self::error::{PolicyError, Problem};
pub use self::principal::Principal;
pub use self::rulebook::{Rulebook, RulebookBuilder};
pub use self::ruling::{RefusalReason, Ruling, RulingVerdict};

/// The README's example, so that it compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
