//! What a band does with a call.

use std::future::{Future, poll_fn};

use tower::Service;

use super::ending::CallState;
use super::options::{CallbackSemantics, Retries};
use super::phases::{Asked, Recovered};
use super::{Callbacks, Outcome};
use crate::call::Request;
use crate::call::{CallKind, Origin};
use crate::error::{BoxError, CallSite, Error, ErrorKind, Result};
use crate::on_drop::OnDrop;

/// Runs one call inside a band. `inner` has been polled ready.
//
// Not an async fn, which would keep its arguments twice.
pub(super) fn run<R, S>(
    callbacks: Callbacks<R>,
    request: R,
    mut inner: S,
) -> impl Future<Output = Result<R::Response>>
where
    R: Request,
    S: Service<R, Response = R::Response, Error: Into<BoxError>, Future: Send> + Send,
{
    let call = CallState::new(request, callbacks);
    // However it ends, every callback that was entered is told so, once.
    let mut call = OnDrop::new(call, |call| call.end(Outcome::Dropped));
    async move {
        let mut result = match call.request.context().refusal::<R>() {
            Some(ended) => Err(ended),
            None => call.run(&mut inner).await,
        };
        // What a hook, or a service inside, made of an ending does not count.
        match call.request.context().ending::<R>() {
            Some(ending) if result.is_err() || ending.kind() == ErrorKind::Aborted => {
                result = Err(ending);
            }
            _ => {}
        }
        call.disarm();
        call.end(match &result {
            Ok(response) => Outcome::Done(response),
            Err(error) => Outcome::Failed(error),
        });
        result
    }
}

impl<R: Request> CallState<R> {
    async fn run<S>(&mut self, inner: &mut S) -> Result<R::Response>
    where
        S: Service<R, Response = R::Response, Error: Into<BoxError>, Future: Send> + Send,
    {
        let (mut response, origin) = self.answer(inner).await?;
        if origin != Origin::Service || !self.callbacks.is_inmost() {
            self.request.mark(&mut response, None, origin);
        }
        let ending = self.request.context().ending::<R>();
        let asked = match &ending {
            Some(ending) if ending.kind() == ErrorKind::Aborted => return Err(ending.clone()),
            Some(ending) if !self.is_after_asked_at(ending) => Asked::Guards,
            _ if !self.is_after_asked(origin) => Asked::Guards,
            _ => Asked::All,
        };
        let asked = self.after(&mut response, asked).await;
        if let Err(error) = &asked
            && R::CALL == CallKind::Agent
            && ending.is_some()
        {
            // The ending stands, but nobody is to see the answer.
            self.request.context().withhold(error);
        }
        asked.map(|()| response)
    }

    /// What the call is answered with before any `after` is asked, and by whom.
    async fn answer<S>(&mut self, inner: &mut S) -> Result<(R::Response, Origin)>
    where
        S: Service<R, Response = R::Response, Error: Into<BoxError>, Future: Send> + Send,
    {
        self.request.enter_band();
        let asks_again = self.callbacks.semantics().retry_before.get(R::CALL);
        let entered = asks_again.then(|| self.request.clone());
        if let Some(response) = self.before(Asked::All).await? {
            return Ok((response, Origin::Before));
        }
        let mut retries = 0;
        loop {
            // A hook may have seen the run aborted, and made nothing of it.
            match self.request.context().ending::<R>() {
                Some(abort) if abort.kind() == ErrorKind::Aborted => return Err(abort),
                _ => {}
            }
            let attempt = async {
                if retries > 0 {
                    poll_fn(|cx| inner.poll_ready(cx)).await?;
                }
                inner.call(self.request.clone()).await
            };
            let error = match attempt.await {
                Ok(response) => return Ok((response, Origin::Service)),
                Err(error) => self.failed(error.into())?,
            };
            let sent = self.request.clone();
            match self.on_error(error, retries < self.max_retries()).await? {
                Recovered::Fallback(response) => return Ok((response, Origin::Fallback)),
                Recovered::Retry => retries += 1,
            }
            if let Some(ended) = self.request.context().refusal::<R>() {
                return Err(ended);
            }
            let asked = match &entered {
                Some(entered) => {
                    self.request = entered.clone();
                    Asked::All
                }
                // What the guards let through was another call.
                None if self.request.is_changed_from(&sent) => Asked::Guards,
                None => continue,
            };
            // It may hold what a `before` of it has reserved.
            drop(sent);
            if let Some(response) = self.before(asked).await? {
                return Ok((response, Origin::Before));
            }
        }
    }

    fn is_after_asked(&self, origin: Origin) -> bool {
        let semantics = self.callbacks.semantics();
        match origin {
            Origin::Before => semantics.after_before.get(R::CALL),
            Origin::Fallback => semantics.after_fallback.get(R::CALL),
            _ => true,
        }
    }

    /// Whether `after` is asked although the call ends more than itself.
    fn is_after_asked_at(&self, ending: &Error) -> bool {
        let is_pause = R::CALL == CallKind::Agent && ending.kind() == ErrorKind::Interrupted;
        is_pause && self.callbacks.semantics().after_pause
    }

    fn max_retries(&self) -> u32 {
        match self.callbacks.semantics().retries.get(R::CALL) {
            Retries::AtMost(most) => most,
            Retries::MaxIterations => match self.request.context().max_iterations() {
                0 => CallbackSemantics::RETRIES,
                most => most,
            },
        }
    }

    /// The error of a failed call; `Err` if it ends more than the call.
    fn failed(&self, error: BoxError) -> Result<Error> {
        let error = self.name_call(Error::from(error));
        let context = self.request.context();
        context.latch::<R>(&error);
        match context.ending::<R>() {
            Some(ending) => Err(ending),
            // No call was made that could be recovered.
            None if error.kind() == ErrorKind::MaxIterations
                && context.beyond_limit(R::CALL).is_some() =>
            {
                Err(error)
            }
            None => Ok(error),
        }
    }

    pub(super) fn name_call(&self, error: Error) -> Error {
        error.in_call(|| CallSite::of(&self.request))
    }
}
