//! Plans the tool calls for the user's requests, and words their results.

use serde_json::{Map, Value};
use tower_agent::message::{ToolCall, ToolResult};

use super::expr::{Decimal, Expr, Operator};
use super::grammar::Wish;

/// All steps, each after those whose results it needs, and the final text.
#[derive(Debug, Default)]
pub(super) struct Plan {
    steps: Vec<Step>,
    goals: Vec<Goal>,
}

/// One tool call.
#[derive(Debug)]
struct Step {
    tool: &'static str,
    arguments: Vec<(&'static str, Operand)>,
}

#[derive(Clone, Copy, Debug)]
enum Operand {
    Number(f64),
    ResultOf(usize),
}

#[derive(Debug)]
enum Goal {
    Say { question: String, answer: Operand },
    Deletion { step: usize },
    Refuse,
}

impl Plan {
    pub(super) fn new(wishes: &[Wish]) -> Self {
        let mut plan = Self::default();
        for wish in wishes {
            let goal = match wish {
                Wish::Calculate(expr) => Goal::Say {
                    question: expr.to_string(),
                    answer: plan.value(expr),
                },
                Wish::DeleteEverything => Goal::Deletion {
                    step: plan.step("delete_all_records", []),
                },
                Wish::Unknown => Goal::Refuse,
            };
            plan.goals.push(goal);
        }
        plan
    }

    fn value(&mut self, expr: &Expr) -> Operand {
        match expr {
            Expr::Number(number) => Operand::Number(*number),
            Expr::Percent(percent) => {
                let percent = self.value(percent);
                self.percent_of(percent, Operand::Number(1.0))
            }
            Expr::PercentOf(percent, whole) => {
                let (percent, whole) = (self.value(percent), self.value(whole));
                self.percent_of(percent, whole)
            }
            Expr::Binary(operator, left, right) => {
                let a = self.value(left);
                let b = match (operator, &**right) {
                    (Operator::Add | Operator::Subtract, Expr::Percent(percent)) => {
                        let percent = self.value(percent);
                        self.percent_of(percent, a)
                    }
                    (_, right) => self.value(right),
                };
                let tool = match operator {
                    Operator::Add => "add",
                    Operator::Subtract => "subtract",
                    Operator::Multiply => "multiply",
                    Operator::Divide => "divide",
                };
                Operand::ResultOf(self.step(tool, [("a", a), ("b", b)]))
            }
        }
    }

    fn percent_of(&mut self, percent: Operand, whole: Operand) -> Operand {
        Operand::ResultOf(self.step("percent_of", [("percent", percent), ("whole", whole)]))
    }

    fn step<const N: usize>(
        &mut self,
        tool: &'static str,
        arguments: [(&'static str, Operand); N],
    ) -> usize {
        self.steps.push(Step {
            tool,
            arguments: arguments.into(),
        });
        self.steps.len() - 1
    }

    /// Returns the progress, given the tool results so far.
    pub(super) fn progress<'a>(
        &self,
        result_of: impl Fn(usize) -> Option<&'a ToolResult>,
    ) -> Progress<'_> {
        let mut progress = Progress {
            plan: self,
            steps: Vec::with_capacity(self.steps.len()),
        };
        for (index, step) in self.steps.iter().enumerate() {
            let state = match result_of(index) {
                Some(result) => State::of(result),
                None => progress.state_of_unasked(step),
            };
            progress.steps.push(state);
        }
        progress
    }
}

/// A plan and its progress.
#[derive(Debug)]
pub(super) struct Progress<'a> {
    plan: &'a Plan,
    /// One for each step.
    steps: Vec<State>,
}

#[derive(Clone, Debug)]
enum State {
    /// It needs a missing result.
    Waiting,
    /// It can be called with these arguments.
    Ready(Map<String, Value>),
    Done(String),
    /// It, or a step that it needs, has failed for this reason.
    Failed(String),
}

impl State {
    fn of(result: &ToolResult) -> Self {
        let text = result.text();
        if !result.is_error {
            return Self::Done(text);
        }
        // The text of a failed call is `kind: why`, that of a refusal just `why`.
        Self::Failed(
            text.split_once(": ")
                .map_or(&*text, |(_, why)| why)
                .to_owned(),
        )
    }
}

impl Progress<'_> {
    /// Returns the calls to make now, named by their step.
    pub(super) fn calls(&self, id: impl Fn(usize) -> String) -> impl Iterator<Item = ToolCall> {
        let steps = self.plan.steps.iter().zip(&self.steps).enumerate();
        steps.filter_map(move |(index, (step, state))| match state {
            State::Ready(arguments) => Some(ToolCall::new(
                id(index),
                step.tool,
                Value::from(arguments.clone()),
            )),
            _ => None,
        })
    }

    /// Returns the final text.
    pub(super) fn answer(&self) -> String {
        let mut sentences: Vec<_> = self
            .plan
            .goals
            .iter()
            .map(|goal| self.sentence(goal))
            .collect();
        sentences.dedup();
        match &sentences[..] {
            [] => "Ask me something.".to_owned(),
            sentences => sentences.join(" "),
        }
    }

    fn sentence(&self, goal: &Goal) -> String {
        match goal {
            Goal::Say { question, answer } => match self.number(*answer) {
                Ok(number) => format!("{question} is {}.", Decimal(number)),
                Err(State::Failed(why)) => format!("{question} has no answer: {why}."),
                Err(_) => format!("{question} has no answer."),
            },
            Goal::Deletion { step } => match &self.steps[*step] {
                State::Failed(why) => format!("I deleted nothing: {why}."),
                State::Done(what) => format!("Done: {what}."),
                State::Waiting | State::Ready(_) => "I deleted nothing.".to_owned(),
            },
            Goal::Refuse => "I can only do arithmetic.".to_owned(),
        }
    }

    fn state_of_unasked(&self, step: &Step) -> State {
        let mut arguments = Map::new();
        for (name, operand) in &step.arguments {
            match self.number(*operand) {
                Ok(number) => arguments.insert((*name).to_owned(), number.into()),
                Err(State::Failed(why)) => return State::Failed(why),
                Err(_) => return State::Waiting,
            };
        }
        State::Ready(arguments)
    }

    /// Returns an operand's value, or why it has none.
    fn number(&self, operand: Operand) -> Result<f64, State> {
        match operand {
            Operand::Number(number) => Ok(number),
            Operand::ResultOf(step) => match &self.steps[step] {
                State::Done(text) => text
                    .parse()
                    .map_err(|_| State::Failed(format!("`{text}` is not a number"))),
                state => Err(state.clone()),
            },
        }
    }
}
