//! Calls that the crate does not know.

use tower::{ServiceExt, service_fn};
use tower_agent::call::CallKind;
use tower_agent::callback::{self, before_model};
use tower_agent::{
    Action, BoxError, Callbacks, Error, ErrorKind, ModelRequest, ModelResponse, Recovery, Request,
    Result, RunContext,
};
use tower_layer::Layer;

/// A call that tells of the run, or does something in it.
#[derive(Clone, Default)]
struct Own<const TELLS: bool>(RunContext);

impl<const TELLS: bool> Request for Own<TELLS> {
    type Response = &'static str;
    const CALL: CallKind = CallKind::Other("own");
    const OUTLIVES_ABORT: bool = TELLS;

    fn context(&self) -> &RunContext {
        &self.0
    }
}

async fn call<const TELLS: bool>(
    context: &RunContext,
    callbacks: Callbacks<Own<TELLS>>,
) -> Result<&'static str> {
    let service = service_fn(async |_: Own<TELLS>| Ok::<_, BoxError>("done"));
    callbacks.layer(service).oneshot(Own(context.clone())).await
}

async fn aborted() -> RunContext {
    let context = RunContext::default();
    let aborts = before_model(|_: &mut ModelRequest| {
        Err::<Action<ModelResponse>, _>(Error::abort("enough"))
    });
    let mut request = ModelRequest::new([]).with_context(context.clone());
    Callbacks::new()
        .with(aborts)
        .run_before(&mut request)
        .await
        .unwrap_err();
    assert!(context.aborted().is_some());
    context
}

#[tokio::test]
async fn only_a_call_that_outlives_an_abort_is_made_after_one() {
    let context = aborted().await;
    let nothing = || callback::before(|_: &mut Own<false>| {});
    let error = call(&context, Callbacks::new().with(nothing()))
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Aborted, "enough")
    );

    let nothing = || callback::before(|_: &mut Own<true>| {});
    assert_eq!(
        call(&context, Callbacks::new().with(nothing()))
            .await
            .unwrap(),
        "done"
    );
}

#[tokio::test]
async fn an_abort_of_its_own_ends_any_call() {
    let context = aborted().await;
    let aborts = callback::before(|_: &mut Own<true>| {
        Err::<Action<&'static str>, _>(Error::abort("and enough of that"))
    });
    let recovers =
        callback::on_error(|_: &mut Own<true>, _: &Error| Recovery::Fallback("recovered"));
    let inner = Callbacks::new()
        .with(aborts)
        .layer(service_fn(async |_: Own<true>| Ok::<_, BoxError>("done")));
    let outer = Callbacks::new().with(recovers).layer(inner);
    let error = outer.oneshot(Own(context)).await.unwrap_err();
    assert_eq!(error.message(), "and enough of that");
}
