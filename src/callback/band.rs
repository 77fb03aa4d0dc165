//! The life of a call inside a band.

use std::future::{Future, poll_fn};

use tower::Service;

use super::call_state::{CallState, Recovered, Rest};
use super::options::{CallbackSemantics, Retries};
use super::{Callbacks, Outcome};
use crate::call::{CallKind, Origin, Request};
use crate::context::RunContext;
use crate::error::{BoxError, Error, ErrorKind, Result};
use crate::on_drop::OnDrop;

/// Runs one call inside a band. `inner` has been polled ready.
//
// Not an async fn, which would store its arguments twice.
pub(super) fn run<R, S>(
    callbacks: Callbacks<R>,
    request: R,
    inner: S,
) -> impl Future<Output = Result<R::Response>>
where
    R: Request,
    S: Service<R, Response = R::Response, Error: Into<BoxError>, Future: Send> + Send,
{
    let call = callbacks.begin(request);
    // However it ends, `on_end` runs once for every callback that has started.
    let call = OnDrop::new(call, |call| call.end(Outcome::Dropped));
    let mut band = Band { call, inner };
    async move {
        let mut result = match band.context().refusal::<R>() {
            Some(ended) => Err(ended),
            None => band.make().await,
        };
        // An ending takes precedence over whatever a hook or an inner service made of it.
        match band.context().ending::<R>() {
            Some(ending) if result.is_err() || ending.kind() == ErrorKind::Aborted => {
                result = Err(ending);
            }
            _ => {}
        }
        band.call.disarm();
        band.call.end(match &result {
            Ok(response) => Outcome::Done(response),
            Err(error) => Outcome::Failed(error),
        });
        result
    }
}

struct Band<R: Request, S> {
    call: OnDrop<CallState<R>>,
    inner: S,
}

impl<R, S> Band<R, S>
where
    R: Request,
    S: Service<R, Response = R::Response, Error: Into<BoxError>, Future: Send> + Send,
{
    async fn make(&mut self) -> Result<R::Response> {
        let (mut response, origin) = self.answer().await?;
        if origin != Origin::Service || !self.call.is_inmost {
            self.call.request.mark(&mut response, None, origin);
        }
        let ending = self.context().ending::<R>();
        let rest = match &ending {
            Some(ending) if ending.kind() == ErrorKind::Aborted => return Err(ending.clone()),
            Some(ending) if !self.is_after_asked_at(ending) => Rest::Guards,
            _ if !self.is_after_asked(origin) => Rest::Guards,
            _ => Rest::Asked,
        };
        let asked = self.call.after(&mut response, rest).await;
        if let Err(error) = &asked
            && R::CALL == CallKind::Agent
            && ending.is_some()
        {
            // The ending is kept, but the response must not be used.
            self.context().withhold(error);
        }
        asked.map(|()| response)
    }

    /// Returns the response before any `after`, and its origin.
    async fn answer(&mut self) -> Result<(R::Response, Origin)> {
        let Self { call, inner } = self;
        call.request.enter_band();
        let asks_again = call.semantics.retry_before.get(R::CALL);
        let entered = asks_again.then(|| call.request.clone());
        if let Some(response) = call.before(Rest::Asked).await? {
            return Ok((response, Origin::Before));
        }
        let mut retries = 0;
        loop {
            // A hook may have seen the abort and ignored it.
            match call.request.context().ending::<R>() {
                Some(abort) if abort.kind() == ErrorKind::Aborted => return Err(abort),
                _ => {}
            }
            let attempt = async {
                if retries > 0 {
                    poll_fn(|cx| inner.poll_ready(cx)).await?;
                }
                inner.call(call.request.clone()).await
            };
            let error = match attempt.await {
                Ok(response) => return Ok((response, Origin::Service)),
                Err(error) => failed(call, error.into())?,
            };
            let sent = call.request.clone();
            let may_retry = retries < max_retries(call);
            match call.on_error(error, may_retry).await? {
                Recovered::Fallback(response) => return Ok((response, Origin::Fallback)),
                Recovered::Retry => retries += 1,
            }
            if let Some(ended) = call.request.context().refusal::<R>() {
                return Err(ended);
            }
            let rest = match &entered {
                Some(entered) => {
                    call.request = entered.clone();
                    Rest::Asked
                }
                // The guards allowed a different request.
                None if call.request.is_changed_from(&sent) => Rest::Guards,
                None => continue,
            };
            // It may own what a `before` has reserved.
            drop(sent);
            if let Some(response) = call.before(rest).await? {
                return Ok((response, Origin::Before));
            }
        }
    }

    fn is_after_asked(&self, origin: Origin) -> bool {
        let semantics = &self.call.semantics;
        match origin {
            Origin::Before => semantics.after_before.get(R::CALL),
            Origin::Fallback => semantics.after_fallback.get(R::CALL),
            _ => true,
        }
    }

    /// Returns whether `after` runs although the call ends more than itself.
    fn is_after_asked_at(&self, ending: &Error) -> bool {
        let is_pause = R::CALL == CallKind::Agent && ending.kind() == ErrorKind::Interrupted;
        is_pause && self.call.semantics.after_pause
    }

    fn context(&self) -> &RunContext {
        self.call.request.context()
    }
}

fn max_retries<R: Request>(call: &CallState<R>) -> u32 {
    match call.semantics.retries.get(R::CALL) {
        Retries::AtMost(most) => most,
        Retries::MaxIterations => match call.request.context().max_iterations() {
            0 => CallbackSemantics::RETRIES,
            most => most,
        },
    }
}

/// Returns the error of a failed call; `Err` if it ends more than the call.
fn failed<R: Request>(call: &CallState<R>, error: BoxError) -> Result<Error> {
    let error = call.name_call(Error::from(error));
    let context = call.request.context();
    context.latch::<R>(&error);
    match context.ending::<R>() {
        Some(ending) => Err(ending),
        // There was no call that could be recovered.
        None if error.kind() == ErrorKind::MaxIterations
            && context.beyond_limit(R::CALL).is_some() =>
        {
            Err(error)
        }
        None => Ok(error),
    }
}
