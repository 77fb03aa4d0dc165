//! Constructors of callbacks for each hook and call.

use std::future::Future;

use super::function::{
    After, AfterAsync, Before, BeforeAsync, Borrowing, IntoAction, IntoHook, IntoRecovery,
    IntoRecoveryHook, OnError, OnErrorAsync,
};
use super::wrap::{Next, Wrap};
use crate::call::Request;
use crate::error::{Error, Result};
use crate::model::{ModelRequest, ModelResponse};
use crate::run::{AgentRequest, AgentResponse};
use crate::tool::{ToolRequest, ToolResponse};

// The compiler quotes the line of an unmet bound, with the comment there; for a future that borrows
// its argument it prints nothing else.
macro_rules! constructors {
    ($(
        $call:literal, $R:ty => $T:ty $(where $any:ident: Request)?,
        $before:ident $before_async:ident { $before_doc:literal }
        $after:ident $after_async:ident { $after_doc:literal }
        $on_error:ident $on_error_async:ident { $on_error_doc:literal }
        $wrap:ident { $wrap_doc:literal }
    )*) => {$(
        #[doc = concat!("Creates a callback from a function that runs before each ", $call, " call; see [`Callback::before`](super::Callback::before).")]
        #[doc = ""]
        #[doc = "It may change the request, and return nothing, an [`Action`](super::Action), a `Result` of either, or a future of one of these that owns what it uses."]
        #[doc = ""]
        #[doc = $before_doc]
        #[track_caller]
        pub fn $before<$($any,)? F, O, M>(function: F) -> Before<$R, F, O, M>
        where
            $($any: Request,)?
            F: Fn(&mut $R) -> O + Send + Sync + 'static, // an `async fn` goes to `*_async`
            O: IntoHook<$T, M>,
        {
            Before::new(function, stringify!($before))
        }

        #[doc = concat!("[`", stringify!($before), "`] with an async function that borrows the request.")]
        #[doc = ""]
        #[doc = "An async closure must name its parameter's type and capture nothing."]
        #[track_caller]
        pub fn $before_async<$($any,)? F>(function: F) -> BeforeAsync<$R, F>
        where
            $($any: Request,)?
            F: for<'a> Borrowing<(&'a mut $R,), Output: IntoAction<$T>> + 'static,
        {
            BeforeAsync::new(function, stringify!($before))
        }

        #[doc = concat!("Creates a callback from a function that runs after each successful ", $call, " call; see [`Callback::after`](super::Callback::after).")]
        #[doc = ""]
        #[doc = "It may return nothing, an [`Action`](super::Action), a `Result` of either, or a future of one of these that owns what it uses."]
        #[doc = ""]
        #[doc = $after_doc]
        #[track_caller]
        pub fn $after<$($any,)? F, O, M>(function: F) -> After<$R, F, O, M>
        where
            $($any: Request,)?
            F: Fn(&$R, &$T) -> O + Send + Sync + 'static, // an `async fn` goes to `*_async`
            O: IntoHook<$T, M>,
        {
            After::new(function, stringify!($after))
        }

        #[doc = concat!("[`", stringify!($after), "`] with an async function that borrows the request and the response.")]
        #[doc = ""]
        #[doc = "An async closure must name its parameters' types and capture nothing."]
        #[track_caller]
        pub fn $after_async<$($any,)? F>(function: F) -> AfterAsync<$R, F>
        where
            $($any: Request,)?
            F: for<'a> Borrowing<(&'a $R, &'a $T), Output: IntoAction<$T>> + 'static,
        {
            AfterAsync::new(function, stringify!($after))
        }

        #[doc = concat!("Creates a callback from a function that runs after each failed ", $call, " call; see [`Callback::on_error`](super::Callback::on_error).")]
        #[doc = ""]
        #[doc = "It may change the request for a retry, and return nothing, a [`Recovery`](super::Recovery), a `Result` of either, or a future of one of these that owns what it uses."]
        #[doc = ""]
        #[doc = $on_error_doc]
        #[track_caller]
        pub fn $on_error<$($any,)? F, O, M>(function: F) -> OnError<$R, F, O, M>
        where
            $($any: Request,)?
            F: Fn(&mut $R, &Error) -> O + Send + Sync + 'static, // an `async fn` goes to `*_async`
            O: IntoRecoveryHook<$T, M>,
        {
            OnError::new(function, stringify!($on_error))
        }

        #[doc = concat!("[`", stringify!($on_error), "`] with an async function that borrows the request and the error.")]
        #[doc = ""]
        #[doc = "An async closure must name its parameters' types and capture nothing."]
        #[track_caller]
        pub fn $on_error_async<$($any,)? F>(function: F) -> OnErrorAsync<$R, F>
        where
            $($any: Request,)?
            F: for<'a> Borrowing<(&'a mut $R, &'a Error), Output: IntoRecovery<$T>> + 'static,
        {
            OnErrorAsync::new(function, stringify!($on_error))
        }

        #[doc = concat!("Creates a layer from a function around each ", $call, " call, which receives the request and [`Next`].")]
        #[doc = ""]
        #[doc = "It is a layer, not a callback: it ends the band before it. A panic in it becomes an error that names it."]
        #[doc = ""]
        #[doc = $wrap_doc]
        #[track_caller]
        pub fn $wrap<$($any,)? F, O>(function: F) -> Wrap<$R>
        where
            $($any: Request,)?
            F: Fn($R, Next<$R>) -> O + Send + Sync + 'static,
            O: Future<Output = Result<$T>> + Send + 'static,
        {
            Wrap::new(function, stringify!($wrap))
        }
    )*};
}

constructors! {
    "agent", AgentRequest => AgentResponse,
    before_agent before_agent_async {
"```
use tower_agent::{Action, AgentRequest, AgentResponse, Message, Request};
use tower_agent::callback::before_agent;

let skip = before_agent(|request: &mut AgentRequest| {
    match request.context().state().get(\"skip\") {
        Some(_) => Action::Respond(AgentResponse::new([Message::assistant(\"Skipped.\")])),
        None => Action::Continue,
    }
});
# drop(skip);
```"
    }
    after_agent after_agent_async {
"```
use tower_agent::callback::after_agent;

let audit = after_agent(|_, response| println!(\"{} tokens\", response.usage().total()));
# drop(audit);
```"
    }
    on_agent_error on_agent_error_async {
"```
use tower_agent::{AgentResponse, Message, Recovery};
use tower_agent::callback::on_agent_error;

let apology = on_agent_error(|_, _| {
    Recovery::Fallback(AgentResponse::new([Message::assistant(\"I could not find out.\")]))
});
# drop(apology);
```"
    }
    wrap_agent {
"```
use std::time::Instant;
use tower_agent::callback::wrap_agent;

let timed = wrap_agent(|request, mut next| async move {
    let start = Instant::now();
    let response = next.run(request).await;
    println!(\"the agent took {:?}\", start.elapsed());
    response
});
# drop(timed);
```"
    }

    "model", ModelRequest => ModelResponse,
    before_model before_model_async {
"```
use tower_agent::callback::before_model;

let terse = before_model(|request| request.add_instructions(\"Answer in one sentence.\"));
# drop(terse);
```"
    }
    after_model after_model_async {
"```
use tower_agent::Error;
use tower_agent::callback::after_model;

let budget = after_model(|_, response| match response.usage().total() {
    0..=10_000 => Ok(()),
    _ => Err(Error::abort(\"that was too long\")),
});
# drop(budget);
```"
    }
    on_model_error on_model_error_async {
"```
use tower_agent::{ModelResponse, Recovery};
use tower_agent::callback::on_model_error;

let recover = on_model_error(|_, error| {
    if error.is_retryable() {
        Recovery::Retry
    } else {
        Recovery::Fallback(ModelResponse::from_text(\"I am not well today.\"))
    }
});
# drop(recover);
```"
    }
    wrap_model {
"```
use tower_agent::callback::wrap_model;

/// Calls twice and keeps the shorter response.
let shorter = wrap_model(|request, mut next| async move {
    let one = next.run(request.clone()).await?;
    let two = next.run(request).await?;
    let keep_one = one.message().text().len() <= two.message().text().len();
    Ok(if keep_one { one } else { two })
});
# drop(shorter);
```"
    }

    "tool", ToolRequest => ToolResponse,
    before_tool before_tool_async {
"```
use tower_agent::{Action, ToolResponse};
use tower_agent::callback::before_tool;

let blocklist = before_tool(|request| match request.name() {
    \"delete_everything\" => Action::Respond(ToolResponse::error(\"not allowed\")),
    _ => Action::Continue,
});
# drop(blocklist);
```"
    }
    after_tool after_tool_async {
"```
use tower_agent::Action;
use tower_agent::callback::after_tool;

let hide = after_tool(|_, response| {
    let mut response = response.clone();
    if let Some(object) = response.value_mut().as_object_mut() {
        object.remove(\"internal_id\");
    }
    Action::Respond(response)
});
# drop(hide);
```"
    }
    on_tool_error on_tool_error_async {
"```
use serde_json::json;
use tower_agent::{Effect, Recovery};
use tower_agent::callback::on_tool_error;

let again = on_tool_error(|request, error| {
    let pure = request.declaration().is_some_and(|tool| tool.effect() == Effect::Pure);
    if pure && error.is_retryable() { Recovery::Retry } else { Recovery::Propagate }
});
# drop(again);
```"
    }
    wrap_tool {
"```
use tower_agent::callback::wrap_tool;

let logged = wrap_tool(|request, mut next| async move {
    println!(\"{}({})\", request.name(), request.arguments());
    next.run(request).await
});
# drop(logged);
```"
    }

    "custom", R => R::Response where R: Request,
    before before_async {
"A custom call is one of your own, whose type the closure names.

```
use tower_agent::{Request, RunContext};
use tower_agent::call::CallKind;
use tower_agent::callback;

#[derive(Clone, Default)]
struct Embed {
    text: String,
    context: RunContext,
}

impl Request for Embed {
    type Response = Vec<f32>;
    const CALL: CallKind = CallKind::Other(\"embed\");

    fn context(&self) -> &RunContext {
        &self.context
    }
}

let lowercase = callback::before(|request: &mut Embed| {
    request.text = request.text.to_lowercase();
});
# drop(lowercase);
```"
    }
    after after_async { "A custom call is one of your own, whose type the closure names." }
    on_error on_error_async { "A custom call is one of your own, whose type the closure names." }
    wrap { "A custom call is one of your own, whose type the closure names." }
}
