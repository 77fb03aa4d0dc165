//! A model of a band, worked out from the documentation of `CallbackRules`. It knows neither
//! requests nor futures, only each callback's answer.

use tower_agent::ErrorKind;
use tower_agent::call::Origin;

use crate::hook_matrix::rows::{Does, ENDED, Hook, INTERRUPTED, Reply};

/// The effect of a response on the callbacks after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chain {
    First,
    FirstNotifyRest,
    Last,
    Compose,
}

/// The effect of a failure on the callbacks after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Stop,
    RestTold,
    Continue,
}

/// A preset's answers for one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) before: Chain,
    pub(crate) after: Chain,
    pub(crate) failure: Failure,
    pub(crate) responds_before: bool,
    pub(crate) responds_after: bool,
    pub(crate) after_before: bool,
    pub(crate) after_fallback: bool,
    /// `on_error` is the error half of `after`.
    pub(crate) error_half: bool,
    pub(crate) retry_before: bool,
    pub(crate) retries: u32,
}

/// `a`, `b` and `c` answer this in one hook, and nothing in the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) hook: Hook,
    pub(crate) acts: [Does; 3],
    pub(crate) service: &'static [Reply],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Done(&'static str, Origin),
    Failed(Failed),
    Dropped,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) kind: ErrorKind,
    pub(crate) message: String,
    pub(crate) by: Option<(&'static str, &'static str)>,
}

/// The predicted course of a call.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) trace: String,
    /// The notes that the service read at each call.
    pub(crate) requests: String,
    pub(crate) end: End,
    /// The endings of more than the call, in the order in which they were raised.
    pub(crate) endings: Vec<Failed>,
}

const NAMES: [&str; 3] = ["a", "b", "c"];

/// The result of asking the three in one phase.
struct Phase {
    asked: usize,
    hangs: bool,
    retries: bool,
    response: Option<&'static str>,
    /// The failure that counts, and what it beats: what an `on_error` put in the error's place.
    error: Option<Failed>,
    replacement: Option<Failed>,
    endings: Vec<Failed>,
    /// The error text that each is shown, if it is asked about an error.
    shown: [String; 3],
}

fn fails(does: Does) -> bool {
    use Does::{Abort, EndInvocation, Error, Interrupt, Panic};
    matches!(does, Error | Panic | Abort | Interrupt | EndInvocation)
}

fn replaces(does: Does) -> bool {
    use Does::{Fail, FailWithAbort, FailWithEnd, FailWithInterrupt};
    matches!(does, Fail | FailWithAbort | FailWithInterrupt | FailWithEnd)
}

/// The failure that is another error's replacement.
fn as_failure(does: Does) -> Does {
    match does {
        Does::Fail => Does::Error,
        Does::FailWithAbort => Does::Abort,
        Does::FailWithInterrupt => Does::Interrupt,
        Does::FailWithEnd => Does::EndInvocation,
        does => does,
    }
}

fn failed(index: usize, does: Does, hook: Hook) -> Failed {
    let name = NAMES[index];
    let (kind, message) = match as_failure(does) {
        Does::Abort => (ErrorKind::Aborted, name.to_owned()),
        Does::Interrupt => (ErrorKind::Interrupted, INTERRUPTED.to_owned()),
        Does::EndInvocation => (ErrorKind::InvocationEnded, ENDED.to_owned()),
        Does::Panic => (ErrorKind::Callback, format!("panicked: {name}")),
        _ => (ErrorKind::Auth, name.to_owned()),
    };
    let hook = match hook {
        Hook::Before => "before",
        Hook::After => "after",
        _ => "on_error",
    };
    Failed {
        kind,
        message,
        by: Some((name, hook)),
    }
}

impl Failed {
    fn is_ending(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::Aborted | ErrorKind::Interrupted | ErrorKind::InvocationEnded
        )
    }
}

impl Rules {
    fn responds(&self, hook: Hook) -> bool {
        match hook {
            Hook::Before => self.responds_before,
            Hook::After => self.responds_after,
            // A fallback is not a response, even where those do not count.
            _ => true,
        }
    }

    fn chain(&self, hook: Hook) -> Chain {
        match hook {
            Hook::Before => self.before,
            Hook::OnError if !self.error_half => Chain::First,
            _ => self.after,
        }
    }

    /// Replaces the answers that do not count by `Continue`.
    fn heard(&self, hook: Hook, acts: [Does; 3], may_retry: bool) -> [Does; 3] {
        std::array::from_fn(|index| match acts[index] {
            Does::Respond if !self.responds(hook) => Does::Continue,
            Does::Retry if !may_retry => Does::Continue,
            // The call fails already.
            Does::Retry if acts[..index].iter().any(|&earlier| self.fails(earlier)) => {
                Does::Continue
            }
            does if self.error_half => as_failure(does),
            does => does,
        })
    }

    fn fails(&self, does: Does) -> bool {
        fails(does) || (self.error_half && replaces(does))
    }

    fn phase(&self, hook: Hook, acts: [Does; 3], may_retry: bool) -> Phase {
        let acts = self.heard(hook, acts, may_retry);
        let chain = self.chain(hook);
        let answers = |does| matches!(does, Does::Respond | Does::Fallback);
        // In an `after` it ends the run, and not the call.
        let ends_run =
            |does| hook == Hook::After && matches!(does, Does::Interrupt | Does::EndInvocation);
        let stops = |does| {
            matches!(does, Does::Hang | Does::SkipRest | Does::Retry)
                || ends_run(does)
                || (answers(does) && chain == Chain::First)
                || (fails(does) && self.failure == Failure::Stop)
                || (replaces(does) && does != Does::Fail)
        };
        let silences = |does| {
            (answers(does) && chain == Chain::FirstNotifyRest)
                || (fails(does) && self.failure == Failure::RestTold)
        };
        let decisive = acts.iter().position(|&does| stops(does) || silences(does));
        let asked = match decisive {
            None => 3,
            Some(index) if stops(acts[index]) => index + 1,
            // The rest run; only one that never returns keeps it from the others.
            Some(index) => {
                let hangs = acts[index..].iter().position(|&does| does == Does::Hang);
                hangs.map_or(3, |after| index + after + 1)
            }
        };
        let counted = &acts[..decisive.map_or(3, |index| index + 1)];
        let find = |wanted: &dyn Fn(Does) -> bool| counted.iter().position(|&does| wanted(does));
        let find_last =
            |wanted: &dyn Fn(Does) -> bool| counted.iter().rposition(|&does| wanted(does));
        let raised = |index: usize| failed(index, counted[index], hook);
        Phase {
            asked,
            hangs: acts[asked - 1] == Does::Hang,
            retries: counted.last() == Some(&Does::Retry),
            response: find_last(&answers).map(|index| NAMES[index]),
            error: find(&|does| fails(does) && !ends_run(does)).map(raised),
            replacement: find_last(&replaces).map(raised),
            endings: (0..counted.len())
                .filter(|&index| fails(counted[index]) || replaces(counted[index]))
                .map(raised)
                .filter(Failed::is_ending)
                .collect(),
            shown: std::array::from_fn(|index| {
                let shown = counted.iter().take(index).rposition(|&does| replaces(does));
                shown.map_or("service".to_owned(), |by| {
                    failed(by, counted[by], hook).message
                })
            }),
        }
    }

    /// Predicts the course of a call in this case.
    pub(crate) fn predict(&self, case: &Case) -> Seen {
        let mut call = Call {
            rules: self,
            case,
            words: Vec::new(),
            entered: 0,
            endings: vec![],
        };
        let mut requests = Vec::new();
        let mut end = call.run(&mut requests);
        // Nothing undoes an ending of more than the call, least of all an abort.
        if let End::Failed(_) = end {
            let abort = call
                .endings
                .iter()
                .find(|ending| ending.kind == ErrorKind::Aborted);
            if let Some(ending) = abort.or_else(|| call.endings.first()) {
                end = End::Failed(ending.clone());
            }
        }
        let how = match end {
            End::Done(..) => "done",
            End::Failed(_) => "failed",
            End::Dropped => "dropped",
        };
        let ends = NAMES[..call.entered]
            .iter()
            .map(|name| format!("{name}={how}"));
        let trace = call
            .words
            .into_iter()
            .chain(ends)
            .collect::<Vec<_>>()
            .join(" ");
        Seen {
            trace,
            requests: requests.join(" "),
            end,
            endings: call.endings,
        }
    }
}

struct Call<'a> {
    rules: &'a Rules,
    case: &'a Case,
    words: Vec<String>,
    entered: usize,
    endings: Vec<Failed>,
}

impl Call<'_> {
    fn ask(&mut self, hook: Hook, may_retry: bool) -> Phase {
        let idle = [Does::Continue; 3];
        let acts = if self.case.hook == hook {
            self.case.acts
        } else {
            idle
        };
        let phase = self.rules.phase(hook, acts, may_retry);
        self.entered = self.entered.max(phase.asked);
        self.words
            .extend((0..phase.asked).map(|index| match (hook, NAMES[index]) {
                (Hook::Before, name) => format!("{name}>"),
                (Hook::After, name) => format!("<{name}"),
                (_, name) => format!("{name}!{}", phase.shown[index]),
            }));
        self.endings.extend(phase.endings.iter().cloned());
        phase
    }

    fn run(&mut self, requests: &mut Vec<String>) -> End {
        let (mut attempt, mut noted) = (0, String::new());
        loop {
            if attempt == 0 || self.rules.retry_before {
                let before = self.ask(Hook::Before, false);
                if before.hangs {
                    return End::Dropped;
                }
                if let Some(error) = before.error {
                    return End::Failed(error);
                }
                if let Some(name) = before.response {
                    return self.after(name, Origin::Before, self.rules.after_before);
                }
                // `b` notes that it was asked, in the request as it entered the band.
                noted = if before.asked > 1 {
                    "b".into()
                } else {
                    String::new()
                };
            }
            self.words.push("call".into());
            requests.extend((!noted.is_empty()).then(|| noted.clone()));
            let ends = |kind, message: &str| Failed {
                kind,
                message: message.into(),
                by: None,
            };
            let replies = self.case.service;
            let ending = match replies[attempt.min(replies.len() - 1)] {
                Reply::Answers => return self.after("service", Origin::Service, true),
                Reply::Hangs => return End::Dropped,
                Reply::Fails => None,
                Reply::Aborts => Some(ends(ErrorKind::Aborted, "service")),
                Reply::Interrupts => Some(ends(ErrorKind::Interrupted, INTERRUPTED)),
                Reply::Ends => Some(ends(ErrorKind::InvocationEnded, ENDED)),
            };
            if let Some(ending) = ending {
                self.endings.push(ending.clone());
                return End::Failed(ending);
            }
            let on_error = self.ask(Hook::OnError, attempt < self.rules.retries as usize);
            match on_error {
                Phase { hangs: true, .. } => return End::Dropped,
                Phase { retries: true, .. } => {
                    attempt += 1;
                    noted.push('+');
                }
                Phase {
                    error: Some(error), ..
                } => return End::Failed(error),
                Phase {
                    response: Some(name),
                    ..
                } => {
                    return self.after(name, Origin::Fallback, self.rules.after_fallback);
                }
                Phase {
                    replacement: Some(error),
                    ..
                } => return End::Failed(error),
                _ => return End::Failed(ends(ErrorKind::Provider, "service")),
            }
        }
    }

    fn after(&mut self, name: &'static str, origin: Origin, is_asked: bool) -> End {
        if !is_asked {
            return End::Done(name, origin);
        }
        let after = self.ask(Hook::After, false);
        match after {
            Phase { hangs: true, .. } => End::Dropped,
            Phase {
                error: Some(error), ..
            } => End::Failed(error),
            Phase {
                response: Some(name),
                ..
            } => End::Done(name, Origin::After),
            _ => End::Done(name, origin),
        }
    }
}
