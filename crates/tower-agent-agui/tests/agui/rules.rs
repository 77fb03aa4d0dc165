//! The rules of order of AG-UI 1.0, read off the protocol and not off the crate: it looks at the
//! JSON that a front end gets. Stricter than the front end in three things: run ids match, there
//! is one terminal, and it is the last event.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

type Owner = Option<String>;

#[derive(Default)]
struct Rules {
    open: BTreeSet<(&'static str, String)>,
    owners: BTreeMap<(&'static str, String), Owner>,
    steps: BTreeSet<(Owner, String)>,
    begun: BTreeSet<String>,
    running: BTreeSet<String>,
}

/// Checks that these are the events of a run in order; returns the first rule that they break.
pub fn check(thread: &str, run: &str, events: &[Value]) -> Result<(), String> {
    let mut rules = Rules::default();
    for (index, event) in events.iter().enumerate() {
        let kind = text(event, "type");
        let fail = |why: String| Err(format!("event {index}, {event}: {why}"));
        let first = kind == "RUN_STARTED" || kind == "RUN_ERROR";
        if index == 0 && !first {
            return fail("the first event is RUN_STARTED or RUN_ERROR".into());
        }
        if index > 0 && kind == "RUN_STARTED" {
            return fail("the run has begun".into());
        }
        let last = index + 1 == events.len();
        let terminal = kind == "RUN_FINISHED" || kind == "RUN_ERROR";
        if last != terminal {
            return fail("the terminal, and nothing else, is last".into());
        }
        if (kind == "RUN_STARTED" || kind == "RUN_FINISHED")
            && (text(event, "threadId") != thread || text(event, "runId") != run)
        {
            return fail("it is of another run".into());
        }
        if let Err(why) = rules.take(kind, event) {
            return fail(why);
        }
    }
    if events.is_empty() {
        Err("there is no event".into())
    } else {
        Ok(())
    }
}

impl Rules {
    fn take(&mut self, kind: &str, event: &Value) -> Result<(), String> {
        let tag = owner(event);
        let message = || text(event, "messageId").to_owned();
        let call = || text(event, "toolCallId").to_owned();
        match kind {
            "TEXT_MESSAGE_START" => self.start("text", "message", message(), tag),
            "TEXT_MESSAGE_CONTENT" => self.go_on("text", "message", message(), tag, false),
            "TEXT_MESSAGE_END" => self.go_on("text", "message", message(), tag, true),
            "TOOL_CALL_START" => self.start_call(event, call(), tag),
            "TOOL_CALL_ARGS" => self.go_on("call", "call", call(), tag, false),
            "TOOL_CALL_END" => self.go_on("call", "call", call(), tag, true),
            "REASONING_START" => self.start("span", "thought", message(), tag),
            "REASONING_END" => self.go_on("span", "thought", message(), tag, true),
            "REASONING_MESSAGE_START" => self.start("thought", "thought", message(), tag),
            "REASONING_MESSAGE_CONTENT" => self.go_on("thought", "thought", message(), tag, false),
            "REASONING_MESSAGE_END" => self.go_on("thought", "thought", message(), tag, true),
            "TOOL_CALL_RESULT" => {
                self.owners.insert(("message", message()), tag);
                Ok(())
            }
            "REASONING_ENCRYPTED_VALUE" => {
                let id = text(event, "entityId").to_owned();
                let kinds: &[_] = match text(event, "subtype") {
                    "tool-call" => &["call"],
                    _ => &["message", "thought"],
                };
                let known = kinds
                    .iter()
                    .find_map(|kind| self.owners.get(&(*kind, id.clone())));
                known.map_or(Ok(()), |owner| agree(&tag, owner))
            }
            "ACTIVITY_SNAPSHOT" => {
                let key = ("activity", message());
                if event["replace"] != false || !self.owners.contains_key(&key) {
                    self.owners.insert(key, tag);
                }
                Ok(())
            }
            "ACTIVITY_DELTA" => {
                let known = self.owners.get(&("activity", message()));
                known.map_or(Ok(()), |owner| agree(&tag, owner))
            }
            "STEP_STARTED" => {
                let new = self.steps.insert((tag, text(event, "stepName").to_owned()));
                new.then_some(()).ok_or("the step has begun".into())
            }
            "STEP_FINISHED" => {
                let was = self
                    .steps
                    .remove(&(tag, text(event, "stepName").to_owned()));
                was.then_some(())
                    .ok_or("this agent has not begun the step".into())
            }
            "SUBAGENT_STARTED" => {
                if event.get("parentSubagentRunId").is_some()
                    && !self.begun.contains(text(event, "parentSubagentRunId"))
                {
                    return Err("its parent has not begun".into());
                }
                let id = text(event, "subagentRunId").to_owned();
                self.running.insert(id.clone());
                self.begun
                    .insert(id)
                    .then_some(())
                    .ok_or("the name was used".into())
            }
            "SUBAGENT_FINISHED" | "SUBAGENT_ERROR" => {
                let was = self.running.remove(text(event, "subagentRunId"));
                was.then_some(()).ok_or("the subagent does not run".into())
            }
            "RUN_STARTED" => {
                self.messages(&event["input"]["messages"], false);
                Ok(())
            }
            "MESSAGES_SNAPSHOT" => {
                self.messages(&event["messages"], true);
                Ok(())
            }
            "RUN_FINISHED" => {
                if event["outcome"]["interrupts"]
                    .as_array()
                    .is_some_and(Vec::is_empty)
                {
                    return Err("it waits for nothing".into());
                }
                let rest = (&self.open, &self.steps, &self.running);
                let none = rest.0.is_empty() && rest.1.is_empty() && rest.2.is_empty();
                none.then_some(())
                    .ok_or_else(|| format!("still open: {rest:?}"))
            }
            "RUN_ERROR" | "STATE_SNAPSHOT" | "STATE_DELTA" | "RAW" | "CUSTOM" => Ok(()),
            _ => Err("a chunk, or no event of the protocol".into()),
        }
    }

    fn start(
        &mut self,
        set: &'static str,
        kind: &'static str,
        id: String,
        tag: Owner,
    ) -> Result<(), String> {
        agree(
            &tag,
            self.owners
                .entry((kind, id.clone()))
                .or_insert_with(|| tag.clone()),
        )?;
        self.open
            .insert((set, id))
            .then_some(())
            .ok_or("it is open".into())
    }

    fn start_call(&mut self, event: &Value, id: String, tag: Owner) -> Result<(), String> {
        let parent = event["parentMessageId"].as_str().map(str::to_owned);
        let asks = parent.and_then(|parent| self.owners.get(&("message", parent)).cloned());
        let effective = match &asks {
            Some(owner) => {
                agree(&tag, owner)?;
                owner.clone()
            }
            None => tag.clone(),
        };
        let owner = self
            .owners
            .entry(("call", id.clone()))
            .or_insert_with(|| effective.clone());
        if asks.is_some() && effective != *owner {
            return Err("the message that asks is of another agent than the call".into());
        }
        agree(&tag, owner)?;
        self.open
            .insert(("call", id))
            .then_some(())
            .ok_or("it is open".into())
    }

    fn go_on(
        &mut self,
        set: &'static str,
        kind: &'static str,
        id: String,
        tag: Owner,
        ends: bool,
    ) -> Result<(), String> {
        if !self.open.contains(&(set, id.clone())) {
            return Err("it is not open".into());
        }
        agree(&tag, &self.owners[&(kind, id.clone())])?;
        if ends {
            self.open.remove(&(set, id));
        }
        Ok(())
    }

    fn messages(&mut self, messages: &Value, as_they_stand: bool) {
        for message in messages.as_array().into_iter().flatten() {
            let kind = match text(message, "role") {
                "reasoning" => "thought",
                "activity" => "activity",
                _ => "message",
            };
            let mut keys = vec![(kind, text(message, "id").to_owned())];
            let calls = message["toolCalls"].as_array().into_iter().flatten();
            keys.extend(calls.map(|call| ("call", text(call, "id").to_owned())));
            for key in keys {
                if as_they_stand || !self.owners.contains_key(&key) {
                    self.owners.insert(key, owner(message));
                }
            }
        }
    }
}

/// Who names nobody agrees with everybody.
fn agree(tag: &Owner, owner: &Owner) -> Result<(), String> {
    if tag.is_none() || tag == owner {
        return Ok(());
    }
    Err(format!("it is of {owner:?}"))
}

fn owner(event: &Value) -> Owner {
    event
        .get("subagentRunId")
        .map(|id| id.as_str().expect("a string").to_owned())
}

fn text<'a>(event: &'a Value, field: &str) -> &'a str {
    event[field]
        .as_str()
        .unwrap_or_else(|| panic!("no string `{field}` in {event}"))
}
