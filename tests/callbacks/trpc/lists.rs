//! Lists of callbacks: what later ones see, clones, lists without an agent, sync and async.

use tower_agent::call::CallKind;
use tower_agent::callback::{Rules, after_model, before_model, before_model_async};
use tower_agent::compat::CallbackSemantics;
use tower_agent::{Action, Callbacks, Error, Message, ModelRequest, ModelResponse};
use tower_agent_test::{ScriptedModel, Turn};

use super::agent;
use test_support::log::Log;

#[tokio::test]
async fn later_callbacks_see_what_earlier_ones_changed_in_the_request() {
    let model = ScriptedModel::new([Turn::from_text("ok")]);
    let agent = agent(model.clone())
        .on_model(before_model(|request| request.add_instructions("one")))
        .on_model(before_model(|request| {
            let so_far = request.instructions().unwrap().to_owned();
            request.set_instructions(Some(format!("{so_far}, two").into()));
        }))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    assert_eq!(model.requests()[0].instructions(), Some("one, two"));
}

#[tokio::test]
async fn a_clone_keeps_the_options_and_grows_alone() {
    let semantics = CallbackSemantics::trpc(true, true);
    let list = Callbacks::new()
        .with(before_model(|_| {
            Action::Respond(ModelResponse::from_text("one"))
        }))
        .with_semantics(semantics);
    let longer = list.clone().with(before_model(|_| {
        Action::Respond(ModelResponse::from_text("two"))
    }));

    assert_eq!(
        (list.len(), longer.len(), longer.rules()),
        (1, 2, semantics.callbacks(CallKind::Model))
    );
    for (callbacks, answer) in [(list, "one"), (longer, "two")] {
        let response = callbacks
            .run_before(&mut ModelRequest::default())
            .await
            .unwrap();
        assert_eq!(response.unwrap().message().text(), answer);
    }
}

#[tokio::test]
async fn a_chain_without_an_agent_says_what_the_page_says() {
    let chain = Callbacks::new()
        .with(after_model(|_, _| Err::<(), _>(Error::from("error 1"))))
        .with(after_model(|_, response| {
            let text = response.message().text();
            Action::Respond(ModelResponse::from_text(format!("{text} R1")))
        }))
        .with(after_model(|_, response| {
            let text = response.message().text();
            Action::Respond(ModelResponse::from_text(format!("{text} R2")))
        }));
    let request = ModelRequest::new([Message::user("?")]);
    let answer = |callbacks: Callbacks<ModelRequest>| {
        let request = request.clone();
        async move {
            callbacks
                .run_after(&request, ModelResponse::from_text("said"))
                .await
        }
    };

    let both = chain
        .clone()
        .with_semantics(CallbackSemantics::trpc(true, true));
    assert_eq!(answer(both).await.unwrap_err().message(), "error 1");

    let without_error: Callbacks<ModelRequest> = Callbacks::new()
        .with_semantics(CallbackSemantics::trpc(false, true))
        .with(after_model(|_, _| {
            Action::Respond(ModelResponse::from_text("R1"))
        }))
        .with(after_model(|_, response| {
            Action::Respond(ModelResponse::from_text(format!(
                "{} R2",
                response.message().text()
            )))
        }));
    assert_eq!(
        answer(without_error).await.unwrap().message().text(),
        "said R2"
    );
}

async fn waits_and_notes(request: &mut ModelRequest) {
    tokio::task::yield_now().await;
    request.add_instructions("async");
}

#[tokio::test]
async fn sync_and_async_callbacks_stand_in_one_chain() {
    let model = ScriptedModel::new([Turn::from_text("ok")]);
    let agent = agent(model.clone())
        .on_model(before_model(|request| request.add_instructions("sync")))
        .on_model(before_model_async(waits_and_notes))
        .on_model(before_model(|request| {
            let known = request.instructions().map(str::len);
            async move {
                tokio::task::yield_now().await;
                assert!(known.is_some());
            }
        }))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    assert_eq!(model.requests()[0].instructions(), Some("sync\n\nasync"));
}

#[tokio::test]
async fn callbacks_may_be_chosen_while_the_program_runs() {
    let names = ["one", "two"];
    let seen = Log::default();
    let builder = names.into_iter().fold(
        agent(ScriptedModel::new([Turn::from_text("ok")])),
        |b, name| {
            let seen = seen.clone();
            b.on_model(before_model(move |_| seen.push(name)))
        },
    );
    builder.build().unwrap().run("?").await.unwrap();
    assert_eq!(seen.take(), names);
}
