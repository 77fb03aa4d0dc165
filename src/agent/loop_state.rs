//! The loop: executes the steps that [`step`](super::step) returns.

use std::sync::Arc;

use super::agent::{Agent, boxed};
use super::answer_calls::take_calls;
use super::answering::{Answering, Rejected, judge};
use super::loop_config::{LoopConfig, StopWhen};
use super::progress::LoopProgress;
use super::team_response::TeamResponse;
use super::tools::ToolTurn;
use super::transfer;
use super::view::View;
use super::waiting::whose_turn;
use crate::call::{BoxCallFuture, CallKind, Origin, Request};
use crate::callback::{
    AfterModelRespond, AnsweredToolCalls, AtLimit, BeyondLimit, LoopRules, NextTurn, OthersTurns,
    Placeholders, Tree,
};
use crate::context::{RunContext, WhoseTurn, limit_reached};
use crate::conversation::{
    CallName, NextStep, Paused, Transcript, make_whole, next_step, refusal, step_after,
};
use crate::error::{Error, ErrorKind, Result};
use crate::message::{
    CallIds, FinishReason, IdPart, Message, MessageId, Messages, NoAnswer, Part, Role, ToolResult,
    Usage,
};
use crate::model::{ModelRequest, ModelResponse, Settings, ToolChoice, Written};
use crate::on_drop::OnDrop;
use crate::panic::catch;
use crate::run::{
    AgentRequest, AgentResponse, AnswerFormat, BoxAgent, EndReason, Neighbours, TransferTarget,
};
use crate::stream::{DeltaSender, EventEmitter, EventKind};
use crate::tool::{InvalidTool, ToolDeclaration, ToolSet};

/// The loop at the bottom of an agent's stack.
pub(super) fn service(config: LoopConfig) -> BoxAgent {
    let config = Arc::new(config);
    BoxAgent::internal(move |request| call(config.clone(), request))
}

#[inline(never)]
fn call(config: Arc<LoopConfig>, mut request: AgentRequest) -> BoxCallFuture<AgentRequest> {
    Box::pin(async move {
        let added = make_whole(request.messages_mut());
        let mut running = LoopState::new(&config, &request);
        let result = match &mut running {
            Ok(running) => running.run(&added).await,
            Err(error) => Err(error.clone()),
        };
        request
            .context()
            .endings()
            .settle::<AgentRequest, _>(None, result)
    })
}

/// One run of the loop.
pub(super) struct LoopState<'a> {
    config: &'a LoopConfig,
    request: &'a AgentRequest,
    rules: LoopRules,
    settings: Arc<Settings>,
    /// The agent's tools, and those of the run.
    tools: ToolSet,
    /// The tools that the model receives.
    declarations: Arc<Vec<Arc<ToolDeclaration>>>,
    answering: Option<Box<Answering>>,
    /// The reason why the last response of the model is no answer, if it is none.
    no_answer: Option<NoAnswer>,
    /// The number of times that the model was asked for another answer.
    asked_again: u32,
    transcript: Transcript,
    new_from: usize,
    /// The agent's progress before the run paused, if it goes on with one that did.
    earlier: Paused,
    iterations: u32,
    /// Boxed, like what follows: most agents are alone.
    shared: Option<Box<SharedConversation>>,
    /// The next step, where the last one tells: to read the conversation for each costs 5 % of
    /// `agent` in `benches/counts.json`.
    next: Option<NextStep>,
    /// The serialised messages for the model's protocol.
    written: Written,
    /// The context of the current turn.
    turn: RunContext,
    /// Set between the events for the start and the end of a turn. Boxed, since a run of which
    /// nobody is told would have room for it: the future of a run must fit into the allocator's
    /// small chunks.
    step: Option<Box<OnDrop<OpenStep>>>,
}

/// The part that an agent has in a conversation with others.
struct SharedConversation {
    /// The author of what the agent says.
    author: Arc<str>,
    /// The agents outside that the model may transfer to.
    outside: Vec<TransferTarget>,
    /// The model calls of agents that have handed the conversation back.
    handed: u32,
}

/// The agent that a turn has transferred the conversation to.
enum Successor<'a> {
    None,
    /// A sub-agent.
    Below(&'a Agent),
    /// An agent outside, to which the agent that has this one hands it.
    Outside,
}

/// A turn of whose end nobody was told so far.
struct OpenStep {
    turn: RunContext,
    finish_reason: Option<FinishReason>,
}

/// The instructions of a model call, and the keys of the state whose values are in them.
type Instructions = (Option<Arc<str>>, Option<Arc<[String]>>);

impl<'a> LoopState<'a> {
    fn new(config: &'a LoopConfig, request: &'a AgentRequest) -> Result<Self> {
        let context = request.context();
        let rules = Tree::loop_rules(context);
        let shared = SharedConversation::of(config, &rules, request);
        let tools = match request.tools() {
            none if none.is_empty() => config.tool_set.clone(),
            more => config.tool_set.union(more).map_err(|invalid| {
                let message = match &invalid {
                    InvalidTool::Duplicate(name) => {
                        format!("the agent already has a tool named `{name}`")
                    }
                    other => other.to_string(),
                };
                Error::new(ErrorKind::InvalidRequest, message).with_source(invalid)
            })?,
        };
        let tools = match &shared {
            Some(shared) => shared.offered(config, tools)?,
            None => tools,
        };
        let settings = match request.settings() {
            unset if *unset == Settings::default() => config.options.settings.clone(),
            set => Arc::new(set.clone().or(&config.options.settings)),
        };
        let answering = Answering::of(request, config.options.instructions.as_ref()).map(Box::new);
        let (settings, declarations) = match &answering {
            Some(answering) => (
                answering.settings(&settings).into(),
                answering.tools(&tools)?,
            ),
            None => (settings, tools.declarations().clone()),
        };
        let new_from = request.messages().len();
        let transcript = context.place().write(request.messages());
        let mut turn = context.begun();
        let earlier = context
            .place()
            .paused()
            .unwrap_or_else(|| Paused::at(new_from));
        if earlier.iterations > 0 {
            for message in request.messages().range(earlier.from) {
                // The turn that goes on is the last, in which the model has called the tools.
                turn.begin_turn(earlier.iterations - 1, false);
                if message.role() == Role::Assistant {
                    turn.scope().tally.push_text(message);
                }
            }
        }
        let mut running = Self {
            config,
            request,
            rules,
            settings,
            tools,
            declarations,
            answering,
            no_answer: None,
            asked_again: 0,
            transcript,
            new_from,
            iterations: earlier.iterations,
            shared,
            next: None,
            earlier,
            written: Written::default(),
            turn,
            step: None,
        };
        if running.iterations > 0 {
            running.let_choose();
        }
        Ok(running)
    }

    // Not a field beside the request that has it: see `step`.
    fn context(&self) -> &'a RunContext {
        self.request.context()
    }

    /// `added` are the results that were added to complete the conversation.
    async fn run(&mut self, added: &[(CallName, Message)]) -> Result<AgentResponse> {
        let mut other = self.begin(added).await?;
        let mut done = Ok(None);
        loop {
            if let Some(agent) = other.take() {
                match boxed(|| self.hand_over(agent)).await? {
                    Some(response) => return Ok(response),
                    None => continue,
                }
            }
            // Whatever callbacks and layers made of it.
            if let Some(ending) = self.context().endings().ending::<AgentRequest>() {
                return boxed(|| self.ended(&ending)).await;
            }
            if let Some(end) = std::mem::replace(&mut done, Ok(None))? {
                return Ok(self.response(end));
            }
            match self.successor() {
                // Two agents could hand the conversation to each other for ever.
                Successor::Below(agent) if self.handed() > 0 && self.is_beyond_limit() => {
                    tracing::warn!(
                        run_id = self.context().run_id(),
                        agent = self.context().path(),
                        to = agent.name(),
                        "a transfer is beyond the limit of model calls"
                    );
                    done = self.limit();
                    continue;
                }
                Successor::Below(agent) => {
                    self.step = None;
                    // Recorded before the other agent runs: a resumed run must not ask this one
                    // again.
                    let from = self.transcript.read(Messages::len);
                    self.context().place().give_turn(agent.name(), from);
                    other = Some(agent);
                    continue;
                }
                Successor::Outside => {
                    self.step = None;
                    return Ok(self.response(EndReason::Transferred));
                }
                Successor::None => {}
            }
            // A reference: a value that is moved out of it would take room in the future twice.
            done = match &self.next_step() {
                NextStep::Done if self.answering.is_some() || self.no_answer.is_some() => {
                    boxed(|| self.judge()).await
                }
                NextStep::Done => Ok(Some(EndReason::Completed)),
                NextStep::Model if self.is_refused() => self.limit(),
                NextStep::Model => {
                    self.step = None;
                    self.ask().await
                }
                NextStep::Tools(pending) => match pending.why_not_made() {
                    Some(why) => {
                        boxed(|| self.close(why)).await;
                        Ok(None)
                    }
                    None => match self.tool_turn().run(pending).await {
                        Ok(are_answered) => {
                            self.let_choose();
                            self.next = are_answered.then_some(NextStep::Model);
                            match &self.config.options.stop_when {
                                Some(stop_when) => self.stopped(stop_when),
                                None => Ok(None),
                            }
                        }
                        Err(error) => Err(error),
                    },
                },
            };
            if !matches!(done, Ok(None)) {
                self.step = None;
            }
        }
    }

    /// Begins the run. Returns the agent that continues, if it is another one.
    async fn begin(&mut self, added: &[(CallName, Message)]) -> Result<Option<&'a Agent>> {
        if let Some(emitter) = &self.context().listeners().emitter {
            emitter
                .begin(&self.transcript.messages(), self.new_from)
                .await;
        }
        self.context().listeners().tell_results(added).await;
        let agents = &self.config.options.sub_agents;
        match whose_turn(self.context(), agents, &self.transcript.messages()) {
            Ok(Some(index)) => return Ok(Some(&agents[index])),
            Ok(None) => {
                if let Some(agent) = self.last_speaker() {
                    return Ok(Some(agent));
                }
            }
            // Another agent made these calls in this run, and was stopped; this agent replaces it.
            Err(_) if self.transcript.read(Messages::len) > self.new_from => {
                self.close(ToolResult::AGENT_STOPPED).await;
            }
            Err(error) => return Err(error),
        }
        self.context().place().take_turn(self.earlier.from);
        Ok(None)
    }

    /// Returns the agent that has the conversation since an earlier turn, and gives the turn to it.
    fn last_speaker(&self) -> Option<&'a Agent> {
        let agents = &self.config.options.sub_agents;
        let place = self.context().place();
        let is_begun = !matches!(place.turn(), WhoseTurn::Unknown);
        if agents.is_empty()
            || is_begun
            || self.rules.next_turn == NextTurn::Called
            || self.context().scope().node.is_member
        {
            return None;
        }
        let path = place.author_path();
        let speaker = self
            .transcript
            .read(|messages| transfer::last_speaker(agents, &path, &self.rules, messages))?;
        place.give_turn(&speaker, self.transcript.read(Messages::len));
        let first = speaker.split('/').next();
        agents.iter().find(|agent| Some(agent.name()) == first)
    }

    /// Returns the agent that the conversation was transferred to.
    fn successor(&self) -> Successor<'a> {
        let Some(shared) = &self.shared else {
            return Successor::None;
        };
        let agents = &self.config.options.sub_agents;
        let Some(name) = self.transcript.read(transfer::successor) else {
            return Successor::None;
        };
        if let Some(agent) = agents.iter().find(|agent| agent.name() == name) {
            return Successor::Below(agent);
        }
        if shared.outside.iter().any(|target| *target.name == *name) {
            return Successor::Outside;
        }
        // An agent below this one has handed the conversation back to it.
        Successor::None
    }

    fn next_step(&mut self) -> NextStep {
        if let Some(step) = self.next.take() {
            debug_assert_eq!(step, self.transcript.read(next_step));
            return step;
        }
        match self.transcript.read(next_step) {
            NextStep::Done if self.is_to_speak() => NextStep::Model,
            step => step,
        }
    }

    /// Ends the force of the settings to call a tool, which has been called: a model that must call
    /// one in each step never answers. It stays where a tool or `stop_when` ends the run.
    fn let_choose(&mut self) {
        let is_by_tool = self.is_answered_by_tool();
        let choice = match &self.settings.tool_choice {
            Some(ToolChoice::Required) if is_by_tool => return,
            Some(ToolChoice::Tool(name)) if is_by_tool && name == AnswerFormat::TOOL => return,
            Some(ToolChoice::Required | ToolChoice::Tool(_)) => {
                is_by_tool.then_some(ToolChoice::Required)
            }
            None | Some(ToolChoice::Auto | ToolChoice::None) => return,
        };
        if self.config.options.stop_when.is_none() {
            Arc::make_mut(&mut self.settings).tool_choice = choice;
        }
    }

    /// Returns the end of the run, unless the model must give another final answer.
    async fn judge(&mut self) -> Result<Option<EndReason>> {
        let answer = self
            .transcript
            .read(|messages: &Messages| messages.last().cloned());
        let answer = answer.unwrap_or_else(|| Message::assistant(""));
        let judged = match (&self.answering, self.no_answer) {
            (Some(answering), why) => answering
                .judge(&answer, why)
                .map_or(Ok(EndReason::Completed), Err),
            (None, Some(why)) => {
                let at = self.rules.at_no_answer;
                judge(self.context(), &answer, why, at, self.asked_again)
            }
            (None, None) => Ok(EndReason::Completed),
        };
        let Rejected { again, error, .. } = match judged {
            Ok(end) => return Ok(Some(end)),
            Err(rejected) if self.asked_again >= rejected.max => return Err(rejected.error),
            Err(rejected) => rejected,
        };
        self.asked_again += 1;
        self.ask_again(answer.id(), again, error).await;
        Ok(None)
    }

    /// Adds a message that asks for another answer than the one with this id.
    async fn ask_again(&mut self, answer: Option<&MessageId>, again: Message, error: Error) {
        // Its id says that it quotes the answer.
        let id = answer.map(|id| id.part(IdPart::Repair));
        self.transcript.push(again.with_optional_id(id.as_ref()));
        self.step = None;
        if self.turn.listeners().is_told() {
            let rejected = EventKind::AnswerRejected { error };
            self.turn.listeners().tell(rejected).await;
        }
    }

    /// Returns what the tool calls of this turn need.
    fn tool_turn(&self) -> ToolTurn<'_> {
        ToolTurn {
            config: self.config,
            rules: &self.rules,
            tools: &self.tools,
            transcript: &self.transcript,
            context: &self.turn,
        }
    }

    /// Lets a sub-agent continue the conversation. Returns the response, unless that hands it back.
    async fn hand_over(&mut self, agent: &Agent) -> Result<Option<AgentResponse>> {
        let messages = self.transcript.ordered();
        // From here on the other agent records messages.
        drop(std::mem::take(&mut self.transcript));
        let mut request = self.request.hand_over(messages.in_call_order().clone());
        let shell = &self.config.outline.shell;
        let peers = transfer::targets(&self.config.options.sub_agents);
        request.neighbours = Some(Arc::new(Neighbours {
            parent: TransferTarget {
                name: shell.name.clone(),
                description: shell.description.clone(),
            },
            peers: peers.filter(|peer| *peer.name != *agent.name()).collect(),
        }));
        let response = agent.run(request).await?;
        let iterations = self.iterations - self.earlier.iterations + self.handed();
        let mut tally = TeamResponse::since(self.request.messages().len(), messages, iterations);
        tally.add(&response);
        if *response.end_reason() != EndReason::Transferred || tally.waits() {
            let end = response.end_reason().clone();
            return Ok(Some(tally.response(self.context(), end)));
        }
        if let Some(shared) = &mut self.shared {
            shared.handed += response.iterations();
        }
        let place = self.context().place();
        self.transcript = place.write_on(tally.messages().clone());
        place.take_turn(self.earlier.from);
        self.next = None;
        self.no_answer = None;
        Ok(None)
    }

    /// Returns whether the conversation ends with a message of an earlier run, so that this run
    /// needs a response; or with one that is no answer, of an attempt that has failed with it.
    fn is_to_speak(&self) -> bool {
        let has_asked = self.iterations > self.earlier.iterations;
        self.transcript.read(|messages| {
            let has_failed = || messages.last().and_then(Message::no_answer).is_some();
            messages.len() == self.new_from || (!has_asked && has_failed())
        })
    }

    /// Calls the model. Returns the end of the run if a callback's response ends it.
    async fn ask(&mut self) -> Result<Option<EndReason>> {
        let is_given = self.answer_of_tool().is_some();
        let is_beyond_limit = !is_given && self.is_beyond_limit();
        self.turn.begin_turn(self.iterations, is_beyond_limit);
        self.iterations += u32::from(!is_given);
        let result = if self.turn.listeners().is_told() {
            // Apart, so that there is no room for it where nobody watches.
            boxed(|| self.tell_answer()).await
        } else {
            self.ask_unseen().await
        };
        match result {
            Ok(mut response) => {
                if let Some(again) = response.take_again() {
                    let error = Error::new(ErrorKind::InvalidAnswer, "a callback asks again");
                    let answer = response.message().id().cloned();
                    boxed(|| self.ask_again(answer.as_ref(), again, error)).await;
                    return Ok(None);
                }
                self.no_answer = response.no_answer();
                if let Some(answering) = &mut self.answering {
                    answering.metadata = response.metadata().clone();
                }
                if self.ends_run(response.origin()) || self.says_nothing(&response) {
                    return Ok(Some(EndReason::Completed));
                }
                self.next = Some(step_after(response.into_message()));
                Ok(None)
            }
            Err(error) if is_beyond_limit && error.kind() == ErrorKind::MaxIterations => {
                // The call was refused, and does not count.
                self.iterations -= 1;
                self.limit()
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {
                // The call was not made, and the resumed run makes it.
                self.iterations -= 1;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Calls the model without streaming its response.
    async fn ask_unseen(&self) -> Result<ModelResponse> {
        let (id, messages) = self.transcript.begin_answer();
        let result = self.make(&id, messages, None)?.await;
        self.answer(result, &id, None)
    }

    /// Calls the model, unless a tool has answered in its place.
    fn make(
        &self,
        id: &MessageId,
        messages: Messages,
        sink: Option<DeltaSender>,
    ) -> Result<BoxCallFuture<ModelRequest>> {
        let (instructions, shown_state) = self.instructions()?;
        if let Some(answer) = self.answer_of_tool() {
            let answer = ModelResponse::from_text(answer);
            return Ok(Box::pin(std::future::ready(Ok(answer))));
        }
        let mut request = ModelRequest::in_run(
            &self.turn,
            instructions,
            self.view(messages),
            id,
            &self.declarations,
            &self.settings,
            &self.written,
        );
        request.sink = sink;
        let respond = self.rules.after_model_respond;
        request.after_replaces_all = respond != AfterModelRespond::KeepToolCalls;
        request.is_answered_by_tool = self.is_answered_by_tool();
        request.shown_state = shown_state;
        Ok(self.config.model.make(request))
    }

    /// Returns the instructions for the model.
    fn instructions(&self) -> Result<Instructions> {
        let answering = self.answering.as_deref();
        let instructions = answering.and_then(Answering::instructions);
        let written = instructions.or(self.config.options.instructions.as_ref());
        let (Placeholders::Filled, Some(template)) = (self.rules.placeholders, written) else {
            return Ok((written.cloned(), None));
        };
        let mut keys = Vec::new();
        let filled = self.context().state().fill_with(template, &mut keys)?;
        Ok((Some(filled.into()), (!keys.is_empty()).then(|| keys.into())))
    }

    /// Returns what the model reads of the conversation.
    fn view(&self, messages: Messages) -> Messages {
        let quotes = self.rules.others_turns == OthersTurns::Quoted;
        let is_of_turn = self.config.options.is_without_history;
        if !quotes && !is_of_turn {
            return messages;
        }
        let view = View {
            agent: &self.context().place().author_path(),
            quotes,
            is_of_turn,
        };
        view.of(&messages)
    }

    fn is_answered_by_tool(&self) -> bool {
        self.answering
            .as_ref()
            .is_some_and(|answering| answering.is_by_tool())
    }

    /// Calls the model, and tells of the turn.
    async fn tell_answer(&mut self) -> Result<ModelResponse> {
        let iteration = self.turn.iteration();
        let open = OpenStep {
            turn: self.turn.clone(),
            finish_reason: None,
        };
        let step = OnDrop::new(open, |open| {
            open.turn.scope().tally.set_in_turn(false);
            // Of a call that was dropped, and of those that tools and callbacks have made.
            if let Some(used) = untold_usage(&open.turn) {
                open.turn.listeners().note(used);
            }
            open.turn.listeners().note(EventKind::StepFinished {
                iteration: open.turn.iteration(),
                finish_reason: open.finish_reason.take(),
            });
        });
        self.step = Some(Box::new(step));
        self.turn.scope().tally.set_in_turn(true);
        let started = EventKind::StepStarted { iteration };
        self.turn.listeners().tell(started).await;
        self.turn.scope().tally.begin_attempts();
        let result = match &self.turn.listeners().emitter {
            Some(emitter) => self.show_answer(emitter).await,
            None => self.ask_unseen().await,
        };
        if let (Some(step), Ok(response)) = (&mut self.step, &result) {
            step.finish_reason = Some(response.finish_reason().clone());
        }
        if let Some(used) = untold_usage(&self.turn) {
            self.turn.listeners().tell(used).await;
        }
        result
    }

    /// Calls the model, and streams its response.
    async fn show_answer(&self, emitter: &EventEmitter) -> Result<ModelResponse> {
        let (id, messages) = self.transcript.begin_answer();
        let sink = DeltaSender::new(emitter.clone(), id.clone());
        let mut call = OnDrop::new(sink.clone(), |sink| sink.drop_call());
        let result = self.make(&id, messages, Some(sink))?.await;
        let result = self.answer(result, &id, Some(&call));
        let answer = result
            .as_ref()
            .ok()
            .filter(|answer| !self.says_nothing(answer))
            .map(|answer| (answer.message(), answer.attempt()));
        if let Err(error) = &result {
            call.fail(error.kind());
        }
        // Of attempts that went on in a task of their own when the model had returned.
        for late in call.received().take() {
            self.turn.add_usage(late.usage);
        }
        call.settle(answer).await;
        call.disarm();
        result
    }

    /// Returns the model's response in the form for the transcript.
    #[inline]
    fn answer(
        &self,
        result: Result<ModelResponse>,
        id: &MessageId,
        sink: Option<&DeltaSender>,
    ) -> Result<ModelResponse> {
        let mut response = self
            .turn
            .endings()
            .settle::<ModelRequest, _>(None, result)?;
        if self.is_answered_by_tool() {
            // A callback may have given the answer, too.
            take_calls(response.message_mut());
        }
        if response.is_given() && *response.finish_reason() == FinishReason::PauseTurn {
            // The model has not begun what a callback says, and does not continue it.
            response.message_mut().set_finish_reason(FinishReason::Stop);
        }
        // A message that is right stays shared.
        if !CallIds::are_unique(response.message().tool_calls().map(|call| &call.id)) {
            name_calls_apart(response.message_mut(), self.turn.iteration());
        }
        if response.asks_again() || self.ends_run(response.origin()) || self.is_final(&response) {
            response.drop_tool_calls();
        }
        if self.says_nothing(&response) {
            // Providers refuse a message without content in the next turn.
            return Ok(response);
        }
        if let Some(refused) = self.turn.endings().beyond_limit(CallKind::Model)
            && response.message().tool_calls().next().is_some()
        {
            // Tool calls would need another model call.
            return Err(refused);
        }
        // Before it is recorded, so that the transcript and the stream show the same id.
        self.identify(response.message_mut(), id, sink);
        if let Some(shared) = &self.shared {
            response.message_mut().set_author(shared.author.clone());
        }
        self.turn.scope().tally.push_text(response.message());
        self.transcript.push(response.message().clone());
        self.store_text(response.message());
        Ok(response)
    }

    /// Stores the agent's text in the state, now that it has said this.
    fn store_text(&self, said: &Message) {
        let Some(key) = &self.config.options.output_key else {
            return;
        };
        // Whatever is stored stays until there is something to store.
        if said.text().is_empty() {
            return;
        }
        let author = self.shared.as_ref().map(|shared| &*shared.author);
        let text: String = self.transcript.read(|messages| {
            let own = messages
                .range(self.earlier.from)
                .filter(|message| message.role() == Role::Assistant && message.author() == author);
            own.map(Message::text).collect()
        });
        self.context().state().set(&**key, text);
    }

    /// Gives a response its id: `id`, that of the attempt that shows it, or its own if it is a
    /// response of an earlier process.
    fn identify(&self, response: &mut Message, id: &MessageId, sink: Option<&DeltaSender>) {
        if let Some(own) = response.id()
            && own.number() != id.number()
            && self.transcript.has(own)
        {
            // A cache has returned the same response again. It is another message here.
            response.clear_id();
        }
        match sink {
            Some(sink) => sink.identify(response),
            None if response.id().is_none() => response.set_id(id.clone()),
            None => {}
        }
    }

    /// Returns whether a response ends the run, with or without tool calls.
    fn ends_run(&self, origin: Origin) -> bool {
        origin == Origin::After && self.rules.after_model_respond == AfterModelRespond::EndRun
    }

    /// Returns whether the tool calls of a response are not run.
    fn is_final(&self, response: &ModelResponse) -> bool {
        response.is_given() && self.rules.answered_tool_calls == AnsweredToolCalls::Drop
    }

    /// Returns whether nothing is left of a response that ends the run or is asked for again, since
    /// its calls are not run. A final answer in a format is judged all the same.
    fn says_nothing(&self, response: &ModelResponse) -> bool {
        let ends = || self.ends_run(response.origin()) || self.is_final(response);
        response.message().parts().is_empty()
            && (response.asks_again() || self.answering.is_none() && ends())
    }

    fn waits(&self) -> bool {
        !self.context().interrupts().is_empty()
    }

    fn stopped(&self, stop_when: &StopWhen) -> Result<Option<EndReason>> {
        if self.waits() {
            return Ok(None);
        }
        let messages = self.transcript.ordered();
        let progress = LoopProgress {
            context: self.context(),
            messages: messages.arrived(),
            earlier: &self.earlier,
            iterations: self.iterations,
        };
        let stops = catch(|| stop_when(&progress)).map_err(|panic| {
            Error::new(
                ErrorKind::Callback,
                format!("`stop_when` panicked: {panic}"),
            )
        })?;
        Ok(stops.then_some(EndReason::StopCondition))
    }

    /// Returns the model calls of agents that have handed the conversation back.
    fn handed(&self) -> u32 {
        self.shared.as_ref().map_or(0, |shared| shared.handed)
    }

    fn is_beyond_limit(&self) -> bool {
        self.iterations + self.handed() >= self.context().max_iterations()
    }

    /// Returns whether the next model call is beyond the limit, and no callback is asked about it.
    fn is_refused(&self) -> bool {
        self.is_beyond_limit()
            && self.rules.beyond_limit == BeyondLimit::Refuse
            && self.answer_of_tool().is_none()
    }

    /// Returns the answer that a tool of the last turn has given in place of the model.
    fn answer_of_tool(&self) -> Option<String> {
        // Most agents have no such tool, and this is asked before each model call.
        if !self.tools.gives_answer() {
            return None;
        }
        self.transcript.read(|messages| self.tools.answer(messages))
    }

    fn limit(&self) -> Result<Option<EndReason>> {
        match self.rules.at_limit {
            AtLimit::End => Ok(Some(EndReason::IterationLimit)),
            AtLimit::Fail => Err(limit_reached(self.iterations)),
        }
    }

    /// Ends the run with the messages so far, or with the ending that has no response.
    async fn ended(&self, ending: &Error) -> Result<AgentResponse> {
        if !ending.ends_with_response() {
            return Err(ending.clone());
        }
        // An interrupted run needs its open calls; one that has ended leaves none.
        if !self.waits() {
            self.close(ToolResult::AGENT_ENDED).await;
        }
        let end = EndReason::in_run(self.context());
        Ok(self.response(end))
    }

    /// Adds results to open calls.
    async fn close(&self, why: &str) {
        let NextStep::Tools(open) = self.transcript.read(next_step) else {
            return;
        };
        let mut results = Vec::new();
        for (index, call) in open.calls() {
            let name = open.name(index);
            let mut result = refusal(call, why);
            name.identify_result(&mut result);
            results.push((name, result));
        }
        self.transcript.answer(&results);
        self.context().listeners().tell_results(&results).await;
    }

    fn response(&self, end: EndReason) -> AgentResponse {
        let usage = self.earlier.usage + self.context().scope().tally.usage();
        self.transcript.pause(self.iterations, usage);
        self.context().place().responded(self.request.messages());
        let iterations = self.iterations - self.earlier.iterations + self.handed();
        let messages = self.transcript.ordered();
        AgentResponse::of_run(messages, self.new_from, self.context(), iterations, end)
    }
}

impl SharedConversation {
    /// Returns it for an agent with this request; `None` for an agent alone.
    fn of(config: &LoopConfig, rules: &LoopRules, request: &AgentRequest) -> Option<Box<Self>> {
        let place = request.context().place();
        let author = place.author(!config.options.sub_agents.is_empty())?;
        let mut outside = Vec::new();
        if let Some(neighbours) = &request.neighbours {
            let shell = &config.outline.shell;
            let may = shell.transfer_to_parent;
            if may.unwrap_or(rules.transfer_to_parent) {
                outside.push(neighbours.parent.clone());
            }
            let may = shell.transfer_to_peers;
            if may.unwrap_or(rules.transfer_to_peers) {
                outside.extend_from_slice(&neighbours.peers);
            }
            // A sub-agent of its own is nearer.
            let own = &config.options.sub_agents;
            outside.retain(|target| own.iter().all(|agent| *agent.name() != *target.name));
        }
        Some(Box::new(Self {
            author,
            outside,
            handed: 0,
        }))
    }

    /// Returns these tools with the one for transfers to all whom the agent may transfer to.
    fn offered(&self, config: &LoopConfig, tools: ToolSet) -> Result<ToolSet> {
        if self.outside.is_empty() {
            return Ok(tools);
        }
        let own = transfer::targets(&config.options.sub_agents);
        let targets = own.chain(self.outside.iter().cloned()).collect();
        let Some(transfer) = transfer::tool(targets) else {
            return Ok(tools);
        };
        tools.with(transfer).map_err(|invalid| {
            Error::new(ErrorKind::InvalidRequest, invalid.to_string()).with_source(invalid)
        })
    }
}

/// Returns the event for what the calls of the agent have used since the last one.
fn untold_usage(turn: &RunContext) -> Option<EventKind> {
    let usage = turn.scope().tally.untold_usage();
    let usage = (usage != Usage::default()).then(|| Box::new(usage))?;
    Some(EventKind::Usage { usage })
}

/// Gives tool calls with an empty, duplicate or overlong id a new one: results refer to calls by
/// id.
fn name_calls_apart(message: &mut Message, turn: u32) {
    let mut ids = CallIds::new();
    for (index, part) in message.parts_mut().iter_mut().enumerate() {
        if let Part::ToolCall(call) = part {
            call.id = ids.claim(&call.id, || format!("call_{turn}_{index}"));
        }
    }
}
