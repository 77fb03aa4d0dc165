//! The life of a call inside a band.

use std::future::{Future, poll_fn};

use tower::Service;

use super::action::Outcome;
use super::call_state::{CallState, Recovered, Rest};
use super::list::Callbacks;
use super::options::{CallbackSemantics, Retries};
use crate::call::{CallKind, Origin, Request};
use crate::context::RunContext;
use crate::error::{BoxError, CallSite, Error, ErrorKind, Result};
use crate::on_drop::OnDrop;

/// Runs one call inside a band. `inner` may have been polled ready.
//
// Not an async fn, which would store its arguments twice.
pub(super) fn run<R, S>(
    callbacks: Callbacks<R>,
    request: R,
    inner: S,
    is_ready: bool,
) -> impl Future<Output = Result<R::Response>>
where
    R: Request,
    S: Service<R, Response = R::Response, Error: Into<BoxError>, Future: Send> + Send,
{
    let call = callbacks.begin(request);
    // However it ends, `on_end` runs once for every callback that has started.
    let call = OnDrop::new(call, |call| call.end(Outcome::Dropped));
    let mut band = Band {
        call,
        inner,
        is_ready,
    };
    async move {
        let result = band.make().await;
        let result = band.settle(result);
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
    is_ready: bool,
}

impl<R, S> Band<R, S>
where
    R: Request,
    S: Service<R, Response = R::Response, Error: Into<BoxError>, Future: Send> + Send,
{
    async fn make(&mut self) -> Result<R::Response> {
        // No callback runs for a call before the service is ready.
        if !self.is_ready {
            self.ready().await?;
        }
        self.context().admit::<R>()?;
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
        self.call.request.enter_band();
        let asks_again = self.call.semantics.retry_before.get(R::CALL);
        let entered = asks_again.then(|| Box::new(self.call.request.clone()));
        if let Some(response) = self.call.before(Rest::Asked).await? {
            return Ok((response, Origin::Before));
        }
        let mut retries = 0;
        loop {
            // A hook may have seen an ending and ignored it.
            self.context().admit::<R>()?;
            let error = match self.attempt().await {
                Ok(response) => return Ok((response, Origin::Service)),
                Err(error) if is_final::<R>(self.context(), &error) => return Err(error),
                Err(error) => error,
            };
            let may_retry = retries < max_retries(&self.call);
            let kind = error.kind();
            // In a box, so that a call that does not fail needs no space for it.
            let recovered = Box::pin(self.recover(error, may_retry, entered.as_deref()));
            match recovered.await? {
                Some(answer) => return Ok(answer),
                None => retries += 1,
            }
            let call = CallSite::of(&self.call.request);
            // Not the error itself: an outer layer may redact its text.
            tracing::warn!(%call, made = retries, %kind, "retrying call");
        }
    }

    /// Returns the response after an error of the call itself, or nothing to retry. `entered` is the
    /// request to retry, if it is not the current one.
    async fn recover(
        &mut self,
        error: Error,
        may_retry: bool,
        entered: Option<&R>,
    ) -> Result<Option<(R::Response, Origin)>> {
        let call = &mut self.call;
        let sent = call.request.clone();
        if let Recovered::Fallback(response) = call.on_error(error, may_retry).await? {
            return Ok(Some((response, Origin::Fallback)));
        }
        call.request.context().admit::<R>()?;
        let rest = match entered {
            Some(entered) => {
                call.request = entered.clone();
                Rest::Asked
            }
            // The guards allowed a different request.
            None if call.request.is_changed_from(&sent) => Rest::Guards,
            None => return Ok(None),
        };
        // It may own what a `before` has reserved.
        drop(sent);
        let response = call.before(rest).await?;
        Ok(response.map(|response| (response, Origin::Before)))
    }

    async fn ready(&mut self) -> Result<()> {
        let ready = poll_fn(|cx| self.inner.poll_ready(cx)).await;
        self.settle(ready.map_err(|error| Error::from(error.into())))?;
        self.is_ready = true;
        Ok(())
    }

    async fn attempt(&mut self) -> Result<R::Response> {
        if !std::mem::take(&mut self.is_ready) {
            self.ready().await?;
            self.is_ready = false;
        }
        let made = self.inner.call(self.call.request.clone()).await;
        // Before any `on_error` sees it.
        made.or_else(|error| self.settle(Err(Error::from(error.into()))))
    }

    fn settle<T>(&self, result: Result<T>) -> Result<T> {
        self.context()
            .settle::<R, T>(self.call.request.name(), result)
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

/// Returns whether `on_error` is skipped: the error ends more than the call, or there was no call
/// to recover.
fn is_final<R: Request>(context: &RunContext, error: &Error) -> bool {
    let is_beyond_limit = || context.beyond_limit(R::CALL).is_some();
    error.is_ending() || error.kind() == ErrorKind::MaxIterations && is_beyond_limit()
}
