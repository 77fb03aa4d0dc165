use std::time::SystemTime;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::{millis, unique};
use crate::chance;
use crate::json_types::{Misfit, strict_misfit};

/// A question that an interrupted run waits on.
///
/// An answer counts for what was shown: it repeats the [id](Self::id), and a question with another
/// content has another id. So asking about something else makes the answer to the earlier question
/// void. A tool or a callback asks with [`ToolRequest::ask`](crate::ToolRequest::ask) or
/// [`RunContext::ask`](crate::RunContext::ask), which look for the answer.
///
/// ```
/// use serde_json::json;
/// use tower_agent::Interrupt;
///
/// let ask = |cents: u32| Interrupt::new("refund", "confirmation").with_payload(json!({ "cents": cents }));
/// assert_eq!(ask(10).id, ask(10).id);
/// assert_ne!(ask(10).id, ask(900_000).id);
/// ```
///
/// It serialises, so that another process can resume the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
#[must_use]
pub struct Interrupt {
    /// Identifies what is asked: a digest of the name and everything that is shown or decides about
    /// the answer, which are all fields but those of the call in streams. The methods of this type
    /// keep it up to date; after a change of a field it is when the interrupt is
    /// [raised](crate::Error::interrupt).
    pub id: String,
    /// Tells the question from the others of its conversation, such as by the
    /// [path](crate::RunContext::call_path) of a call. Asked anew with another content, it has the
    /// same name.
    pub name: String,
    /// The reason: `tool_call`, `input_required`, `confirmation` or one of your own.
    pub reason: String,
    /// The text to show to the person who answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The tool call that waits. Filled in from the call if empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The id of that call in streams, which tells it from calls with the same `tool_call_id`: the
    /// one that [`ToolCallStart`](crate::stream::EventKind::ToolCallStart) has. Filled in with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_in_stream: Option<String>,
    /// The JSON Schema of the answer, from which a front end can build a form.
    #[serde(
        default,
        skip_serializing_if = "Value::is_null",
        serialize_with = "crate::depth::serialize"
    )]
    pub response_schema: Value,
    /// Further data for answering.
    #[serde(
        default,
        skip_serializing_if = "Value::is_null",
        serialize_with = "crate::depth::serialize"
    )]
    pub payload: Value,
    /// The party that answers.
    pub answerer: Answerer,
    /// The names of those who may not answer, although they are of the party that does: for
    /// somebody else than the one who asked, or than those who have answered before. Whoever
    /// answers must have a [name](Resolution::by) then. `None` if anybody of the party may answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub except: Option<Vec<String>>,
    /// The end of the time for an answer; `None` if there is none.
    // Required: without it the question could be answered for ever.
    #[serde(deserialize_with = "Option::deserialize")]
    pub expiry: Option<Expiry>,
    /// The digest of the call that the question is about, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
}

impl Interrupt {
    /// Creates an interrupt with this [name](Self::name).
    pub fn new(name: impl Into<String>, reason: impl Into<String>) -> Self {
        let interrupt = Self {
            id: String::new(),
            name: name.into(),
            reason: reason.into(),
            message: None,
            tool_call_id: None,
            call_in_stream: None,
            response_schema: Value::Null,
            payload: Value::Null,
            answerer: Answerer::User,
            except: None,
            expiry: None,
            subject: None,
        };
        interrupt.identified()
    }

    /// Gives it the id of its content.
    pub(crate) fn identified(mut self) -> Self {
        // As JSON, in which each part has its place and no two contents are the same text.
        let mut content = json!([
            self.name,
            self.reason,
            self.message,
            self.response_schema,
            self.payload,
            self.answerer,
            self.except,
            self.expiry,
            self.subject,
        ]);
        // A store may keep objects in another order.
        content.sort_all_objects();
        self.id = chance::name(&["question", &content.to_string()]).to_string();
        self
    }

    /// Binds the question to a call: it is another one for another call.
    pub(crate) fn about(mut self, call: &str, tool: &str, arguments: &Value) -> Self {
        let mut arguments = arguments.clone();
        arguments.sort_all_objects();
        let subject = chance::name(&[call, tool, &arguments.to_string()]);
        self.subject = Some(subject.to_string());
        self.identified()
    }

    /// Sets the text to show to the person who answers.
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self.identified()
    }

    /// Sets the JSON Schema of the answer.
    pub fn with_response_schema(mut self, schema: Value) -> Self {
        self.response_schema = schema;
        self.identified()
    }

    /// Sets further data for answering.
    pub fn with_payload(mut self, payload: Value) -> Self {
        self.payload = payload;
        self.identified()
    }

    /// Returns the id of the call that waits, if one does: the one that streams have, or else the
    /// model's.
    #[must_use]
    pub fn call(&self) -> Option<&str> {
        let call = self.call_in_stream.as_deref();
        call.or(self.tool_call_id.as_deref())
    }

    /// Leaves the answer to people with this role, and not to the user of the run. Servers for
    /// front ends take it only from a client that has the role, and do not show the question to
    /// others.
    ///
    /// For a question whose answer is trusted or decides about the user's request: the approval of
    /// a payment, the result of a call.
    ///
    /// ```
    /// use tower_agent::Interrupt;
    /// use tower_agent::error::Answerer;
    ///
    /// let question = Interrupt::new("refund 7", "tool_call").for_role("support");
    /// assert_eq!(question.answerer.role(), Some("support"));
    /// assert_eq!(Interrupt::new("size", "input_required").answerer, Answerer::User);
    /// ```
    pub fn for_role(self, role: impl Into<String>) -> Self {
        self.for_answerer(Answerer::Role(role.into()))
    }

    /// Leaves the answer to this party.
    pub fn for_answerer(mut self, answerer: Answerer) -> Self {
        self.answerer = answerer;
        self.identified()
    }

    /// Leaves the answer to somebody whom the server knows by name, and who is none of
    /// [these](Self::except).
    ///
    /// ```
    /// use std::time::SystemTime;
    ///
    /// use tower_agent::{Interrupt, Resolution};
    ///
    /// let question = Interrupt::new("refund 7", "confirmation").for_others_than(["sam".to_owned()]);
    /// let yes = Resolution::resolved(&question.id, true);
    /// let now = SystemTime::now();
    /// assert!(question.check(&yes, now).is_err());
    /// assert!(question.check(&yes.clone().with_name("sam"), now).is_err());
    /// assert!(question.check(&yes.with_name("kim"), now).is_ok());
    /// ```
    pub fn for_others_than(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.except = Some(names.into_iter().collect());
        self.identified()
    }

    /// Checks an answer that comes at this time, before anything runs: whether the time for it is
    /// [over](Self::with_expiry), whether it fits the [schema](Self::response_schema), and whether
    /// whoever gives it [may](Self::except). A question whose answer is refused stays as it is.
    ///
    /// When the time is over, only the outcome that the question then has anyway counts, whoever
    /// says it. A cancellation has nothing to fit. The party is not looked at: the server has to
    /// ask its own records for it.
    ///
    /// Sessions, threads, journals, inboxes and MCP servers ask this one method.
    ///
    /// ```
    /// use std::time::SystemTime;
    ///
    /// use serde_json::json;
    /// use tower_agent::{Interrupt, Resolution};
    ///
    /// let question = Interrupt::new("size", "input_required").with_response_schema(json!({
    ///     "type": "object", "properties": { "cm": { "type": "number" } }, "required": ["cm"],
    /// }));
    /// let wrong = Resolution::resolved(&question.id, json!({ "cm": "large" }));
    /// let error = question.check(&wrong, SystemTime::now()).unwrap_err();
    /// assert_eq!(error.to_string(), "the answer does not fit the question: `cm`: invalid type: string");
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if it is too late, does not fit, or is not for this person to give.
    pub fn check(&self, answer: &Resolution, now: SystemTime) -> Result<(), AnswerError> {
        if let Some(due) = self.answer_at(now) {
            let is_due = answer.outcome == due.outcome;
            return if is_due {
                Ok(())
            } else {
                Err(AnswerError::Late)
            };
        }
        let ResolutionOutcome::Resolved(payload) = &answer.outcome else {
            return Ok(());
        };
        self.check_name(answer.by.as_deref())?;
        let Some(Misfit { field, problem, .. }) = strict_misfit(payload, &self.response_schema)
        else {
            return Ok(());
        };
        let place = if field.is_empty() {
            String::new()
        } else {
            format!("`{field}`: ")
        };
        Err(AnswerError::Misfit(format!("{place}{problem}")))
    }

    /// Checks whether somebody of this name [may](Self::except) answer, as [`check`](Self::check)
    /// does.
    ///
    /// # Errors
    ///
    /// Fails if not.
    pub fn check_name(&self, name: Option<&str>) -> Result<(), AnswerError> {
        let Some(except) = &self.except else {
            return Ok(());
        };
        let name = name.ok_or(AnswerError::Unnamed)?;
        if except.iter().any(|other| other == name) {
            return Err(AnswerError::Excluded(name.to_owned()));
        }
        Ok(())
    }

    /// Sets a time after which nobody can answer: from then on the answer is this outcome. Whatever
    /// raises the interrupt must accept it.
    ///
    /// Sessions, threads, journals and MCP servers refuse a later answer, with
    /// [`AnswerError::Late`] as the reason, and give the outcome to the next run of the
    /// conversation. A program that resumes a checkpoint itself asks [`check`](Self::check) and
    /// [`answer_at`](Self::answer_at).
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    ///
    /// use serde_json::json;
    /// use tower_agent::error::ResolutionOutcome;
    /// use tower_agent::{Interrupt, Resolution};
    ///
    /// let asked_at = SystemTime::now();
    /// let hour = Duration::from_secs(60 * 60);
    /// let no = ResolutionOutcome::Resolved(json!({ "approved": false }));
    /// let question = Interrupt::new("refund 7", "tool_call").with_expiry(asked_at + hour, no);
    ///
    /// let yes = Resolution::resolved(&question.id, json!({ "approved": true }));
    /// assert!(question.check(&yes, asked_at).is_ok());
    /// assert!(question.check(&yes, asked_at + hour).is_err());
    ///
    /// let no = Resolution::resolved(&question.id, json!({ "approved": false }));
    /// assert_eq!(question.answer_at(asked_at + hour), Some(no));
    /// ```
    pub fn with_expiry(self, at: SystemTime, outcome: ResolutionOutcome) -> Self {
        self.with_expiry_of(Some(Expiry::new(at, outcome)))
    }

    /// Sets the end of the time for an answer, such as that of the same question before it was
    /// asked again.
    pub fn with_expiry_of(mut self, expiry: Option<Expiry>) -> Self {
        self.expiry = expiry;
        self.identified()
    }

    /// Returns the answer that the interrupt has without a person at this time: the outcome of its
    /// [expiry](Self::with_expiry), if its time is over.
    #[must_use]
    pub fn answer_at(&self, now: SystemTime) -> Option<Resolution> {
        let expiry = self.expiry.as_ref().filter(|expiry| expiry.at <= now)?;
        Some(Resolution {
            id: self.id.clone(),
            by: None,
            outcome: expiry.outcome.clone(),
        })
    }
}

/// The reason why an answer to an [`Interrupt`] does not count; see
/// [`check`](Interrupt::check).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AnswerError {
    /// The [time](Interrupt::with_expiry) for an answer is over. Go on without it: the next run
    /// of the conversation has the outcome that the question names.
    #[error("the time to answer this question is over: go on without an answer")]
    Late,
    /// It does not fit the [schema](Interrupt::response_schema), for this reason.
    #[error("the answer does not fit the question: {0}")]
    Misfit(String),
    /// The server does not know who gives it, and the question asks for somebody whom it knows.
    #[error("only somebody whom the server knows by name may answer this question")]
    Unnamed,
    /// This person [may not](Interrupt::except) give it.
    #[error("this question is for somebody else than `{0}` to answer")]
    Excluded(String),
}

/// The end of the time for an answer to an [`Interrupt`], and what happens then.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
#[must_use]
pub struct Expiry {
    /// The first time at which nobody can answer. In whole milliseconds.
    #[serde(with = "millis")]
    pub at: SystemTime,
    /// The outcome from then on.
    pub outcome: ResolutionOutcome,
}

impl Expiry {
    /// Creates the end of the time. It is rounded to milliseconds.
    pub fn new(at: SystemTime, outcome: ResolutionOutcome) -> Self {
        // As it is stored: the same before and after.
        let at = millis::rounded(at);
        Self { at, outcome }
    }
}

/// The party that answers an [`Interrupt`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Answerer {
    /// The user whose run it is.
    User,
    /// Anybody with this role, such as `support`. The application says who has it.
    Role(String),
}

impl Answerer {
    /// Returns the role; `None` if the user answers.
    #[must_use]
    pub fn role(&self) -> Option<&str> {
        match self {
            Self::User => None,
            Self::Role(role) => Some(role),
        }
    }
}

/// The answer to one [`Interrupt`], given to the run that resumes.
///
/// ```
/// use serde_json::json;
/// use tower_agent::{Interrupt, Resolution};
///
/// let id = Interrupt::new("refund 7", "confirmation").id;
/// let yes = Resolution::resolved(&id, json!({ "approved": true }));
/// let saved = serde_json::to_value(&yes).unwrap();
/// assert_eq!(saved, json!({ "id": id, "status": "resolved", "payload": { "approved": true } }));
/// assert_eq!(serde_json::from_value::<Resolution>(saved).unwrap(), yes);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Resolution {
    /// The [`Interrupt::id`] that this resolves.
    pub id: String,
    /// The name of who answers, as the server knows it; never one that a client has sent. `None` if
    /// the server knows none, or nobody has answered in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: ResolutionOutcome,
}

/// The outcome of an [`Interrupt`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", content = "payload", rename_all = "snake_case")]
#[non_exhaustive]
pub enum ResolutionOutcome {
    /// With this answer. Its form depends on the interrupt.
    Resolved(
        #[serde(
            serialize_with = "crate::depth::serialize",
            deserialize_with = "unique::deserialize"
        )]
        Value,
    ),
    /// There will be no answer.
    Cancelled,
}

impl Resolution {
    /// Reads the payload of an answer, for `deserialize_with` in the types of a protocol.
    ///
    /// Deserializing a resolution does the same.
    ///
    /// # Errors
    ///
    /// Fails if an object has a key twice: who has read the first value, a person or a log, would
    /// approve something else than what is read here.
    pub fn deserialize_payload<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Value, D::Error> {
        unique::deserialize(deserializer)
    }

    /// Creates a resolution of the interrupt `id` with an answer.
    #[must_use]
    pub fn resolved(id: impl Into<String>, payload: impl Into<Value>) -> Self {
        Self {
            id: id.into(),
            by: None,
            outcome: ResolutionOutcome::Resolved(payload.into()),
        }
    }

    /// Sets the [name](Self::by) of who answers, as the server knows it.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.by = Some(name.into());
        self
    }

    /// Creates a resolution that cancels the interrupt `id`.
    #[must_use]
    pub fn cancelled(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            by: None,
            outcome: ResolutionOutcome::Cancelled,
        }
    }
}
