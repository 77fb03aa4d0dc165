//! One run of an agent in a suite's environment.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tower::service_fn;
use tower_agent::tool::ToolDeclaration;
use tower_agent::{Agent, AgentRequest, BoxError, Resolution, Tool, ToolRequest, ToolResponse};
use tower_agent_middleware::approval::Approval;
use tower_agent_middleware::flow::{Flow, Hide, Label, OnViolation, ToolFlow};

use crate::bridge::{Bridge, Call, Outcome, Suite, SuiteTool};
use crate::channels::Channels;
use crate::chat::{ReaderAnswers, chat};
use crate::knowledge::Knowledge;
use crate::labels::{Labels, TOOLS, declared};
use crate::person::{Person, Question, UsersCalls};
use crate::planner::{Experience, Obedience, Planner, TELL};
use crate::table::Defence;
use crate::values::as_text;

/// What stands between the model and the tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    Nothing,
    /// Every consequential call is asked about.
    Approval,
    Flow(Labels),
}

impl Guard {
    /// Returns how results are labelled that are hidden.
    pub(crate) fn hides(self) -> Option<Labels> {
        match self {
            Self::Flow(labels @ (Labels::ByTool | Labels::ByField)) => Some(labels),
            _ => None,
        }
    }
}

/// How a run has ended.
#[derive(Debug)]
pub(crate) struct Ending {
    /// The attack has succeeded, or in a run without one the user's task is done.
    pub(crate) is_done: bool,
    pub(crate) model: Experience,
    pub(crate) attack_has_calls: bool,
    /// The calls that were made, with the values of references.
    pub(crate) calls: Vec<Call>,
    /// A consequential call was made that decides something else than each of the user's.
    pub(crate) has_other_call: bool,
    pub(crate) questions: Vec<Question>,
}

/// The bits that the model may read in narrow answers in one run: some choices, and no number of
/// any size.
const NARROW_BITS: u32 = 16;

/// The tasks of a suite.
pub(crate) struct Task<'a> {
    pub(crate) suite: &'a str,
    pub(crate) user: &'a str,
    pub(crate) attack: Option<&'a str>,
}

impl Task<'_> {
    pub(crate) fn number(&self) -> u32 {
        let digits = self.user.trim_start_matches("user_task_");
        digits.parse().unwrap_or(u32::MAX)
    }
}

/// Where the tools of a run work.
#[derive(Clone)]
struct Workplace {
    bridge: Bridge,
    channels: Channels,
    has_ids: bool,
    /// The calls that were made, and what the user was told.
    log: Arc<Mutex<Log>>,
}

#[derive(Default)]
struct Log {
    calls: Vec<Call>,
    told: String,
}

impl Workplace {
    async fn call(&self, tool: &str, arguments: &Value) -> Result<ToolResponse, BoxError> {
        let mut arguments = arguments.clone();
        if self.has_ids {
            self.channels.resolve(&mut arguments);
        }
        self.log(|log| {
            log.calls.push(Call {
                tool: tool.to_owned(),
                arguments: arguments.as_object().cloned().unwrap_or_default(),
            });
        });
        Ok(match self.bridge.call(tool, &arguments).await? {
            Outcome::Error(text) => ToolResponse::error(text),
            Outcome::Result(names) if tool == "get_channels" && self.has_ids => {
                ToolResponse::new(self.channels.list(&names))
            }
            Outcome::Result(value) => ToolResponse::new(value),
        })
    }

    fn log<T>(&self, read: impl FnOnce(&mut Log) -> T) -> T {
        read(&mut self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn tool(&self, tool: &SuiteTool) -> Tool {
        let declaration = ToolDeclaration::new(&*tool.name, &*tool.description)
            .with_parameters(tool.parameters.clone());
        let workplace = self.clone();
        let service = service_fn(move |request: ToolRequest| {
            let workplace = workplace.clone();
            async move { workplace.call(request.name(), request.arguments()).await }
        });
        Tool::service(declaration, service)
    }

    /// Returns the tool by which the model tells the user what it has not read.
    fn tell(&self) -> Tool {
        let declaration = ToolDeclaration::new(TELL, "Tells the user something.")
            .with_parameters(json!({ "type": "object", "properties": { "text": {} } }));
        let workplace = self.clone();
        let service = service_fn(move |request: ToolRequest| {
            let text = as_text(&request.arguments()["text"]);
            workplace.log(|log| log.told.push_str(&text));
            async { Ok::<_, BoxError>(ToolResponse::new("told")) }
        });
        Tool::service(declaration, service)
    }
}

fn flow(labels: Labels, person: Person, reader: Agent) -> Flow {
    let mut flow = Flow::new()
        .callbacks(Label::trusted())
        .tool(TELL, ToolFlow::trusted());
    for declared in TOOLS {
        flow = flow.tool(declared.name(), declared.flow(labels));
    }
    if labels != Labels::Taint {
        flow = flow
            .hide(Hide::Everything)
            .reader(reader)
            .narrow_answers(NARROW_BITS);
    }
    if person != Person::Nobody {
        flow = flow.on_violation(OnViolation::Ask);
    }
    flow
}

/// Runs a task with this defence.
pub(crate) async fn run(
    bridge: &Bridge,
    suite: &Suite,
    task: &Task<'_>,
    defence: &Defence,
    obedience: Obedience,
) -> Result<Ending, BoxError> {
    let Defence { guard, person, .. } = *defence;
    let plan = bridge.begin(task.suite, task.user, task.attack).await?;
    let has_ids = guard.hides() == Some(Labels::ByField);
    let workplace = Workplace {
        bridge: bridge.clone(),
        channels: Channels::default(),
        has_ids,
        log: Arc::default(),
    };
    let answers = ReaderAnswers::default();
    let (model, chat) = chat();
    let planner = Planner {
        chat,
        suite: task.suite.to_owned(),
        task: task.number(),
        plan: plan.clone(),
        hides: guard.hides(),
        obedience,
        answers: answers.clone(),
        channels: workplace.channels.clone(),
        knowledge: Knowledge::default(),
    };

    let mut builder = Agent::builder(model)
        .max_iterations(1000)
        .tools(suite.tools.iter().map(|tool| workplace.tool(tool)));
    match guard {
        Guard::Nothing => {}
        Guard::Approval => {
            let names = suite.tools.iter().filter_map(|tool| declared(&tool.name));
            let consequential = names.filter(|declared| declared.is_consequential());
            let asked = consequential.map(|declared| declared.name());
            builder = builder.global_callbacks(Approval::of_tools(asked));
        }
        Guard::Flow(labels) => {
            let mark = plan.attack.as_ref().map(|attack| attack.mark.clone());
            let reader = Agent::builder(answers.model(mark)).name("reader").build()?;
            let flow = flow(labels, person, reader);
            if labels != Labels::Taint {
                builder = builder.tools(flow.tools()).tool(workplace.tell());
            }
            builder = builder.global_callbacks(flow);
        }
    }
    let agent = builder.build()?;
    let users_calls = UsersCalls::new(&plan, task, has_ids, workplace.channels.clone());
    let work = async {
        let finished = converse(&agent, &plan.prompt, person, &users_calls).await;
        // The planner waits for the agent's next request as long as it could make one.
        drop(agent);
        finished
    };
    let (model, finished) = tokio::join!(planner.run(), work);
    let (text, questions) = finished?;

    let (calls, told) = workplace.log(|log| (log.calls.clone(), log.told.clone()));
    Ok(Ending {
        is_done: bridge.judge(&format!("{told}{text}")).await?,
        model,
        attack_has_calls: plan.attack.is_some_and(|attack| !attack.calls.is_empty()),
        has_other_call: calls.iter().any(|call| users_calls.is_other(call)),
        calls,
        questions,
    })
}

/// Runs the agent to its end, with an answer to each question. Returns its text and the questions.
async fn converse(
    agent: &Agent,
    prompt: &str,
    person: Person,
    users_calls: &UsersCalls,
) -> Result<(String, Vec<Question>), BoxError> {
    let mut questions = Vec::new();
    let mut response = agent.run(prompt).await?;
    while !response.interrupts().is_empty() {
        let mut resolutions = Vec::new();
        for interrupt in response.interrupts() {
            let question = person.answer(&interrupt.payload, users_calls);
            resolutions.push(Resolution::resolved(&interrupt.id, question.answer.clone()));
            questions.push(question);
        }
        let request = AgentRequest::resume(response.checkpoint()).with_resolutions(resolutions);
        response = agent.run(request).await?;
    }
    Ok((response.text(), questions))
}
