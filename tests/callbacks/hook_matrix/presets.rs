//! Every preset, on every row of the table and on every two answers of `b` and `c`.

use tower::ServiceExt;
use tower_agent::call::CallKind;
use tower_agent::callback::Remaining;
use tower_agent::compat::CallbackSemantics;
use tower_agent::{AgentRequest, Callbacks, ErrorKind, ModelRequest, RunContext, ToolRequest};
use tower_layer::Layer;

use crate::hook_matrix::POLLS;
use crate::hook_matrix::band::{STYLES, Style, Traced, band, service};
use crate::hook_matrix::model::{Case, Chain, End, Failed, Failure, Rules};
use crate::hook_matrix::rows::{Does, Expected, Hook, Reply, rows};
use test_support::call::{Call, Embed};
use test_support::trace::{Trace, poll_times};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preset {
    Default,
    Potato,
    AdkPython,
    AdkElixir,
    Trpc {
        continue_on_error: bool,
        continue_on_response: bool,
    },
    /// No preset: potato's, where a response counts everywhere, and `on_error` is as `after`.
    RestTold,
}

pub(crate) const PRESETS: [Preset; 9] = [
    Preset::Default,
    Preset::Potato,
    Preset::AdkPython,
    Preset::AdkElixir,
    Preset::Trpc {
        continue_on_error: false,
        continue_on_response: false,
    },
    Preset::Trpc {
        continue_on_error: true,
        continue_on_response: false,
    },
    Preset::Trpc {
        continue_on_error: false,
        continue_on_response: true,
    },
    Preset::Trpc {
        continue_on_error: true,
        continue_on_response: true,
    },
    Preset::RestTold,
];

impl Preset {
    pub(crate) fn semantics(self) -> CallbackSemantics {
        match self {
            Self::Default => CallbackSemantics::default(),
            Self::Potato => CallbackSemantics::potato(),
            Self::AdkPython => CallbackSemantics::adk_python(),
            Self::AdkElixir => CallbackSemantics::adk_elixir(),
            Self::Trpc {
                continue_on_error,
                continue_on_response,
            } => CallbackSemantics::trpc(continue_on_error, continue_on_response),
            Self::RestTold => CallbackSemantics::potato().with_each(|rules| {
                rules.before_responds = true;
                rules.after_responds = true;
                rules.fallback = Remaining::Notify;
                rules.fail_is_failure = true;
            }),
        }
    }

    /// Returns the rules of the preset's framework for a call.
    fn rules(self, call: CallKind) -> Rules {
        let (is_model, is_tool) = (call == CallKind::Model, call == CallKind::Tool);
        let is_agent = call == CallKind::Agent;
        let default = Rules {
            before: Chain::First,
            after: Chain::Compose,
            failure: Failure::Stop,
            responds_before: true,
            responds_after: true,
            after_before: true,
            after_fallback: true,
            error_half: false,
            retry_before: false,
            retries: 3,
        };
        match self {
            Self::Default => default,
            Self::Potato => Rules {
                before: Chain::FirstNotifyRest,
                after: Chain::FirstNotifyRest,
                failure: Failure::RestTold,
                responds_before: false,
                responds_after: is_model,
                ..default
            },
            Self::RestTold => Rules {
                before: Chain::FirstNotifyRest,
                after: Chain::FirstNotifyRest,
                failure: Failure::RestTold,
                error_half: true,
                ..default
            },
            Self::AdkPython => Rules {
                after: Chain::First,
                after_before: !is_model && !is_agent,
                ..default
            },
            Self::AdkElixir => Rules {
                after_before: !is_model && !is_agent,
                after_fallback: !is_model,
                retry_before: is_model,
                retries: if is_tool { 1 } else { 3 },
                ..default
            },
            Self::Trpc {
                continue_on_error,
                continue_on_response,
            } => {
                let chain = if continue_on_response {
                    Chain::Last
                } else {
                    Chain::First
                };
                Rules {
                    before: chain,
                    after: chain,
                    failure: if continue_on_error {
                        Failure::Continue
                    } else {
                        Failure::Stop
                    },
                    after_before: !is_tool && !is_agent,
                    after_fallback: false,
                    error_half: true,
                    ..default
                }
            }
        }
    }
}

fn check<R: Call>(preset: Preset, case: &Case, style: Option<Style>) {
    let label = format!("{preset:?}, {}, {case:?}, {style:?}", R::CALL);
    let (trace, seen, context) = (Trace::default(), Trace::default(), RunContext::default());
    let [a, b, c] = case.acts;
    let callbacks = match style {
        Some(style) => band::<R>(case.hook, b, style, &trace),
        None => Callbacks::new()
            .with(Traced::acting("a", case.hook, a, &trace))
            .with(Traced::acting("b", case.hook, b, &trace))
            .with(Traced::acting("c", case.hook, c, &trace)),
    };
    let stack = callbacks
        .with_semantics(preset.semantics())
        .layer(service::<R>(case.service, &trace, &seen));
    let expected = preset.rules(R::CALL).predict(case);

    let result = poll_times(stack.oneshot(R::request(context.clone())), POLLS);

    let words = style.map_or(expected.trace.clone(), |style| {
        style.visible(&expected.trace)
    });
    assert_eq!(trace.take(), words, "{label}");
    assert_eq!(
        seen.take(),
        expected.requests,
        "{label}: what the service was asked"
    );
    match (result, expected.end) {
        (Some(Ok(response)), End::Done(text, origin)) => {
            assert_eq!(
                (&*R::text(&response), R::origin(&response)),
                (text, origin),
                "{label}"
            );
        }
        (Some(Err(error)), End::Failed(Failed { kind, message, by })) => {
            assert_eq!(
                (error.kind(), error.message()),
                (kind, &*message),
                "{label}"
            );
            let raised = error.raised_by().map(|by| (&*by.callback, &*by.hook));
            assert_eq!(raised, by, "{label}");
            assert_eq!(error.call().map(|call| call.kind), Some(R::CALL), "{label}");
        }
        (None, End::Dropped) => {}
        (result, end) => panic!("{label}: expected {end:?}, got {result:?}"),
    }

    // A second call is refused by the ending that was raised, an abort before all others.
    let aborts = |ending: &&Failed| ending.kind == ErrorKind::Aborted;
    let ending = expected
        .endings
        .iter()
        .find(aborts)
        .or(expected.endings.first());
    let again = Callbacks::new()
        .with(Traced::innocent("d", &trace))
        .layer(service::<R>(&[Reply::Answers], &trace, &seen));
    let again = poll_times(again.oneshot(R::request(context)), POLLS).expect("nothing waits");
    let (kind, words) = match ending {
        Some(ending) => (Some(ending.kind), ""),
        None => (None, "d> call <d d=done"),
    };
    assert_eq!(
        again.err().map(|error| error.kind()),
        kind,
        "{label}: a second call"
    );
    assert_eq!(trace.take(), words, "{label}: a second call");
}

/// The model knows the rows that were written by hand.
#[test]
fn the_model_agrees_with_the_table() {
    for row in rows() {
        let case = alone(row.hook, row.does, row.service);
        for call in [
            CallKind::Agent,
            CallKind::Model,
            CallKind::Tool,
            CallKind::Other("embed"),
        ] {
            let seen = Preset::Default.rules(call).predict(&case);
            assert_eq!(
                (&*seen.trace, &*seen.requests),
                (row.trace, row.seen),
                "{row:?}"
            );
            let agrees = match (&seen.end, row.result) {
                (End::Done(text, origin), Expected::Done(t, o)) => (*text, *origin) == (t, o),
                (End::Failed(error), Expected::Fails(kind, message, hook)) => {
                    (error.kind, &*error.message) == (kind, message)
                        && error.by == hook.map(|hook| ("b", hook))
                }
                (End::Dropped, Expected::Dropped) => true,
                _ => false,
            };
            assert!(agrees, "{row:?}: {seen:?}");
        }
    }
}

fn alone(hook: Hook, does: Does, service: &'static [Reply]) -> Case {
    Case {
        hook,
        acts: [Does::Continue, does, Does::Continue],
        service,
    }
}

/// `b` acts, in every style of callback.
fn rows_of<R: Call>() {
    for preset in PRESETS {
        for row in rows() {
            for style in STYLES
                .into_iter()
                .filter(|style| style.can(row.hook, row.does))
            {
                check::<R>(preset, &alone(row.hook, row.does, row.service), Some(style));
            }
        }
    }
}

/// All three act, in the same hook.
fn combinations_of<R: Call>() {
    use Does::*;
    const OK: &[Reply] = &[Reply::Answers];
    const FAILS: &[Reply] = &[Reply::Fails];
    const ONCE: &[Reply] = &[Reply::Fails, Reply::Answers];
    let deciding = [
        Continue,
        SkipRest,
        Respond,
        Error,
        Abort,
        Interrupt,
        EndInvocation,
        Panic,
        Hang,
    ];
    let recovering = [
        Continue,
        Fail,
        FailWithAbort,
        FailWithInterrupt,
        FailWithEnd,
        Retry,
        Fallback,
        Error,
        Abort,
        Interrupt,
        EndInvocation,
        Panic,
        Hang,
    ];
    let (first, first_recovering) = (
        [Continue, SkipRest, Respond, Error],
        [Continue, Fail, Retry, Fallback, Error],
    );
    type Answers<'a> = &'a [Does];
    let hooks: [(Hook, Answers<'_>, Answers<'_>, &'static [Reply]); 4] = [
        (Hook::Before, &first, &deciding, OK),
        (Hook::After, &first, &deciding, OK),
        (Hook::OnError, &first_recovering, &recovering, FAILS),
        (Hook::OnError, &first_recovering, &recovering, ONCE),
    ];
    for preset in PRESETS {
        for (hook, first, answers, service) in hooks {
            for &a in first {
                for &b in answers {
                    for &c in answers {
                        check::<R>(
                            preset,
                            &Case {
                                hook,
                                acts: [a, b, c],
                                service,
                            },
                            None,
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn agent() {
    rows_of::<AgentRequest>();
    combinations_of::<AgentRequest>();
}

#[test]
fn model() {
    rows_of::<ModelRequest>();
    combinations_of::<ModelRequest>();
}

#[test]
fn tool() {
    rows_of::<ToolRequest>();
    combinations_of::<ToolRequest>();
}

#[test]
fn a_call_that_the_crate_does_not_know() {
    rows_of::<Embed>();
    combinations_of::<Embed>();
}
