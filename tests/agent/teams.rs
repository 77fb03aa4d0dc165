//! Agents made of agents: one after another, side by side, round after round.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use test_support::team::{agent, saying, slow, texts};
use test_support::trace::Trace;
use tower::timeout::TimeoutLayer;
use tower::{ServiceBuilder, ServiceExt};
use tower_agent::agent::BuildError;
use tower_agent::callback::{Bundle, after_agent, before_agent};
use tower_agent::{
    Action, Agent, AgentRequest, AgentResponse, EndReason, Message, Request, Result, State, Tool,
    ToolRequest, Usage,
};
use tower_agent_test::{ScriptedModel, Turn};

#[tokio::test]
async fn members_continue_the_conversation_one_after_another() {
    let models =
        ["draft", "review", "final"].map(|text| ScriptedModel::new([Turn::from_text(text)]));
    let [a, b, c] = &models;
    let team = Agent::sequential("pipeline")
        .agents([agent("a", a), agent("b", b), agent("c", c)])
        .build()
        .unwrap();

    let request = AgentRequest::new("Write!").with_history([Message::user("Hello")]);
    let response = team.run(request).await.unwrap();

    let heard = |model: &ScriptedModel| {
        let requests = model.requests();
        requests[0]
            .messages()
            .iter()
            .map(Message::text)
            .collect::<Vec<_>>()
            .join("|")
    };
    assert_eq!(heard(a), "Hello|Write!");
    assert_eq!(heard(b), "Hello|Write!|draft");
    assert_eq!(heard(c), "Hello|Write!|draft|review");
    models.iter().for_each(ScriptedModel::assert_done);
    assert_eq!(texts(&response), ["draft", "review", "final"]);
    assert_eq!(response.messages().len(), 5);
    assert_eq!(
        (response.text(), response.end_reason()),
        ("final".to_owned(), &EndReason::Completed)
    );
}

#[tokio::test]
async fn a_team_is_one_run_with_one_state_and_one_count() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let visit = || {
        let seen = seen.clone();
        Tool::function_with("visit", "", move |_: Value, request: ToolRequest| {
            let context = request.context();
            let visits = context
                .state()
                .get("visits")
                .and_then(|v| v.as_u64())
                .unwrap_or(0)
                + 1;
            context.state().set("visits", visits);
            let call = (context.path().to_owned(), context.run_id().to_owned());
            seen.lock().unwrap().push(call);
            visits
        })
    };
    let member = |name: &str| {
        let usage = |turn: Turn| turn.usage(Usage::new(10, 1));
        let turns = [
            usage(Turn::tool("visit", json!(null))),
            usage(Turn::from_text("done")),
        ];
        Agent::builder(ScriptedModel::new(turns))
            .name(name)
            .tool(visit())
            .build()
            .unwrap()
    };
    let inner = Agent::parallel("fan")
        .agents([member("b"), member("c")])
        .build()
        .unwrap();
    let totals = Arc::new(Mutex::new(None));
    let team = Agent::sequential("pipeline")
        .agents([member("a"), inner])
        .on_agent(after_agent({
            let totals = totals.clone();
            move |request, response| {
                let run = request.context().usage();
                *totals.lock().unwrap() = Some((run, response.usage(), response.iterations()));
            }
        }))
        .build()
        .unwrap();

    let state = State::from_iter([("visits".to_owned(), json!(7))]);
    let response = team
        .run(AgentRequest::new("?").with_state(state))
        .await
        .unwrap();

    let (paths, ids): (Vec<_>, Vec<_>) = seen.lock().unwrap().iter().cloned().unzip();
    assert_eq!(paths, ["pipeline/a", "pipeline/fan/b", "pipeline/fan/c"]);
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(response.state().get("visits"), Some(json!(10)));
    assert_eq!(
        (response.usage(), response.iterations()),
        (Usage::new(60, 6), 6)
    );
    assert_eq!(
        *totals.lock().unwrap(),
        Some((Usage::new(60, 6), Usage::new(60, 6), 6))
    );
}

#[tokio::test]
async fn callbacks_stand_around_every_kind_of_agent() {
    for kind in ["sequential", "parallel", "repeat"] {
        let trace = Trace::default();
        let builder = match kind {
            "sequential" => Agent::sequential("team"),
            "parallel" => Agent::parallel("team"),
            _ => Agent::repeat("team", 1),
        };
        let member = |name: &str| {
            let model = ScriptedModel::new([Turn::from_text(name)]);
            Agent::builder(model)
                .name(name)
                .on_agent(trace.named(name))
                .build()
                .unwrap()
        };
        let team = builder
            .on_agent(trace.named("x"))
            .on_agent(trace.named("y"))
            .agent_layer(TimeoutLayer::new(Duration::from_secs(60)))
            .on_agent(trace.named("z"))
            .agents([member("a"), member("b")])
            .build()
            .unwrap();

        // A team is a service as every agent is.
        let service = ServiceBuilder::new().concurrency_limit(1).service(team);
        service.oneshot(AgentRequest::new("?")).await.unwrap();

        // Side by side the first member is merely the first to be asked.
        let expected = "x> y> z> a> <a a=done b> <b b=done <z z=done <x <y x=done y=done";
        assert_eq!(trace.take(), expected, "{kind}");
    }
}

#[tokio::test]
async fn a_teams_bundle_and_a_runs_callbacks_reach_the_members() {
    let trace = Trace::default();
    let bundle = |name: &str| {
        Bundle::new()
            .on_agent(trace.named(name))
            .on_model(trace.named(&format!("{name}:model")))
    };
    let member = Agent::builder(saying("a", 0))
        .name("a")
        .on_agent(trace.named("a"));
    let inner = Agent::parallel("fan")
        .agent(member.build().unwrap())
        .build()
        .unwrap();
    let team = Agent::sequential("team")
        .on_agent(trace.named("team"))
        .agent(inner)
        .global_callbacks(bundle("g"))
        .build()
        .unwrap();

    team.run(AgentRequest::new("?").with_callbacks(bundle("r")))
        .await
        .unwrap();

    let befores = trace.take();
    let befores: Vec<_> = befores
        .split(' ')
        .take_while(|what| what.ends_with('>'))
        .collect();
    // The team, the team in it, the member, the member's model.
    assert_eq!(
        befores.join(" "),
        "g> team> r> g> r> g> a> r> g:model> r:model>"
    );
}

#[tokio::test]
async fn a_team_may_be_answered_for_and_its_answer_replaced() {
    let model = ScriptedModel::new([]);
    let team = Agent::sequential("team")
        .agent(agent("a", &model))
        .on_agent(before_agent(|_| {
            Action::Respond(AgentResponse::new([Message::assistant("cached")]))
        }))
        .on_agent(after_agent(|_, response| {
            let text = format!("{}!", response.text());
            Action::Respond(response.clone().with_message(Message::assistant(text)))
        }))
        .build()
        .unwrap();

    assert_eq!(team.run("?").await.unwrap().text(), "cached!");
    model.assert_done();

    // A member that is answered for has had its turn; the next one goes on.
    let skipped = Agent::builder(model.clone())
        .name("a")
        .on_agent(before_agent(|_| {
            Action::Respond(AgentResponse::new([Message::assistant("skipped")]))
        }))
        .build()
        .unwrap();
    let next = ScriptedModel::new([Turn::from_text("next")]);
    let team = Agent::sequential("team")
        .agents([skipped, agent("b", &next)])
        .build()
        .unwrap();
    let response = team.run("?").await.unwrap();
    assert_eq!(texts(&response), ["skipped", "next"]);
    assert_eq!(next.requests()[0].messages().len(), 2);
    model.assert_done();
}

#[tokio::test(start_paused = true)]
async fn side_by_side_answers_stand_in_the_members_order() {
    let start = tokio::time::Instant::now();
    let models: Vec<_> = [3, 2, 1]
        .map(|secs| ScriptedModel::new([slow(&format!("after {secs}"), secs)]))
        .into();
    let members = models
        .iter()
        .zip(["a", "b", "c"])
        .map(|(model, name)| agent(name, model));
    let trace = Trace::default();
    let members = members.collect::<Vec<_>>();
    let team = Agent::parallel("fan")
        .agents(members)
        .on_agent(trace.named("fan"))
        .build()
        .unwrap();

    let response = team.run("?").await.unwrap();

    assert_eq!(start.elapsed(), Duration::from_secs(3));
    assert_eq!(texts(&response), ["after 3", "after 2", "after 1"]);
    assert_eq!(response.messages().len(), 4);
    for model in &models {
        assert_eq!(
            model.requests()[0].messages().len(),
            1,
            "they do not hear one another"
        );
    }
    assert_eq!(trace.take(), "fan> <fan fan=done");
}

/// Two fast members in a sequence, beside a slow one (ADK's branches).
#[tokio::test(start_paused = true)]
async fn teams_nest() {
    let pair = Agent::sequential("pair")
        .agents([agent("x", &saying("x", 1)), agent("y", &saying("y", 1))])
        .build()
        .unwrap();
    let paths = Arc::new(Mutex::new(Vec::new()));
    let single = Agent::builder(saying("z", 5))
        .name("z")
        .on_model(tower_agent::callback::before_model({
            let paths = paths.clone();
            move |request| {
                paths
                    .lock()
                    .unwrap()
                    .push(request.context().path().to_owned())
            }
        }))
        .build()
        .unwrap();
    let team = Agent::parallel("fan")
        .agents([single, pair])
        .build()
        .unwrap();

    let response = team.run("?").await.unwrap();

    assert_eq!(texts(&response), ["z", "x", "y"]);
    assert_eq!(*paths.lock().unwrap(), ["fan/z"]);
    assert_eq!(response.iterations(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_race_is_over_with_the_first_response_that_will_do() {
    let trace = Trace::default();
    let member = |name: &str, turn: Turn| {
        let model = ScriptedModel::new([turn.usage(Usage::new(1, 1))]);
        Agent::builder(model)
            .name(name)
            .on_agent(trace.named(name))
            .build()
            .unwrap()
    };
    let race = Agent::parallel("race")
        .agents([
            member("a", slow("good", 2)),
            member("b", slow("good too", 3)),
            member("c", slow("bad", 1)),
        ])
        .until(|response| response.text().starts_with("good"))
        .build()
        .unwrap();

    let response = race.run("?").await.unwrap();

    assert_eq!(trace.take(), "a> b> c> <c c=done <a a=done b=dropped");
    assert_eq!(response.end_reason(), &EndReason::StopCondition);
    assert_eq!(
        texts(&response),
        ["bad", "good"],
        "the winner has the last word"
    );
    assert_eq!(
        (response.usage(), response.iterations()),
        (Usage::new(2, 2), 2)
    );
}

#[tokio::test]
async fn until_ends_a_sequence_early() {
    let never = ScriptedModel::new([]);
    let team = Agent::sequential("cascade")
        .agents([
            agent("small", &saying("unsure", 0)),
            agent("large", &saying("42", 0)),
        ])
        .agent(agent("huge", &never))
        .until(|response| response.text() != "unsure")
        .build()
        .unwrap();

    let response = team.run("?").await.unwrap();

    assert_eq!(
        (response.text(), response.end_reason()),
        ("42".to_owned(), &EndReason::StopCondition)
    );
    never.assert_done();
}

#[tokio::test]
async fn a_repetition_is_bounded() {
    let [writer, critic] = ["draft", "not yet"].map(|text| {
        ScriptedModel::new([
            Turn::from_text(text),
            Turn::from_text(text),
            Turn::from_text(text),
        ])
    });
    let team = Agent::repeat("refine", 3)
        .agents([agent("writer", &writer), agent("critic", &critic)])
        .build()
        .unwrap();

    let response = team.run("?").await.unwrap();

    [&writer, &critic]
        .into_iter()
        .for_each(ScriptedModel::assert_done);
    assert_eq!(
        (response.end_reason(), response.iterations()),
        (&EndReason::Completed, 6)
    );
    assert_eq!(response.new_messages().len(), 6);
    assert_eq!(writer.requests()[2].messages().len(), 5);
}

#[tokio::test]
async fn until_ends_a_repetition() {
    let writer = ScriptedModel::new([Turn::from_text("draft"), Turn::from_text("final")]);
    let critic = ScriptedModel::new([Turn::from_text("again")]);
    let team = Agent::repeat("refine", 10)
        .agents([agent("writer", &writer), agent("critic", &critic)])
        .until(|response| response.text() == "final")
        .build()
        .unwrap();

    let response = team.run("?").await.unwrap();

    [writer, critic].iter().for_each(ScriptedModel::assert_done);
    assert_eq!(texts(&response), ["draft", "again", "final"]);
    assert_eq!(response.end_reason(), &EndReason::StopCondition);
}

/// An agent whose tool says that enough is enough; it has the last word itself.
fn escalating(name: &str) -> Agent {
    let model = ScriptedModel::new([Turn::tool("exit", json!(null)), Turn::from_text("enough")]);
    let exit = Tool::function_with("exit", "", |_: Value, request: ToolRequest| {
        request.context().escalate();
    });
    Agent::builder(model).name(name).tool(exit).build().unwrap()
}

#[tokio::test]
async fn an_escalation_ends_the_nearest_team_only() {
    let never = ScriptedModel::new([]);
    let inner = Agent::repeat("inner", 5)
        .agents([
            agent("a", &saying("a", 0)),
            escalating("b"),
            agent("c", &never),
        ])
        .build()
        .unwrap();
    let ends = Arc::new(Mutex::new(None));
    let inner = Agent::sequential("shell")
        .agents([inner, agent("d", &saying("d", 0))])
        .on_agent(after_agent({
            let ends = ends.clone();
            move |_, response| *ends.lock().unwrap() = Some(response.end_reason().clone())
        }))
        .build()
        .unwrap();
    let outer = Agent::sequential("outer")
        .agents([inner, agent("e", &saying("e", 0))])
        .build()
        .unwrap();

    let response = outer.run("?").await.unwrap();

    never.assert_done();
    assert_eq!(texts(&response), ["a", "", "null", "enough", "d", "e"]);
    assert_eq!(response.end_reason(), &EndReason::Completed);
    assert_eq!(*ends.lock().unwrap(), Some(EndReason::Completed));

    // Without a team around it nothing happens; the agent answers.
    assert_eq!(
        escalating("alone").run("?").await.unwrap().end_reason(),
        &EndReason::Completed
    );
}

#[tokio::test(start_paused = true)]
async fn an_escalation_side_by_side_waits_for_its_member_and_drops_the_others() {
    let trace = Trace::default();
    let model = ScriptedModel::new([slow("enough", 2)]);
    let escalates = Agent::builder(model)
        .name("b")
        .on_agent(before_agent(|request| request.context().escalate()))
        .build()
        .unwrap();
    let endless = Agent::builder(ScriptedModel::new([Turn::pending()]))
        .name("c")
        .on_agent(trace.named("c"))
        .build()
        .unwrap();
    let team = Agent::parallel("fan")
        .agents([agent("a", &saying("quick", 1)), escalates, endless])
        .build()
        .unwrap();

    let response = team.run("?").await.unwrap();

    assert_eq!(texts(&response), ["quick", "enough"]);
    assert_eq!(response.end_reason(), &EndReason::StopCondition);
    assert_eq!(trace.take(), "c> c=dropped");
}

#[tokio::test]
async fn runs_on_one_team_do_not_meet() {
    let model = ScriptedModel::always(Turn::from_text("a").usage(Usage::new(1, 1)));
    let calls = Arc::new(AtomicU32::new(0));
    let exit = Agent::builder(model.clone())
        .name("b")
        .on_agent(before_agent({
            let calls = calls.clone();
            move |request| {
                // Every other run escalates.
                if calls.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) {
                    request.context().escalate();
                }
            }
        }))
        .build()
        .unwrap();
    let team = Agent::sequential("team")
        .agents([exit, agent("c", &model)])
        .build()
        .unwrap();

    let runs = futures::future::join_all((0..4).map(|_| team.run("?"))).await;
    let counts: Result<Vec<_>> = runs
        .into_iter()
        .map(|run| run.map(|r| (r.iterations(), r.usage().total())))
        .collect();
    assert_eq!(counts.unwrap(), [(1, 2), (2, 4), (1, 2), (2, 4)]);
}

#[tokio::test]
async fn streamed_calls_of_members_are_distinguished() {
    use futures::StreamExt;
    use tower_agent::stream::EventKind;

    let team = Agent::parallel("fan")
        .agents([agent("a", &saying("one", 0)), agent("b", &saying("two", 0))])
        .build()
        .unwrap();
    let mut run = team.stream("?");
    let mut said = Vec::new();
    while let Some(event) = run.next().await {
        if let EventKind::TextDelta { text, .. } = event.kind {
            said.push((event.invocation.agent().to_owned(), text));
        }
    }

    assert_eq!(texts(&run.response().await.unwrap()), ["one", "two"]);
    said.sort();
    assert_eq!(
        said,
        [("a".into(), "one".to_owned()), ("b".into(), "two".into())]
    );
}

#[test]
fn a_team_that_cannot_work_is_not_built() {
    let member = || agent("a", &ScriptedModel::new([]));
    assert_eq!(
        Agent::sequential("team").build().unwrap_err(),
        BuildError::NoMembers("team".into())
    );
    assert_eq!(
        Agent::parallel("team")
            .agents([member(), member()])
            .build()
            .unwrap_err(),
        BuildError::DuplicateAgent("a".into())
    );
    assert_eq!(
        Agent::repeat("team", 0)
            .agent(member())
            .build()
            .unwrap_err(),
        BuildError::NoRounds("team".into())
    );
    assert_eq!(
        Agent::sequential("team")
            .agent(member())
            .allow_failures()
            .build()
            .unwrap_err(),
        BuildError::NotParallel("team".into())
    );
    assert_eq!(
        Agent::parallel("team")
            .agent(member())
            .concurrency(0)
            .build()
            .unwrap_err(),
        BuildError::NoConcurrency("team".into())
    );
    let no_tasks = |_: &AgentRequest| Ok::<[&str; 0], _>([]);
    assert_eq!(
        Agent::for_each("team", member(), no_tasks)
            .agent(agent("b", &ScriptedModel::new([])))
            .build()
            .unwrap_err(),
        BuildError::OneWorker("team".into())
    );
    assert_eq!(
        Agent::repeat("a/b", 1).agent(member()).build().unwrap_err(),
        BuildError::Name("a/b".into())
    );
}

#[test]
fn explain_shows_the_members() {
    let trace = Trace::default();
    let refine = Agent::repeat("refine", 3)
        .agent(agent("critic", &ScriptedModel::new([])))
        .until(|_| true)
        .build()
        .unwrap();
    let team = Agent::parallel("fan")
        .on_agent(trace.named("audit"))
        .agent_layer(TimeoutLayer::new(Duration::from_secs(1)))
        .agents([agent("writer", &ScriptedModel::new([])), refine])
        .build()
        .unwrap();
    assert_eq!(
        team.explain().to_string(),
        "\
agent `fan`
  audit
    [TimeoutLayer]
      in parallel
        agent `writer`
          loop of at most 25 model calls
            model call
              ScriptedModel
            tool calls, 8 at a time
        agent `refine`
          in turn, at most 3 rounds, with a stop condition
            agent `critic`
              loop of at most 25 model calls
                model call
                  ScriptedModel
                tool calls, 8 at a time
"
    );
}

#[tokio::test]
async fn a_layer_can_tell_a_team_from_its_members() {
    let trace = Trace::default();
    let seen = trace.clone();
    let member = Agent::builder(ScriptedModel::new([Turn::from_text("hi")])).name("member");
    let team = Agent::sequential("team")
        .agent(member.build().unwrap())
        .global_callbacks(Bundle::new().on_agent(before_agent(move |request| {
            seen.push(format!(
                "{}: {}",
                request.context().agent(),
                request.is_for_team()
            ));
        })))
        .build()
        .unwrap();
    team.run("?").await.unwrap();
    assert_eq!(trace.take(), "team: true member: false");
}
