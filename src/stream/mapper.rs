use std::sync::Arc;
use std::task::{Context, Poll};

use super::delta::Delta;
use crate::error::{Error, ErrorKind, Result};
use crate::panic::catch;

/// Processes a model's deltas before the consumer sees them: it may observe, change, drop, expand,
/// buffer or delay them.
///
/// A mapper is created for every attempt, by the factory that a callback passes to
/// [`ModelRequest::map_deltas`](crate::ModelRequest::map_deltas) in its `before`. It changes what
/// is streamed, never the response: the response that `after` sees is the model's own. A guard that
/// must hide something does both. If the two differ at the end, the stream emits a
/// [replacement](super::EventKind::ResponseReplaced) and then the response.
///
/// ```
/// use tower_agent::stream::{Delta, Mapper};
/// use tower_agent::Result;
///
/// /// Emits whole lines only.
/// #[derive(Default)]
/// struct Lines {
///     held: String,
/// }
///
/// impl Mapper for Lines {
///     fn map(&mut self, delta: Delta, out: &mut Vec<Delta>) -> Result<()> {
///         let Delta::Text(text) = delta else {
///             out.push(delta);
///             return Ok(());
///         };
///         self.held.push_str(&text);
///         if let Some(end) = self.held.rfind('\n') {
///             out.push(Delta::Text(self.held.drain(..=end).collect()));
///         }
///         Ok(())
///     }
///
///     fn flush(&mut self, out: &mut Vec<Delta>) -> Result<()> {
///         out.push(Delta::Text(std::mem::take(&mut self.held)));
///         Ok(())
///     }
/// }
/// ```
pub trait Mapper: Send + 'static {
    /// Returns ready when the next delta may come or the attempt may end; while it is pending, the
    /// model waits. Defaults to ready.
    ///
    /// A guard can wait here for a verdict.
    ///
    /// # Errors
    ///
    /// An error fails the attempt.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let _ = cx;
        Poll::Ready(Ok(()))
    }

    /// Appends to `out` the deltas to emit for this delta and for those held back.
    ///
    /// # Errors
    ///
    /// An error fails the attempt.
    fn map(&mut self, delta: Delta, out: &mut Vec<Delta>) -> Result<()>;

    /// Ends the attempt: appends to `out` the deltas that were held back. Defaults to none.
    ///
    /// # Errors
    ///
    /// An error fails the attempt.
    fn flush(&mut self, out: &mut Vec<Delta>) -> Result<()> {
        let _ = out;
        Ok(())
    }
}

/// Creates a mapper from a function that returns the deltas to emit for each delta, as an `Option`,
/// a `Vec` or any other iterator.
///
/// Change the response in the same way: a stream whose response differs ends with the whole
/// response in place of the deltas.
///
/// ```
/// use tower_agent::callback::before_model;
/// use tower_agent::stream::{Delta, map_fn};
///
/// let loud = before_model(|request| {
///     request.map_deltas(|| {
///         map_fn(|delta| match delta {
///             Delta::Text(text) => Some(Delta::Text(text.to_uppercase())),
///             other => Some(other),
///         })
///     });
/// });
/// # drop(loud);
/// ```
pub fn map_fn<F, I>(map: F) -> impl Mapper
where
    F: FnMut(Delta) -> I + Send + 'static,
    I: IntoIterator<Item = Delta>,
{
    MapFn(map)
}

struct MapFn<F>(F);

impl<F, I> Mapper for MapFn<F>
where
    F: FnMut(Delta) -> I + Send + 'static,
    I: IntoIterator<Item = Delta>,
{
    fn map(&mut self, delta: Delta, out: &mut Vec<Delta>) -> Result<()> {
        out.extend((self.0)(delta));
        Ok(())
    }
}

/// Creates the mapper of one attempt. A retry starts with a fresh one, without text held back.
type Factory = Arc<dyn Fn() -> Box<dyn Stage> + Send + Sync>;

/// The mappers of one band, inside those of the bands around it.
#[derive(Clone, Default)]
pub(super) struct Frame {
    factories: Vec<Factory>,
    outer: Option<Arc<Frame>>,
}

impl Frame {
    /// Starts a new band: mappers added from here on belong to it.
    pub(super) fn begin(frames: &mut Option<Arc<Self>>) {
        // A band without mappers needs no frame, and most bands have none.
        if frames
            .as_ref()
            .is_some_and(|frame| !frame.factories.is_empty())
        {
            *frames = Some(Arc::new(Self {
                factories: Vec::new(),
                outer: frames.take(),
            }));
        }
    }

    pub(super) fn mappers(&self) -> usize {
        let outer = self.outer.as_ref().map_or(0, |outer| outer.mappers());
        self.factories.len() + outer
    }

    pub(super) fn add<M: Mapper>(
        frames: &mut Option<Arc<Self>>,
        factory: impl Fn() -> M + Send + Sync + 'static,
    ) {
        // Copied if a clone of the request shares it: a mapper acts only where it was added.
        let frame = Arc::make_mut(frames.get_or_insert_default());
        frame.factories.push(Arc::new(move || Box::new(factory())));
    }
}

/// The mappers of one attempt, in the order in which they act.
#[derive(Default)]
pub(super) struct Mappers {
    chain: Vec<Box<dyn Stage>>,
    /// The deltas that arrived since they started to act.
    waiting: Vec<Delta>,
    round: Option<Round>,
    /// The deltas that they act on; last first while one acts.
    deltas: Vec<Delta>,
    mapped: Vec<Delta>,
    is_flushed: bool,
}

/// One pass through the mappers. It goes on if a call is dropped while one of them is not ready.
#[derive(Clone, Copy)]
struct Round {
    stage: usize,
    is_end: bool,
}

impl Mappers {
    /// Creates the mappers: within a band in registration order, the innermost band's first.
    pub(super) fn new(frames: Option<&Arc<Frame>>) -> Result<Self> {
        let mut chain = Vec::new();
        let mut next = frames;
        while let Some(frame) = next {
            for factory in &frame.factories {
                // The factory is the callback's code as well.
                chain.push(caught(|| Ok(factory()))?);
            }
            next = frame.outer.as_ref();
        }
        Ok(Self {
            chain,
            ..Self::default()
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chain.is_empty()
    }

    pub(super) fn push(&mut self, delta: Delta) {
        if self.round.is_some() {
            // A pass has begun: a delta that joined it now would miss the mappers that have acted.
            self.waiting.push(delta);
        } else {
            self.deltas.push(delta);
            self.round = Some(Round {
                stage: 0,
                is_end: false,
            });
        }
    }

    /// Puts the next deltas to emit in the place of those in `out`, at the end also those that were
    /// held back. Returns `false` when there are no more.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        is_end: bool,
        out: &mut Vec<Delta>,
    ) -> Poll<Result<bool>> {
        if self.round.is_none() {
            if self.waiting.is_empty() && (!is_end || self.is_flushed) {
                return Poll::Ready(Ok(false));
            }
            // Last first: a mapper pops the next delta from the end.
            self.deltas.extend(self.waiting.drain(..).rev());
            self.round = Some(Round { stage: 0, is_end });
        }
        let has_acted = caught(|| {
            let Some(Round { stage, is_end }) = &mut self.round else {
                return Ok(true);
            };
            while let Some(mapper) = self.chain.get_mut(*stage) {
                if !mapper.act(cx, &mut self.deltas, &mut self.mapped, *is_end)? {
                    return Ok(false);
                }
                *stage += 1;
                // Last first, for the next mapper.
                if self.deltas.len() > 1 && *stage < self.chain.len() {
                    self.deltas.reverse();
                }
            }
            Ok(true)
        });
        if !has_acted? {
            // `round` stays: the next call continues with the same mapper, and no delta is mapped
            // twice.
            return Poll::Pending;
        }
        // Each mapper is flushed once, even if the end is polled again.
        self.is_flushed = self.round.take().is_some_and(|round| round.is_end);
        out.clear();
        std::mem::swap(&mut self.deltas, out);
        Poll::Ready(Ok(true))
    }
}

/// A mapper of any type, which is called once for all deltas of a pass.
trait Stage: Send {
    /// Puts what the mapper lets through in the place of the deltas, which are last first; at the
    /// end also what it held back. Returns `false` if it must wait: `mapped` then has the first.
    fn act(
        &mut self,
        cx: &mut Context<'_>,
        deltas: &mut Vec<Delta>,
        mapped: &mut Vec<Delta>,
        is_end: bool,
    ) -> Result<bool>;
}

impl<M: Mapper> Stage for M {
    fn act(
        &mut self,
        cx: &mut Context<'_>,
        deltas: &mut Vec<Delta>,
        mapped: &mut Vec<Delta>,
        is_end: bool,
    ) -> Result<bool> {
        // A single delta stays in its list: two moves for each mapper are a fifth of the
        // instructions of `delta of a run, to AG-UI, 10 mappers` in `benches/counts.json`.
        if deltas.len() == 1 && mapped.is_empty() && !is_end {
            let Poll::Ready(ready) = self.poll_ready(cx) else {
                return Ok(false);
            };
            ready?;
            if let Some(delta) = deltas.pop() {
                self.map(delta, deltas)?;
            }
            return Ok(true);
        }
        while !deltas.is_empty() || is_end {
            let Poll::Ready(ready) = self.poll_ready(cx) else {
                return Ok(false);
            };
            ready?;
            match deltas.pop() {
                Some(delta) => self.map(delta, mapped)?,
                None => {
                    self.flush(mapped)?;
                    break;
                }
            }
        }
        std::mem::swap(deltas, mapped);
        Ok(true)
    }
}

/// Calls a mapper; a panic becomes an error that fails the attempt.
fn caught<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    catch(f).unwrap_or_else(|panic| {
        Err(Error::new(
            ErrorKind::Callback,
            format!("a mapper of deltas panicked: {panic}"),
        ))
    })
}
