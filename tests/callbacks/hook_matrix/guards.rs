//! A guard in each position of a band, under every preset, whatever the callbacks beside it do.

use tower::ServiceExt;
use tower_agent::{AgentRequest, Callbacks, ModelRequest, RunContext, ToolRequest};
use tower_layer::Layer;

use crate::hook_matrix::POLLS;
use crate::hook_matrix::band::{Traced, service};
use crate::hook_matrix::presets::{PRESETS, Preset};
use crate::hook_matrix::rows::{Does, Hook, Reply};
use test_support::call::{Call, Embed};
use test_support::trace::{Trace, poll_times};

const OK: &[Reply] = &[Reply::Answers];
const FAILS: &[Reply] = &[Reply::Fails];
const ONCE: &[Reply] = &[Reply::Fails, Reply::Answers];

/// The behaviour of `g` and of the two callbacks beside it, and the position of `g`.
#[derive(Clone, Copy, Debug)]
struct Case {
    preset: Preset,
    at: usize,
    guard: (Hook, Does),
    others: (Hook, [Does; 2]),
    service: &'static [Reply],
}

/// The names in the band's order.
fn names(at: usize) -> [&'static str; 3] {
    let mut names = ["x", "y"].into_iter();
    std::array::from_fn(|index| {
        if index == at {
            "g"
        } else {
            names.next().unwrap_or_default()
        }
    })
}

/// Returns the trace, and the text of the response if there was one.
fn run<R: Call>(case: &Case) -> (Vec<String>, Option<String>) {
    let trace = Trace::default();
    let mut acts = case.others.1.into_iter();
    let mut band = Callbacks::<R>::new();
    for name in names(case.at) {
        band.push(match name {
            "g" => Traced::acting("g", case.guard.0, case.guard.1, &trace).guarding(),
            name => Traced::acting(name, case.others.0, acts.next().unwrap(), &trace),
        });
    }
    let service = service::<R>(case.service, &trace, &Trace::default());
    let stack = band.with_semantics(case.preset.semantics()).layer(service);
    let result = poll_times(stack.oneshot(R::request(RunContext::default())), POLLS);
    let words = trace.take().split(' ').map(str::to_owned).collect();
    (
        words,
        result
            .expect("nothing waits")
            .ok()
            .map(|response| R::text(&response)),
    )
}

/// Every case of a guard that does this.
fn cases(guard: (Hook, Does)) -> Vec<Case> {
    use Does::*;
    let others: [(Hook, &[Does]); 3] = [
        (
            Hook::Before,
            &[Continue, SkipRest, Respond, Error, Interrupt],
        ),
        (
            Hook::After,
            &[
                Continue,
                SkipRest,
                Respond,
                Error,
                Interrupt,
                EndInvocation,
                Panic,
            ],
        ),
        (Hook::OnError, &[Continue, Fail, Retry, Fallback, Error]),
    ];
    let mut cases = Vec::new();
    for preset in PRESETS {
        for at in 0..3 {
            for service in [OK, FAILS, ONCE] {
                for (hook, does) in others {
                    for &x in does {
                        for &y in does {
                            let others = (hook, [x, y]);
                            cases.push(Case {
                                preset,
                                at,
                                guard,
                                others,
                                service,
                            });
                        }
                    }
                }
            }
        }
    }
    cases
}

fn has(words: &[String], wanted: &str) -> bool {
    words.iter().any(|word| word.starts_with(wanted))
}

/// It runs before every call that is made, after every failure that nobody's error has taken the
/// place of, and on every response.
fn is_asked<R: Call>() {
    for case in cases((Hook::Before, Does::Continue)) {
        let (words, answer) = run::<R>(&case);
        let label = format!("{} {case:?}: {words:?}", R::CALL);

        for before in words.split(|word| word == "call").rev().skip(1) {
            assert!(has(before, "g>"), "{label}");
        }
        assert!(answer.is_none() || has(&words, "<g"), "{label}");

        let fails = |does: &Does| matches!(does, Does::Fail | Does::Error);
        if !case.others.1.iter().any(fails) {
            for (call, after) in words.split(|word| word == "call").skip(1).enumerate() {
                let failed = !matches!(
                    case.service[call.min(case.service.len() - 1)],
                    Reply::Answers
                );
                assert!(!failed || has(after, "g!"), "{label}");
            }
        }
        let ends = words.iter().filter(|word| word.starts_with("g=")).count();
        let asked = words
            .iter()
            .any(|word| matches!(&**word, "g>" | "<g") || word.starts_with("g!"));
        assert_eq!(ends, usize::from(asked), "{label}");
    }
}

/// A refused call is not made, and the guard's response replaces every response before it.
fn decides<R: Call>() {
    for does in [Does::Respond, Does::Error] {
        for case in cases((Hook::Before, does)) {
            let (words, answer) = run::<R>(&case);
            let label = format!("{} {case:?}: {words:?}", R::CALL);
            assert!(!has(&words, "call"), "{label}");
            // An earlier answer stands: there is no call that it could refuse.
            let may_answer = does == Does::Respond || case.others.0 == Hook::Before;
            assert!(may_answer || answer.is_none(), "{label}");
        }
        for case in cases((Hook::After, does)) {
            let (words, answer) = run::<R>(&case);
            let label = format!("{} {case:?}: {words:?} {answer:?}", R::CALL);
            let Some(answer) = answer else { continue };
            assert_eq!(does, Does::Respond, "{label}");
            let behind = &names(case.at)[case.at..];
            assert!(behind.contains(&&*answer), "{label}");
        }
    }
}

#[test]
fn a_guard_is_asked_around_an_agent() {
    is_asked::<AgentRequest>();
}

#[test]
fn a_guard_is_asked_around_a_model() {
    is_asked::<ModelRequest>();
}

#[test]
fn a_guard_is_asked_around_a_tool() {
    is_asked::<ToolRequest>();
}

#[test]
fn a_guard_is_asked_around_a_call_that_the_crate_does_not_know() {
    is_asked::<Embed>();
}

#[test]
fn a_guard_decides_around_an_agent() {
    decides::<AgentRequest>();
}

#[test]
fn a_guard_decides_around_a_model() {
    decides::<ModelRequest>();
}

#[test]
fn a_guard_decides_around_a_tool() {
    decides::<ToolRequest>();
}

#[test]
fn a_guard_decides_around_a_call_that_the_crate_does_not_know() {
    decides::<Embed>();
}
