//! Cases: the stack, the script, the reader. All of it prints as it is read.

use proptest::prelude::*;

/// The owner of a secret, which distinguishes it from the others'.
pub(crate) const OF_MODEL: &str = "mo@secret.example";
pub(crate) const OF_OTHER: &str = "ot@secret.example";
pub(crate) const OF_TOOL: &str = "to@secret.example";

/// One layer or callback, where it stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Item {
    Model(Around),
    Tool(Around),
    Agent(Around),
}

/// The layer around a call. Some go around a model or a tool only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Around {
    Retry {
        restart: bool,
    },
    Timeout,
    RateLimit {
        waits: bool,
    },
    Chaos {
        seed: u64,
    },
    CircuitBreaker,
    AdaptiveConcurrency,
    Watch,
    TowerTimeout,
    TowerRetry,
    TowerLimit,
    TowerShed,
    TowerBuffer,
    TowerHedge,
    TowerFilter,
    TowerMapError,
    TowerMapResponse,
    Budget {
        calls: u64,
        tokens: Option<u64>,
        finish: bool,
    },
    Redact {
        numbered: bool,
    },
    Cache,
    // The model's.
    Fallback {
        restart: bool,
    },
    TimeoutBetweenDeltas,
    GuardrailBefore(Check),
    GuardrailBeside(Check),
    GuardrailAfter(Check),
    ContextWindow {
        tokens: u64,
        summariser: Option<Summariser>,
    },
    ToolSearch,
    Hedge,
    Pool,
    Router,
    // The tools'.
    Approval,
    // The agent's.
    BudgetPart {
        calls: u64,
    },
}

/// The behaviour of an agent that summarises.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Summariser {
    Answers,
    AnswersLate,
    Fails,
    Aborts,
}

/// The behaviour of a guardrail's check.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Check {
    Passes,
    PassesLate,
    Trips,
    TripsLate,
    TripsWithAnswer,
    Aborts,
    Fails,
    Panics,
    Hangs,
}

impl Check {
    pub(crate) fn passes(self) -> bool {
        matches!(self, Self::Passes | Self::PassesLate)
    }
}

/// One answer of the model, and how it ends.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) says: Vec<Say>,
    pub(crate) ends: Ends,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Say {
    Words,
    Secret,
    Thought,
    SecretThought,
    Call(Do),
}

/// The model's call of a tool, and its outcome.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Do {
    Echo,
    EchoSecret,
    Leak,
    LeakAndFail,
    Slow,
    Hang,
    Fail,
    Panic,
    Wrong,
    Unknown,
    Pay,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ends {
    Well,
    Late,
    Fails { after: usize },
    FailsForGood { after: usize },
    Hangs { after: usize },
    Panics,
}

/// The caller that waits for the run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reader {
    /// Asks for the answer alone; lets go after so many seconds.
    Plain { drops_after: Option<u64> },
    /// Reads events, waits a minute behind one of them, lets go behind another.
    Stream {
        pauses_at: Option<usize>,
        drops_at: Option<usize>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Decides {
    Approves,
    Edits,
    Rejects,
}

#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Outermost first.
    pub(crate) stack: Vec<Item>,
    pub(crate) turns: Vec<Turn>,
    pub(crate) reader: Reader,
    pub(crate) decides: Decides,
    /// How often the model is not ready at first.
    pub(crate) pending_polls: usize,
    /// Characters of a delta.
    pub(crate) chunk: usize,
    /// The model or tool call in which the run is cancelled, counted from 0.
    pub(crate) stops_in: Option<usize>,
    /// The poll of the run, counted from 0, before which it is cancelled from outside.
    pub(crate) stops_at_poll: Option<usize>,
}

impl Case {
    pub(crate) fn model(&self) -> Vec<Around> {
        self.stack
            .iter()
            .filter_map(|item| match item {
                Item::Model(around) => Some(*around),
                _ => None,
            })
            .collect()
    }

    pub(crate) fn tool(&self) -> Vec<Around> {
        self.stack
            .iter()
            .filter_map(|item| match item {
                Item::Tool(around) => Some(*around),
                _ => None,
            })
            .collect()
    }

    pub(crate) fn agent(&self) -> Vec<Around> {
        self.stack
            .iter()
            .filter_map(|item| match item {
                Item::Agent(around) => Some(*around),
                _ => None,
            })
            .collect()
    }

    /// Returns whether the run may never end by itself.
    pub(crate) fn may_hang(&self) -> bool {
        let bounds = |stack: &[Around]| {
            stack.iter().any(|around| {
                use Around::{Timeout, TimeoutBetweenDeltas, TowerTimeout};
                matches!(around, Timeout | TimeoutBetweenDeltas | TowerTimeout)
            })
        };
        let model_hangs = self
            .turns
            .iter()
            .any(|turn| matches!(turn.ends, Ends::Hangs { .. }));
        let tool_hangs = self
            .turns
            .iter()
            .any(|turn| turn.says.contains(&Say::Call(Do::Hang)));
        !bounds(&self.agent())
            && (model_hangs && !bounds(&self.model()) || tool_hangs && !bounds(&self.tool()))
    }

    pub(crate) fn model_panics(&self) -> bool {
        self.turns.iter().any(|turn| turn.ends == Ends::Panics)
    }
}

/// Returns the layers that may stand around any call.
fn anywhere() -> impl Strategy<Value = Around> {
    prop_oneof![
        3 => any::<bool>().prop_map(|restart| Around::Retry { restart }),
        2 => Just(Around::Timeout),
        1 => any::<bool>().prop_map(|waits| Around::RateLimit { waits }),
        2 => any::<u64>().prop_map(|seed| Around::Chaos { seed }),
        1 => Just(Around::CircuitBreaker),
        1 => Just(Around::AdaptiveConcurrency),
        1 => Just(Around::Watch),
        1 => Just(Around::TowerTimeout),
        1 => Just(Around::TowerRetry),
        1 => Just(Around::TowerLimit),
        1 => Just(Around::TowerShed),
        1 => Just(Around::TowerBuffer),
        1 => Just(Around::TowerFilter),
        1 => Just(Around::TowerMapError),
    ]
}

fn on_call() -> impl Strategy<Value = Around> {
    let tokens = prop::option::of((0..8u64).prop_map(|n| 10 * n));
    prop_oneof![
        1 => Just(Around::TowerHedge),
        1 => Just(Around::TowerMapResponse),
        2 => Just(Around::Cache),
        2 => (0..5u64, tokens, any::<bool>())
            .prop_map(|(calls, tokens, finish)| Around::Budget { calls, tokens, finish }),
        2 => any::<bool>().prop_map(|numbered| Around::Redact { numbered }),
    ]
}

fn check() -> impl Strategy<Value = Check> {
    use Check::{
        Aborts, Fails, Hangs, Panics, Passes, PassesLate, Trips, TripsLate, TripsWithAnswer,
    };
    prop::sample::select(vec![
        Passes,
        Passes,
        PassesLate,
        PassesLate,
        Trips,
        TripsLate,
        TripsWithAnswer,
        Aborts,
        Fails,
        Panics,
        Hangs,
    ])
}

fn summariser() -> impl Strategy<Value = Summariser> {
    use Summariser::{Aborts, Answers, AnswersLate, Fails};
    prop::sample::select(vec![Answers, Answers, AnswersLate, Fails, Aborts])
}

fn on_agent() -> impl Strategy<Value = Item> {
    let part = (0..5u64).prop_map(|calls| Around::BudgetPart { calls });
    prop_oneof![3 => anywhere(), 1 => part].prop_map(Item::Agent)
}

pub(crate) fn on_model() -> impl Strategy<Value = Item> {
    let only = prop_oneof![
        2 => any::<bool>().prop_map(|restart| Around::Fallback { restart }),
        1 => Just(Around::TimeoutBetweenDeltas),
        1 => check().prop_map(Around::GuardrailBefore),
        1 => check().prop_map(Around::GuardrailBeside),
        1 => check().prop_map(Around::GuardrailAfter),
        3 => (10..200u64, prop::option::of(summariser()))
            .prop_map(|(tokens, summariser)| Around::ContextWindow { tokens, summariser }),
        1 => Just(Around::ToolSearch),
        2 => Just(Around::Hedge),
        1 => Just(Around::Pool),
        1 => Just(Around::Router),
    ];
    prop_oneof![10 => anywhere(), 6 => on_call(), 8 => only].prop_map(Item::Model)
}

pub(crate) fn on_tool() -> impl Strategy<Value = Item> {
    prop_oneof![10 => anywhere(), 6 => on_call(), 4 => Just(Around::Approval)].prop_map(Item::Tool)
}

pub(crate) fn on_any() -> impl Strategy<Value = Item> {
    prop_oneof![4 => on_model(), 3 => on_tool(), 2 => on_agent()]
}

fn turn() -> impl Strategy<Value = Turn> {
    use Do::{Echo, EchoSecret, Fail, Hang, Leak, LeakAndFail, Panic, Pay, Slow, Unknown, Wrong};
    let calls = prop::sample::select(vec![
        Echo,
        Echo,
        EchoSecret,
        Leak,
        LeakAndFail,
        Slow,
        Hang,
        Fail,
        Panic,
        Wrong,
        Unknown,
        Pay,
        Pay,
    ]);
    let says = prop_oneof![
        3 => Just(Say::Words),
        2 => Just(Say::Secret),
        1 => Just(Say::Thought),
        1 => Just(Say::SecretThought),
        4 => calls.prop_map(Say::Call),
    ];
    let ends = prop_oneof![
        8 => Just(Ends::Well),
        2 => Just(Ends::Late),
        4 => (0..12usize).prop_map(|after| Ends::Fails { after }),
        1 => (0..12usize).prop_map(|after| Ends::FailsForGood { after }),
        2 => (0..12usize).prop_map(|after| Ends::Hangs { after }),
        1 => Just(Ends::Panics),
    ];
    (prop::collection::vec(says, 1..5), ends).prop_map(|(says, ends)| Turn { says, ends })
}

fn reader() -> impl Strategy<Value = Reader> {
    let at = || prop::option::weighted(0.3, 1..25usize);
    prop_oneof![
        1 => prop::option::weighted(0.3, 0..20u64).prop_map(|drops_after| Reader::Plain { drops_after }),
        4 => (at(), at()).prop_map(|(pauses_at, drops_at)| Reader::Stream { pauses_at, drops_at }),
    ]
}

/// A case in which the run is cancelled before one of its polls.
pub(crate) fn stopped(item: impl Strategy<Value = Item>) -> impl Strategy<Value = Case> {
    (case(item), 0..40usize).prop_map(|(case, poll)| Case {
        stops_in: None,
        stops_at_poll: Some(poll),
        ..case
    })
}

pub(crate) fn case(item: impl Strategy<Value = Item>) -> impl Strategy<Value = Case> {
    let stack = prop::collection::vec(item, 0..=6);
    let turns = prop::collection::vec(turn(), 0..5);
    let decides = prop::sample::select(vec![Decides::Approves, Decides::Edits, Decides::Rejects]);
    let stops_in = prop::option::weighted(0.3, 0..8usize);
    (
        stack,
        turns,
        reader(),
        decides,
        0..3usize,
        1..6usize,
        stops_in,
    )
        .prop_map(
            |(stack, turns, reader, decides, pending_polls, chunk, stops_in)| Case {
                stack,
                turns,
                reader,
                decides,
                pending_polls,
                chunk,
                stops_in,
                stops_at_poll: None,
            },
        )
}
