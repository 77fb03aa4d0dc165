use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{
    BoxFuture, Either, FutureExt, Shared, TryFutureExt, WeakShared, select,
};
use futures_util::stream::StreamExt;
use tokio::time::Instant;
use tower::Service;

use super::key::{CacheKey, CallKey, FoundNames, Identity};
use super::log::{Log, Position, Step};
use super::replay::Cacheable;
use crate::lock::lock;
use crate::ours::ours;
use tower_agent::RunContext;
use tower_agent::call::{Attempts, Reached, Request};
use tower_agent::error::{BoxError, Error, ErrorKind, Result, panic_message};
use tower_agent::stream::{Attempt, EventStream};

/// A call that is driven by everybody who follows it. It goes on as long as one of them does.
type SharedCall<T> = Shared<BoxFuture<'static, Result<T>>>;

/// The responses of a layer and its clones, and the calls that run.
pub(super) struct Responses<R: Request> {
    stored: moka::sync::Cache<CacheKey, Stored<R::Response>>,
    /// Until when a response is replayed.
    time_to_live: Duration,
    flights: Mutex<Flights<R>>,
}

struct Flights<R: Request> {
    by_key: HashMap<CacheKey, RunningCall<R>>,
    begun: u64,
}

/// A call that runs, for those who come later.
struct RunningCall<R: Request> {
    number: u64,
    call: WeakShared<BoxFuture<'static, Result<R::Response>>>,
    log: Arc<Log>,
    shared: Arc<Shareable>,
}

#[derive(Clone)]
struct Stored<T> {
    response: T,
    /// By the clock of `tokio`, which tests can pause.
    until: Option<Instant>,
}

/// The state of a call for those who follow it.
struct Shareable {
    /// The one payment for the call was made.
    is_paid: AtomicBool,
    /// The one who began the call was dropped, so that somebody else pays.
    is_left: AtomicBool,
    /// The end of the call has names of the conversation in which it was made.
    is_private: AtomicBool,
    /// The run in which it was made.
    context: RunContext,
    /// The attempts at it.
    attempts: Attempts,
    /// It has ended, or was dropped by all.
    is_over: AtomicBool,
}

/// A call that runs, for one of those who follow it.
struct Flight<T: Clone> {
    call: SharedCall<T>,
    log: Arc<Log>,
    // Dropped after the call, which it may have been the last to follow.
    passenger: Passenger,
}

/// One of those who follow a call.
struct Passenger {
    shared: Arc<Shareable>,
    is_leader: bool,
    attempts: Attempts,
    context: RunContext,
}

/// The way in which a call is answered.
enum Found<R: Request, S> {
    /// From the store. The service is for the case that it has names of this conversation.
    Stored(R::Response, S),
    /// By a call that this one has begun.
    Begun(Flight<R::Response>),
    /// By a call that runs. The service is for the case that its run ends, or that its end is of no
    /// use in this conversation.
    Running(Flight<R::Response>, S),
}

/// The end of a call that was followed.
struct Followed<T: Clone> {
    flight: Flight<T>,
    result: Result<T>,
    /// The attempt at streaming it, if anything was streamed.
    attempt: Option<Attempt>,
}

impl<R: Cacheable> Responses<R> {
    pub(super) fn new(entries: u64, time_to_live: Duration) -> Self {
        Self {
            stored: moka::sync::Cache::builder()
                .max_capacity(entries)
                .time_to_live(time_to_live.min(MOST))
                .build(),
            time_to_live,
            flights: Mutex::new(Flights {
                by_key: HashMap::new(),
                begun: 0,
            }),
        }
    }

    /// Returns the number of responses that are kept.
    pub(super) fn kept(&self) -> u64 {
        // The store counts what has come and gone once it has looked.
        self.stored.run_pending_tasks();
        self.stored.entry_count()
    }

    /// Returns the number of calls that run.
    pub(super) fn running(&self) -> usize {
        lock(&self.flights).by_key.len()
    }

    /// Answers a call: from the store, from a call that runs, or by calling `inner`.
    pub(super) async fn answer<S>(
        self: Arc<Self>,
        key: CallKey,
        inner: S,
        mut request: R,
    ) -> Result<R::Response>
    where
        S: Service<R, Response = R::Response, Error: Into<BoxError>> + Send + 'static,
        S::Future: Send + 'static,
    {
        if let Some(attempts) = request.attempts() {
            // What reaches a target has an entry inside, or none if it is that of others.
            attempts.defer();
        }
        let mut inner = inner;
        loop {
            match self.find(&key, inner, &mut request) {
                Found::Stored(response, _) if is_readable(&key, &request, &response) => {
                    return request.renew(&response, None, false).await;
                }
                Found::Stored(_, unused) => return make(unused, request).await,
                Found::Begun(flight) => {
                    let followed = flight.follow(&request).await?;
                    return followed.respond(&request).await;
                }
                Found::Running(flight, unused) => {
                    let followed = flight.follow(&request).await?;
                    if followed.is_of_another_run() {
                        inner = unused;
                        continue;
                    }
                    let is_private = followed.flight.passenger.is_private();
                    match &followed.result {
                        Err(_) if !is_private => {}
                        Ok(response) if !is_private && is_readable(&key, &request, response) => {}
                        // Not once more by way of the others: each would wait for all before it.
                        _ => return make(unused, request).await,
                    }
                    return followed.respond(&request).await;
                }
            }
        }
    }

    fn find<S>(self: &Arc<Self>, key: &CallKey, inner: S, request: &mut R) -> Found<R, S>
    where
        S: Service<R, Response = R::Response, Error: Into<BoxError>> + Send + 'static,
        S::Future: Send + 'static,
    {
        let mut flights = lock(&self.flights);
        let running = flights.by_key.get(&key.key);
        if let Some(flight) = running.and_then(|running| running.join(request)) {
            return Found::Running(flight, inner);
        }
        // Under the lock: a call that ends is stored before it is removed.
        if let Some(stored) = self.stored.get(&key.key)
            && stored.until.is_none_or(|until| Instant::now() < until)
        {
            return Found::Stored(stored.response, inner);
        }
        flights.begun += 1;
        let number = flights.begun;
        let log = Arc::new(Log::new());
        let (mut upstream, events) = request.clone().watched();
        let attempts = upstream.attempts().map(Attempts::detach);
        let shared = Arc::new(Shareable {
            is_paid: AtomicBool::new(false),
            is_left: AtomicBool::new(false),
            is_private: AtomicBool::new(false),
            context: request.context().clone(),
            attempts: attempts.unwrap_or_default(),
            is_over: AtomicBool::new(false),
        });
        let landing = Landing {
            responses: self.clone(),
            key: key.clone(),
            request: upstream.clone(),
            shared: shared.clone(),
            number,
        };
        let call = run(inner, upstream, events, log.clone(), landing);
        let call = call.boxed().shared();
        if let Some(weak) = call.downgrade() {
            let entry = RunningCall {
                number,
                call: weak,
                log: log.clone(),
                shared: shared.clone(),
            };
            flights.by_key.insert(key.key, entry);
        }
        Found::Begun(Flight {
            call,
            log,
            passenger: Passenger::new(shared, request, true),
        })
    }

    fn store(&self, key: CacheKey, response: &R::Response) {
        if R::is_kept(response) {
            let until = Instant::now().checked_add(self.time_to_live);
            let response = response.clone();
            self.stored.insert(key, Stored { response, until });
        }
    }
}

/// The longest time that the store accepts: a thousand years.
const MOST: Duration = Duration::from_secs(1_000 * 365 * 24 * 3_600);

/// Makes a call for nobody else.
async fn make<S, R>(mut inner: S, mut request: R) -> Result<R::Response>
where
    R: Cacheable,
    S: Service<R, Response = R::Response, Error: Into<BoxError>>,
{
    let mut reached = Reached::begin(&mut request);
    let mut result = inner.call(request).await.map_err(ours);
    reached.end::<R>(&mut result);
    result
}

/// Makes the call, and notes its events.
async fn run<S, R>(
    mut inner: S,
    mut request: R,
    events: Option<EventStream>,
    log: Arc<Log>,
    landing: Landing<R>,
) -> Result<R::Response>
where
    R: Cacheable,
    S: Service<R, Response = R::Response, Error: Into<BoxError>> + Send + 'static,
    S::Future: Send + 'static,
{
    let mut reached = Reached::begin(&mut request);
    let call = inner.call(request);
    let call = call.map_err(ours);
    // A panic would reach everybody who follows, as one of their own.
    let call = AssertUnwindSafe(call).catch_unwind();
    let call = call.map(|result| {
        result.unwrap_or_else(|panic| {
            let message = format!("the call panicked: {}", panic_message(&*panic));
            Err(Error::new(ErrorKind::Other, message))
        })
    });
    let mut call = pin!(call);
    let mut result = match events {
        None => call.await,
        Some(mut events) => {
            let result = loop {
                match select(call.as_mut(), events.next()).await {
                    Either::Left((result, _)) => break result,
                    Either::Right((Some(event), _)) => log.add(event.kind),
                    Either::Right((None, call)) => break call.await,
                }
            };
            // Events that it has sent and that are still on their way. Not to the end: a part of
            // the service may keep the sink.
            while let Some(Some(event)) = events.next().now_or_never() {
                log.add(event.kind);
            }
            result
        }
    };
    reached.end::<R>(&mut result);
    landing.end(&result);
    result
}

/// Returns whether a response says in this conversation what it has said where it was made.
fn is_readable<R: Cacheable>(key: &CallKey, request: &R, response: &R::Response) -> bool {
    let mut found = FoundNames::new(request.context());
    R::find_names(response, &mut found).is_ok() && key.covers(&found)
}

/// Removes a call that has ended or was dropped.
struct Landing<R: Cacheable> {
    responses: Arc<Responses<R>>,
    key: CallKey,
    request: R,
    shared: Arc<Shareable>,
    number: u64,
}

impl<R: Cacheable> Landing<R> {
    /// Stores the response of the call, if it may be replayed anywhere.
    fn end(self, result: &Result<R::Response>) {
        let is_shareable = self.is_shareable(result);
        let is_private = &self.shared.is_private;
        is_private.store(!is_shareable, Ordering::Release);
        if let Ok(response) = result
            && is_shareable
        {
            self.responses.store(self.key.key, response);
        }
    }

    /// Returns whether the end of the call is of use in other conversations.
    fn is_shareable(&self, result: &Result<R::Response>) -> bool {
        let context = self.request.context();
        if context.names().is_empty() {
            return true;
        }
        let found = || {
            // In the request as well: a part of the run may have declared its names in the call.
            let mut identity = Identity::new(context);
            self.request.identify(&mut identity)?;
            let mut found = identity.into_names();
            match result {
                Ok(response) => R::find_names(response, &mut found)?,
                Err(error) => found.look(&format!("{error:?} {:?}", error.model_message()))?,
            }
            Ok::<_, Error>(found)
        };
        // To find names is code of others, whose panic would reach everybody who follows.
        let found = catch_unwind(AssertUnwindSafe(found));
        found.is_ok_and(|found| found.is_ok_and(|found| self.key.covers(&found)))
    }
}

impl<R: Cacheable> Drop for Landing<R> {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        let by_key = &mut lock(&self.responses.flights).by_key;
        // Another may have begun since.
        if by_key
            .get(&self.key.key)
            .is_some_and(|entry| entry.number == self.number)
        {
            by_key.remove(&self.key.key);
        }
    }
}

impl<R: Request> RunningCall<R> {
    fn join(&self, request: &mut R) -> Option<Flight<R::Response>> {
        Some(Flight {
            call: self.call.upgrade()?,
            log: self.log.clone(),
            passenger: Passenger::new(self.shared.clone(), request, false),
        })
    }
}

impl<T: Clone + Send + Sync + 'static> Flight<T> {
    /// Streams the call to its own consumer from the beginning, until it ends.
    ///
    /// # Errors
    ///
    /// Fails if the consumer cannot be reached, whatever becomes of the call.
    async fn follow<R>(self, request: &R) -> Result<Followed<T>>
    where
        R: Cacheable<Response = T>,
    {
        let mut call = self.call.clone();
        let mut changes = self.log.changes();
        let mut position = Position::default();
        let mut attempt = None;
        let mut ended = None;
        loop {
            while let Some(step) = self.log.next(&mut position) {
                match (step, request.sink()) {
                    // A name could be in the pieces to come, when those so far have been read.
                    _ if !self.passenger.is_live(request) => attempt = None,
                    (Step::Piece(piece), Some(sink)) => {
                        let attempt = attempt.get_or_insert_with(|| sink.open_replay());
                        attempt.send(piece).await?;
                    }
                    (Step::Discarded, _) => attempt = None,
                    (Step::Piece(_), None) => {}
                }
            }
            // The pieces before the result: they are complete once it is there.
            if let Some(result) = ended.take() {
                return Ok(Followed {
                    flight: self,
                    result,
                    attempt,
                });
            }
            if let Either::Left((result, _)) = select(&mut call, pin!(changes.changed())).await {
                ended = Some(result);
            }
        }
    }
}

impl Passenger {
    fn new<R: Request>(shared: Arc<Shareable>, request: &mut R, is_leader: bool) -> Self {
        Self {
            shared,
            is_leader,
            attempts: request.attempts().cloned().unwrap_or_default(),
            context: request.context().clone(),
        }
    }

    /// Pays for the call, unless somebody else does.
    fn pays(&self) -> bool {
        let shared = &*self.shared;
        let may_pay = self.is_leader || shared.is_left.load(Ordering::Acquire);
        let pays = may_pay && !shared.is_paid.swap(true, Ordering::AcqRel);
        if pays {
            shared.attempts.charge_to(&self.attempts, &self.context);
        }
        pays
    }

    /// Returns whether the pieces can be shown as they come.
    fn is_live(&self, request: &impl Request) -> bool {
        let mut contexts = [&self.shared.context, request.context()].into_iter();
        self.is_leader || contexts.all(|context| context.names().is_empty())
    }

    /// Returns whether the end is of no use outside the conversation in which the call was made.
    fn is_private(&self) -> bool {
        self.shared.is_private.load(Ordering::Acquire)
    }
}

impl Drop for Passenger {
    fn drop(&mut self) {
        if self.is_leader {
            self.shared.is_left.store(true, Ordering::Release);
        }
        // What the call has used that nobody waits for any more.
        if self.shared.is_over.load(Ordering::Acquire) {
            self.pays();
        }
    }
}

impl<T: Clone + Send + Sync + 'static> Followed<T> {
    /// Returns whether the run of somebody else has ended, and not the call.
    fn is_of_another_run(&self) -> bool {
        let error = self.result.as_ref().err();
        error.is_some_and(|error| error.is_ending() || error.kind() == ErrorKind::Cancelled)
    }

    async fn respond<R>(self, request: &R) -> Result<T>
    where
        R: Cacheable<Response = T>,
    {
        let Self {
            flight,
            result,
            attempt,
        } = self;
        let pays = flight.passenger.pays();
        let mut response = result?;
        let streamed = match attempt {
            Some(attempt) => Some(attempt.finish().await?),
            None => None,
        };
        let mut renewed = request.renew(&response, streamed, pays).await?;
        // The copy says as well that it was counted.
        let is_counted = !R::count(&mut response);
        if is_counted {
            R::count(&mut renewed);
        }
        Ok(renewed)
    }
}

impl<R: Request> fmt::Debug for Responses<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responses")
            .field("stored", &self.stored.entry_count())
            .field("running", &lock(&self.flights).by_key.len())
            .finish()
    }
}
