//! A run that somebody ends while it works, at any moment of it: what starts afterwards, what was
//! paid, and what it says when it goes on.

use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use futures::future::{Either, select};
use futures::{FutureExt, StreamExt};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tower::timeout::error::Elapsed;
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_agent::agent::AgentService;
use tower_agent::callback::Bundle;
use tower_agent::message::ToolCall;
use tower_agent::model::BoxModel;
use tower_agent::stream::{EventKind, Observations, observer};
use tower_agent::{
    Agent, AgentBuilder, AgentRequest, AgentResponse, CancellationToken, Checkpoint, Error,
    ErrorKind, Message, ModelRequest, ModelResponse, Request, Tool,
};

/// The part of a program that ends a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    Token,
    /// Somebody else has what the run has its lease for.
    Lease,
    /// Its time is over, which nobody renews.
    Deadline,
    /// The one who waited for it no longer does.
    Drop,
    /// tower's limit of time.
    Limit,
}

impl Ends {
    pub const ALL: [Self; 5] = [
        Self::Token,
        Self::Lease,
        Self::Deadline,
        Self::Drop,
        Self::Limit,
    ];

    /// Returns the kind of the error that the run fails with, if somebody hears of it.
    fn told(self) -> Option<ErrorKind> {
        match self {
            Self::Token => Some(ErrorKind::Cancelled),
            Self::Lease | Self::Deadline => Some(ErrorKind::Conflict),
            Self::Drop | Self::Limit => None,
        }
    }
}

/// The moment of the end.
#[derive(Clone, Copy, Debug)]
pub enum When {
    /// After this time, which the clock of a test has at once.
    After(Duration),
    /// At this moment of the run, counted from 0: a model or a tool starts or ends.
    At(usize),
    Never,
}

/// The work of a run: its models and tools, which take their time.
#[derive(Clone)]
pub struct World(Arc<WorldInner>);

struct WorldInner {
    /// The calls that have started, and the times.
    starts: Mutex<Vec<(Instant, String)>>,
    moments: AtomicUsize,
    when: When,
    reached: Notify,
    ending: Mutex<Option<Ending>>,
    takes_time: bool,
    observations: Mutex<Vec<Observations>>,
}

/// The function that ends a run.
type Ending = Box<dyn FnOnce() + Send>;

/// The time of a model call, in milliseconds.
pub const MODEL: u64 = 100;
/// The time of a tool call, in milliseconds.
pub const TOOL: u64 = 50;

impl World {
    pub fn new(when: When) -> Self {
        Self(Arc::new(WorldInner {
            starts: Mutex::default(),
            moments: AtomicUsize::new(0),
            when,
            reached: Notify::new(),
            ending: Mutex::default(),
            // Of a test whose moments are counted, the clock may be a real one.
            takes_time: matches!(when, When::After(_)),
            observations: Mutex::default(),
        }))
    }

    fn start(&self, what: String) {
        self.0.starts.lock().unwrap().push((Instant::now(), what));
        self.moment();
    }

    fn moment(&self) {
        let moment = self.0.moments.fetch_add(1, Ordering::SeqCst);
        if matches!(self.0.when, When::At(at) if at == moment) {
            self.end();
        }
    }

    fn end(&self) {
        if let Some(end) = self.0.ending.lock().unwrap().take() {
            end();
        }
        self.0.reached.notify_one();
    }

    async fn work(&self, time: u64) {
        if self.0.takes_time {
            sleep(Duration::from_millis(time)).await;
        }
        self.moment();
    }

    /// Returns how many moments there were.
    pub fn moments(&self) -> usize {
        self.0.moments.load(Ordering::SeqCst)
    }

    pub fn starts(&self) -> Vec<String> {
        let starts = self.0.starts.lock().unwrap();
        starts.iter().map(|(_, what)| what.clone()).collect()
    }

    /// Returns how many payments have begun.
    pub fn paid(&self) -> usize {
        let starts = self.starts();
        starts.iter().filter(|what| *what == "tool pay").count()
    }

    /// A model that calls the tools of its agent, and then answers. `before` says what comes of a
    /// call of it, by its number.
    pub fn model(
        &self,
        before: impl Fn(usize) -> ControlFlow<Error, u64> + Clone + Send + Sync + 'static,
    ) -> BoxModel {
        let world = self.clone();
        let calls = Arc::new(AtomicUsize::new(0));
        BoxModel::within_runs(service_fn(move |request: ModelRequest| {
            let world = world.clone();
            let before = before(calls.fetch_add(1, Ordering::SeqCst));
            async move {
                world.start(format!("model of {}", request.context().path()));
                let time = match before {
                    ControlFlow::Continue(time) => time,
                    ControlFlow::Break(error) => return Err(error),
                };
                world.work(time).await;
                let has_results = request
                    .messages()
                    .iter()
                    .any(|message| message.tool_results().next().is_some());
                if has_results || request.tools().is_empty() {
                    return Ok(ModelResponse::from_text("done"));
                }
                let tools = request.tools().iter();
                let calls = tools.map(|tool| ToolCall::new(tool.name(), tool.name(), json!({})));
                Ok::<_, Error>(ModelResponse::from_tool_calls(calls))
            }
        }))
    }

    fn tool(&self, name: &'static str) -> Tool {
        let world = self.clone();
        Tool::function(name, "", move |_: Value| {
            let world = world.clone();
            async move {
                world.start(format!("tool {name}"));
                world.work(TOOL).await;
                "done"
            }
        })
    }

    /// An agent that pays.
    pub fn agent(&self, model: BoxModel) -> AgentBuilder {
        let (observer, observations) = observer(10_000);
        self.0.observations.lock().unwrap().push(observations);
        Agent::builder(model)
            .tools([self.tool("report"), self.tool("pay")])
            .global_callbacks(Bundle::new().observer(observer))
    }

    /// Returns how many ends of a run were told that has started.
    fn told_ends(&self) -> (usize, usize) {
        let (mut started, mut finished) = (0, 0);
        for observations in &mut *self.0.observations.lock().unwrap() {
            while let Some(Some(observation)) = observations.next().now_or_never() {
                let event = observation.event;
                if event.invocation.caller.is_some() {
                    continue;
                }
                started += usize::from(matches!(event.kind, EventKind::AgentStarted));
                finished += usize::from(matches!(event.kind, EventKind::AgentFinished { .. }));
            }
        }
        (started, finished)
    }

    /// Runs a request until somebody ends it. Returns `None` if nobody hears of its end.
    async fn run(
        &self,
        agent: impl AgentService,
        request: AgentRequest,
        ends: Ends,
    ) -> Option<Result<AgentResponse, Error>> {
        let token = CancellationToken::new();
        let request = match ends {
            Ends::Token => request.with_cancellation(token.clone()),
            _ => request,
        };
        let lease = request.context().lease().clone();
        let ending: Ending = match ends {
            Ends::Token => Box::new(move || token.cancel()),
            Ends::Lease => Box::new(move || lease.end()),
            Ends::Deadline => Box::new(move || lease.renew(SystemTime::now())),
            Ends::Drop | Ends::Limit => Box::new(|| ()),
        };
        *self.0.ending.lock().unwrap() = Some(ending);
        if let (Ends::Limit, When::After(limit)) = (ends, self.0.when) {
            let limited = ServiceBuilder::new().timeout(limit).service(agent);
            let result = limited.oneshot(request).await;
            return match result {
                Err(error) if error.is::<Elapsed>() => None,
                result => Some(result.map_err(Error::from)),
            };
        }
        let ended = async {
            if let When::After(time) = self.0.when {
                sleep(time).await;
                self.end();
            }
            self.0.reached.notified().await;
        };
        let result = match select(Box::pin(agent.oneshot(request)), pin!(ended)).await {
            Either::Left((result, _)) => result,
            Either::Right(_) if ends == Ends::Drop => return None,
            Either::Right(((), run)) => run.await,
        };
        Some(result.map_err(|error| Error::from(error.into())))
    }
}

/// Ends a run at each of its moments, in every way: nothing starts afterwards, one end is told, and
/// what is paid is paid once or told as unknown, also where the run goes on.
///
/// `begin` makes the agent, and its request. `again` lets the run go on, from a checkpoint or from
/// what is stored, or returns `None` if nobody can. If the run `is_timed`, by the paused clock of
/// the test, its moments are all of its time; else those where a model or a tool starts or ends.
pub async fn check<S: AgentService>(
    name: &str,
    ways: &[Ends],
    is_timed: bool,
    begin: impl AsyncFn(&World) -> (S, AgentRequest),
    again: impl AsyncFn(&S, Option<Checkpoint>) -> Option<Result<AgentResponse, Error>>,
) {
    let moments = {
        let world = World::new(if is_timed {
            When::After(Duration::MAX)
        } else {
            When::Never
        });
        let (agent, request) = begin(&world).await;
        let begun = Instant::now();
        let result = agent.oneshot(request).await;
        let response = result.map_err(|error| Error::from(error.into())).unwrap();
        assert_eq!(
            (response.text().as_str(), world.paid()),
            ("done", 1),
            "{name}"
        );
        if is_timed {
            // Between those at which something happens.
            let times = (5..begun.elapsed().as_millis() as u64).step_by(10);
            times
                .map(|time| When::After(Duration::from_millis(time)))
                .collect()
        } else {
            (0..world.moments()).map(When::At).collect::<Vec<_>>()
        }
    };
    let mut ended = 0;
    for (&ends, &when) in ways
        .iter()
        .flat_map(|ends| moments.iter().map(move |when| (ends, when)))
    {
        let world = World::new(when);
        let (agent, request) = begin(&world).await;
        // Forgets the ends of the runs before, if it goes on with one.
        world.told_ends();
        let place = || format!("{name}, {ends:?}, {when:?}: {:?}", world.starts());
        let begun = Instant::now();
        let result = world.run(agent.clone(), request, ends).await;

        let first = world.starts();
        if let When::After(time) = when {
            let starts = world.0.starts.lock().unwrap().clone();
            let is_late = |(start, _): &(Instant, String)| *start > begun + time;
            assert!(!starts.iter().any(is_late), "{}", place());
        }
        let (started, finished) = world.told_ends();
        assert_eq!(started, finished, "{}", place());
        assert_eq!(finished, 1, "{}", place());
        let checkpoint = match result {
            // It was not in time to keep anything from starting.
            Some(Ok(response)) => {
                assert_eq!(
                    (response.text().as_str(), world.paid()),
                    ("done", 1),
                    "{}",
                    place()
                );
                continue;
            }
            Some(Err(error)) => {
                assert_eq!(Some(error.kind()), ends.told(), "{}: {error}", place());
                error.checkpoint().cloned()
            }
            None => None,
        };
        ended += 1;
        let Some(response) = again(&agent, checkpoint).await else {
            assert!(world.paid() <= 1, "{}", place());
            continue;
        };
        let response = response.unwrap_or_else(|error| panic!("{}: {error}", place()));
        assert_eq!(
            response.text(),
            "done",
            "{}: {:?}",
            place(),
            response.interrupts()
        );
        let results = response.messages().iter().flat_map(Message::tool_results);
        let is_unknown = results
            .filter(|result| &*result.name == "pay")
            .any(|result| result.text().contains("unknown"));
        let paid_before = first.iter().filter(|what| *what == "tool pay").count();
        if is_unknown {
            assert_eq!((paid_before, world.paid()), (1, 1), "{}", place());
        } else {
            assert_eq!(world.paid(), 1, "{}", place());
        }
    }
    // Else there was nothing to see.
    assert!(2 * ended > ways.len() * moments.len(), "{name}: {ended}");
}

/// Lets a run go on from its checkpoint.
pub async fn resume(
    agent: &impl AgentService,
    checkpoint: Option<Checkpoint>,
) -> Option<Result<AgentResponse, Error>> {
    let result = agent
        .clone()
        .oneshot(AgentRequest::resume(checkpoint?))
        .await;
    Some(result.map_err(|error| Error::from(error.into())))
}
