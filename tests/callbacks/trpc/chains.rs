//! Several callbacks of one call, under the two options of a chain.

use std::collections::BTreeSet;
use std::fmt::Debug;

use serde_json::json;
use tower_agent::call::Extensions;
use tower_agent::callback::Outcome;
use tower_agent::testing::{Ended, ProbeLayer, RecordLayer, ScriptedModel, Turn};
use tower_agent::{
    Action, Agent, AgentBuilder, AgentRequest, Callback, Error, ErrorKind, ModelRequest, Recovery,
    Result, Tool, ToolRequest,
};

use super::with_options;
use test_support::call::Call;
use test_support::log::Log;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Nothing,
    Notes,
    Answers,
    NotesAndAnswers,
    Fails,
    NotesAndFails,
    Panics,
}

use Does::*;

const ALL: [Does; 7] = [
    Nothing,
    Notes,
    Answers,
    NotesAndAnswers,
    Fails,
    NotesAndFails,
    Panics,
];

impl Does {
    fn notes(self) -> bool {
        matches!(self, Notes | NotesAndAnswers | NotesAndFails)
    }

    fn answers(self) -> bool {
        matches!(self, Answers | NotesAndAnswers)
    }

    fn fails(self) -> bool {
        matches!(self, Fails | NotesAndFails | Panics)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Before,
    After,
    OnError,
}

/// What is seen of one chain from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cell {
    /// Which callbacks were asked, and what each saw of the call.
    asked: Vec<(usize, String)>,
    /// What they left for later.
    notes: BTreeSet<usize>,
    outcome: String,
    calls: usize,
}

/// The rules of the page, without an algorithm: what ends a chain, which error and which answer
/// count, and that nothing is lost.
fn page(steps: &[Does], phase: Phase, on_error: bool, on_response: bool) -> Cell {
    let ends = |does: &Does| (does.fails() && !on_error) || (does.answers() && !on_response);
    let asked = steps
        .iter()
        .position(ends)
        .map_or(steps.len(), |last| last + 1);
    let numbered = || (1..).zip(steps[..asked].iter().copied());
    let first_error = numbered().find(|(_, does)| does.fails());
    let last_answer = numbered().filter(|(_, does)| does.answers()).last();
    let service = if phase == Phase::OnError {
        "broken"
    } else {
        "service"
    };
    let outcome = match (first_error, last_answer) {
        (Some((n, Panics)), _) => format!("panicked: E{n}"),
        (Some((n, _)), _) => format!("E{n}"),
        (None, Some((n, _))) => format!("R{n}"),
        (None, None) => service.to_owned(),
    };
    let seen = if phase == Phase::Before { "" } else { service };
    Cell {
        asked: (1..=asked).map(|n| (n, seen.to_owned())).collect(),
        notes: numbered()
            .filter(|(_, does)| does.notes())
            .map(|(n, _)| n)
            .collect(),
        calls: usize::from(phase != Phase::Before || outcome == service),
        outcome,
    }
}

/// One callback of a chain.
#[derive(Clone)]
struct Step {
    number: usize,
    does: Does,
    phase: Phase,
    asked: Log<(usize, String)>,
    notes: Log<usize>,
}

#[derive(Clone, Default)]
struct Left(BTreeSet<usize>);

fn leave(extensions: &mut Extensions, number: usize) {
    let mut notes = extensions.get::<Left>().cloned().unwrap_or_default();
    notes.0.insert(number);
    extensions.insert(notes);
}

impl Step {
    fn acts<R: Chained>(&self, saw: &str) -> Result<Option<R::Response>> {
        let number = self.number;
        self.asked.push((number, saw.to_owned()));
        match self.does {
            Panics => panic!("E{number}"),
            does if does.fails() => Err(Error::new(ErrorKind::Other, format!("E{number}"))),
            does if does.answers() => Ok(Some(R::response(&format!("R{number}")))),
            _ => Ok(None),
        }
    }
}

impl<R: Chained> Callback<R> for Step {
    async fn before(&self, request: &mut R) -> Result<Action<R::Response>> {
        if self.phase != Phase::Before {
            return Ok(Action::Continue);
        }
        if self.does.notes() {
            leave(request.extensions_mut(), self.number);
        }
        Ok(self
            .acts::<R>("")?
            .map_or(Action::Continue, Action::Respond))
    }

    async fn after(&self, request: &R, response: &R::Response) -> Result<Action<R::Response>> {
        if self.phase != Phase::After {
            return Ok(Action::Continue);
        }
        if self.does.notes() {
            let values = request.context().values();
            values.update("notes", |notes: &mut BTreeSet<usize>| {
                notes.insert(self.number)
            })?;
        }
        Ok(self
            .acts::<R>(&R::text(response))?
            .map_or(Action::Continue, Action::Respond))
    }

    async fn on_error(&self, request: &mut R, error: &Error) -> Result<Recovery<R::Response>> {
        if self.phase != Phase::OnError {
            return Ok(Recovery::Propagate);
        }
        if self.does.notes() {
            leave(request.extensions_mut(), self.number);
        }
        Ok(self
            .acts::<R>(error.message())?
            .map_or(Recovery::Propagate, Recovery::Fallback))
    }

    fn on_end(&self, request: &R, _: Outcome<'_, R::Response>) {
        // The first callback is entered in every call.
        if self.number == 1 {
            let left = request
                .extensions()
                .get::<Left>()
                .cloned()
                .unwrap_or_default();
            left.0
                .into_iter()
                .for_each(|number| self.notes.push(number));
            let values = request
                .context()
                .values()
                .get::<BTreeSet<usize>>("notes")
                .unwrap();
            values
                .iter()
                .for_each(|notes| notes.iter().for_each(|n| self.notes.push(*n)));
        }
    }
}

/// A call of an agent, with a chain around it.
trait Chained: Call {
    fn extensions(&self) -> &Extensions;
    fn extensions_mut(&mut self) -> &mut Extensions;
    fn script(works: bool) -> ScriptedModel;
    fn chain(
        builder: AgentBuilder,
        record: &RecordLayer<Self>,
        steps: &[Step],
        probe: &ProbeLayer,
    ) -> AgentBuilder;
}

fn says_one_thing(works: bool) -> ScriptedModel {
    let broken = Error::new(ErrorKind::Provider, "broken");
    ScriptedModel::new([if works {
        Turn::from_text("service")
    } else {
        Turn::error(broken)
    }])
}

fn asks_a_tool(works: bool) -> ScriptedModel {
    ScriptedModel::new([Turn::tool("act", json!(works)), Turn::from_text("done")])
}

fn breaks_unless(works: bool) -> Result<&'static str> {
    if works {
        Ok("service")
    } else {
        Err(Error::new(ErrorKind::Tool, "broken"))
    }
}

macro_rules! chained {
    ($($R:ty, $on:ident, $layer:ident, $script:ident;)*) => {$(
        impl Chained for $R {
            fn extensions(&self) -> &Extensions {
                self.extensions()
            }

            fn extensions_mut(&mut self) -> &mut Extensions {
                self.extensions_mut()
            }

            fn script(works: bool) -> ScriptedModel {
                $script(works)
            }

            fn chain(
                builder: AgentBuilder,
                record: &RecordLayer<Self>,
                steps: &[Step],
                probe: &ProbeLayer,
            ) -> AgentBuilder {
                let builder = builder.$layer(record.clone());
                let builder = steps.iter().cloned().fold(builder, AgentBuilder::$on);
                builder.$layer(probe.clone())
            }
        }
    )*};
}

chained! {
    ModelRequest, on_model, model_layer, says_one_thing;
    ToolRequest, on_tool, tool_layer, asks_a_tool;
    AgentRequest, on_agent, agent_layer, says_one_thing;
}

/// Runs an agent with these callbacks around one of its calls.
async fn run<R: Chained>(does: &[Does], phase: Phase, options: (bool, bool)) -> Cell {
    let (asked, notes) = (Log::default(), Log::default());
    let step = |(number, &does)| Step {
        number,
        does,
        phase,
        asked: asked.clone(),
        notes: notes.clone(),
    };
    let steps: Vec<_> = (1..).zip(does).map(step).collect();
    let (record, probe) = (RecordLayer::<R>::new(), ProbeLayer::new());
    let builder = Agent::builder(R::script(phase != Phase::OnError))
        .semantics(with_options(options.0, options.1))
        .tool(Tool::function("act", "Acts.", breaks_unless));
    let agent = R::chain(builder, &record, &steps, &probe).build().unwrap();

    let result = agent.run("?").await;

    let (outcome, failed) = match &record.calls()[0] {
        Ended::Done(response) => (R::text(response), false),
        Ended::Failed(error) => (error.message().to_owned(), true),
        other => panic!("{other:?}"),
    };
    // The model reads a tool's failure; any other ends the run.
    match result {
        Ok(response) if R::CALL == tower_agent::call::CallKind::Tool => {
            assert_eq!(response.text(), "done");
            let told = super::told(&response).remove(0);
            assert!(
                told.text().ends_with(&outcome) && told.is_error == failed,
                "{told:?}"
            );
        }
        Ok(response) => assert_eq!((response.text(), failed), (outcome.clone(), false)),
        Err(error) => assert_eq!((error.message(), failed), (&*outcome, true)),
    }
    let notes = notes.take().into_iter().collect();
    Cell {
        asked: asked.take(),
        notes,
        outcome,
        calls: probe.calls(),
    }
}

/// Every sequence of two callbacks, and every one of three that differ in what counts.
fn sequences() -> Vec<Vec<Does>> {
    let pairs = ALL
        .iter()
        .flat_map(|one| ALL.iter().map(|two| vec![*one, *two]));
    let few = [Nothing, Answers, Fails];
    let triples = few.iter().flat_map(|one| {
        few.iter()
            .flat_map(|two| few.iter().map(|three| vec![*one, *two, *three]))
    });
    pairs.chain(triples).collect()
}

async fn every_chain_follows_the_page<R: Chained>() {
    for options in [(false, false), (true, false), (false, true), (true, true)] {
        for phase in [Phase::Before, Phase::After, Phase::OnError] {
            for does in sequences() {
                let expected = page(&does, phase, options.0, options.1);
                let cell = run::<R>(&does, phase, options).await;
                assert_eq!(cell, expected, "{does:?} in {phase:?} with {options:?}");
            }
        }
    }
}

#[tokio::test]
async fn chains_around_a_model_call_decide_as_the_two_options_say() {
    every_chain_follows_the_page::<ModelRequest>().await;
}

#[tokio::test]
async fn chains_around_a_tool_call_decide_as_the_two_options_say() {
    every_chain_follows_the_page::<ToolRequest>().await;
}

#[tokio::test]
async fn chains_around_an_agent_decide_as_the_two_options_say() {
    every_chain_follows_the_page::<AgentRequest>().await;
}

/// The table above is made by rules; these cells are written out, so that a slip in both shows.
#[tokio::test]
async fn the_cells_that_people_get_wrong_are_as_written_out_here() {
    type Written = (&'static [Does], (bool, bool), &'static str, usize);
    let cells: [Written; 12] = [
        (&[Answers, Answers], (false, false), "R1", 1),
        (&[Answers, Answers], (false, true), "R2", 2),
        (&[Answers, Nothing], (false, true), "R1", 2),
        (&[Answers, Notes], (true, true), "R1", 2),
        (&[Fails, Fails], (true, false), "E1", 2),
        (&[Fails, Answers], (true, false), "E1", 2),
        (&[Fails, Answers, Nothing], (true, false), "E1", 2),
        (&[Fails, Answers], (false, true), "E1", 1),
        (&[Answers, Fails], (true, false), "R1", 1),
        (&[Answers, Fails], (false, true), "E2", 2),
        (&[Answers, Fails], (true, true), "E2", 2),
        (&[Panics, Answers], (true, true), "panicked: E1", 2),
    ];
    for (does, options, outcome, asked) in cells {
        for phase in [Phase::Before, Phase::After, Phase::OnError] {
            let cell = run::<ModelRequest>(does, phase, options).await;
            let found = (&*cell.outcome, cell.asked.len());
            assert_eq!(
                found,
                (outcome, asked),
                "{does:?} in {phase:?} with {options:?}"
            );
        }
    }
}
