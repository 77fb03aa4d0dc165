//! Several callbacks of one call, under the two options of a chain: the cells that are easily
//! misread, written out. The hook matrix has every other one.

use tower::{Layer, ServiceExt, service_fn};
use tower_agent::callback::Outcome;
use tower_agent::compat::CallbackSemantics;
use tower_agent::{
    Action, AgentRequest, BoxError, Callback, Callbacks, Error, ErrorKind, ModelRequest, Recovery,
    Result, RunContext, ToolRequest,
};

use test_support::call::Call;
use test_support::log::Log;

#[derive(Clone, Copy, Debug)]
enum Does {
    Nothing,
    Answers,
    Fails,
    Panics,
}

use Does::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Before,
    After,
    OnError,
}

/// One callback of a chain, which acts in one phase.
struct Step {
    number: usize,
    does: Does,
    phase: Phase,
    /// The text of the response or of the error that each was shown.
    shown: Log<String>,
    /// The data that is in the request when the call has ended.
    left: Log<String>,
}

impl Step {
    fn act<R: Call>(&self, phase: Phase, shown: String) -> Result<Option<R::Response>> {
        if phase != self.phase {
            return Ok(None);
        }
        let number = self.number;
        self.shown.push(shown);
        match self.does {
            Nothing => Ok(None),
            Answers => Ok(Some(R::response(&format!("R{number}")))),
            Fails => Err(Error::new(ErrorKind::Other, format!("E{number}"))),
            Panics => panic!("E{number}"),
        }
    }
}

impl<R: Call> Callback<R> for Step {
    async fn before(&self, request: &mut R) -> Result<Action<R::Response>> {
        if self.phase == Phase::Before {
            request.note(&self.number.to_string());
        }
        let answer = self.act::<R>(Phase::Before, String::new())?;
        Ok(answer.map_or(Action::Continue, Action::Respond))
    }

    async fn after(&self, _: &R, response: &R::Response) -> Result<Action<R::Response>> {
        let answer = self.act::<R>(Phase::After, R::text(response))?;
        Ok(answer.map_or(Action::Continue, Action::Respond))
    }

    async fn on_error(&self, request: &mut R, error: &Error) -> Result<Recovery<R::Response>> {
        if self.phase == Phase::OnError {
            request.note(&self.number.to_string());
        }
        let answer = self.act::<R>(Phase::OnError, error.message().to_owned())?;
        Ok(answer.map_or(Recovery::Propagate, Recovery::Fallback))
    }

    fn on_end(&self, request: &R, _: Outcome<'_, R::Response>) {
        // The first callback is entered in every call.
        if self.number == 1 {
            self.left.push(request.noted());
        }
    }
}

/// Returns how a call ends with these callbacks around it, what each of them was shown, and the
/// data that they left in the request.
async fn run<R: Call>(
    steps: &[Does],
    phase: Phase,
    (continue_on_error, continue_on_response): (bool, bool),
) -> (String, Vec<String>, String) {
    let shown = Log::default();
    let left = Log::default();
    let chain: Callbacks<R> = (1..)
        .zip(steps)
        .map(|(number, &does)| Step {
            number,
            does,
            phase,
            shown: shown.clone(),
            left: left.clone(),
        })
        .collect();
    let service = service_fn(move |_: R| async move {
        if phase == Phase::OnError {
            Err(BoxError::from(Error::new(ErrorKind::Provider, "service")))
        } else {
            Ok(R::response("service"))
        }
    });
    let semantics = CallbackSemantics::trpc(continue_on_error, continue_on_response);
    let stack = chain.with_semantics(semantics).layer(service);
    let outcome = match stack.oneshot(R::request(RunContext::default())).await {
        Ok(response) => R::text(&response),
        Err(error) => error.message().to_owned(),
    };
    (outcome, shown.take(), left.take().concat())
}

async fn the_cells_are_as_written<R: Call>() {
    /// The behaviour of each, both options, the outcome, and the number that is asked.
    type Cell = (&'static [Does], (bool, bool), &'static str, usize);
    let cells: [Cell; 12] = [
        (&[Answers, Answers], (false, false), "R1", 1),
        (&[Answers, Answers], (false, true), "R2", 2),
        (&[Answers, Nothing], (false, true), "R1", 2),
        (&[Answers, Nothing], (true, true), "R1", 2),
        (&[Fails, Fails], (true, false), "E1", 2),
        (&[Fails, Answers], (true, false), "E1", 2),
        (&[Fails, Answers, Nothing], (true, false), "E1", 2),
        (&[Fails, Answers], (false, true), "E1", 1),
        (&[Answers, Fails], (true, false), "R1", 1),
        (&[Answers, Fails], (false, true), "E2", 2),
        (&[Answers, Fails], (true, true), "E2", 2),
        (&[Panics, Answers], (true, true), "panicked: E1", 2),
    ];
    for (steps, options, outcome, asked) in cells {
        for phase in [Phase::Before, Phase::After, Phase::OnError] {
            let found = run::<R>(steps, phase, options).await;
            // An earlier answer is not shown: each sees how the call itself ended.
            let shown = if phase == Phase::Before {
                ""
            } else {
                "service"
            };
            // An `after` cannot change the request.
            let left = if phase == Phase::After {
                ""
            } else {
                &"123"[..asked]
            };
            assert_eq!(
                found,
                (
                    outcome.to_owned(),
                    vec![shown.to_owned(); asked],
                    left.to_owned()
                ),
                "{} {steps:?} in {phase:?} with {options:?}",
                R::CALL
            );
        }
    }
}

#[tokio::test]
async fn the_cells_that_people_get_wrong_are_as_written_out_here() {
    the_cells_are_as_written::<ModelRequest>().await;
    the_cells_are_as_written::<ToolRequest>().await;
    the_cells_are_as_written::<AgentRequest>().await;
}
