//! The schema of requests: the tools' arguments, what is known about a call, and the application's
//! own types.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::str::FromStr;
use std::sync::Arc;

use cedar_policy::{
    Entities, EntityId, EntityTypeName, EntityUid, RestrictedExpression, Schema, SchemaFragment,
};
use serde_json::Value;
use tower_agent::tool::{Effect, ToolDeclaration};

use crate::arguments::{RecordType, quoted};
use crate::error::{PolicyError, Problem, nearest};

/// The type of a tool as a resource.
pub(crate) const TOOL: &str = "Tool";

/// The beginning of the names of the actions about results.
pub(crate) const RESULT: &str = "result:";

/// The name of all arguments of a tool, in place of the name of one.
pub(crate) const ALL: &str = "*";

/// A tool that rules may be about.
pub(crate) struct KnownTool {
    pub(crate) declaration: Arc<ToolDeclaration>,
    pub(crate) input: RecordType,
    /// The type of its result, if it is declared.
    pub(crate) output: Option<RecordType>,
    pub(crate) call: EntityUid,
    pub(crate) result: EntityUid,
    pub(crate) resource: EntityUid,
}

/// Everything that requests are made of.
pub(crate) struct Requests {
    pub(crate) tools: BTreeMap<Arc<str>, KnownTool>,
    pub(crate) schema: Schema,
    /// The actions, with the groups that they are in.
    pub(crate) actions: Entities,
    /// The schema as it is printed.
    pub(crate) text: String,
    pub(crate) has_flow: bool,
    pub(crate) has_app: bool,
    pub(crate) has_own_resources: bool,
}

/// The parts of a schema.
#[derive(Default)]
pub(crate) struct SchemaParts {
    pub(crate) tools: Vec<Arc<ToolDeclaration>>,
    /// The arguments that rules do not see, by the tool.
    pub(crate) hidden: BTreeMap<String, BTreeSet<String>>,
    /// The JSON Schemas of results, by the tool.
    pub(crate) outputs: BTreeMap<String, Value>,
    pub(crate) principals: Vec<String>,
    /// The types of resources; the tool itself if there are none.
    pub(crate) resources: Vec<String>,
    /// The type of what the application adds.
    pub(crate) app: Option<String>,
    pub(crate) has_flow: bool,
    /// The application's own schema, by files.
    pub(crate) files: Vec<(String, String)>,
}

pub(crate) fn entity(kind: &str, id: &str) -> Result<EntityUid, Problem> {
    let name = EntityTypeName::from_str(kind)
        .map_err(|_| Problem::new(format!("`{kind}` is not the name of a type of entities")))?;
    Ok(EntityUid::from_type_name_and_id(name, EntityId::new(id)))
}

/// Returns the name of an effect.
fn effect(of: Effect) -> &'static str {
    match of {
        Effect::Pure => "pure",
        Effect::Idempotent => "idempotent",
        // An effect that is newer than this crate may change something.
        _ => "mutating",
    }
}

impl SchemaParts {
    pub(crate) fn build(self) -> Result<Requests, PolicyError> {
        let mut problems = Vec::new();
        let mut tools = BTreeMap::new();
        for declaration in &self.tools {
            match self.tool(declaration) {
                Ok(tool) => {
                    let name: Arc<str> = declaration.name().into();
                    let known = tools.insert(name, tool);
                    let is_other = known.is_some_and(|known: KnownTool| {
                        known.declaration.parameters() != declaration.parameters()
                    });
                    if is_other {
                        problems.push(Problem::new(format!(
                            "two tools named `{}` have other arguments each: rules cannot tell them apart",
                            declaration.name()
                        )));
                    }
                }
                Err(found) => problems.extend(found),
            }
        }
        let named = self.hidden.keys().chain(self.outputs.keys());
        for name in named {
            if !tools.contains_key(&**name) && !self.tools.iter().any(|tool| tool.name() == name) {
                problems.push(unknown_tool(name, &tools));
            }
        }
        if self.principals.is_empty() {
            problems.push(
                Problem::new("the policy does not say who a principal is")
                    .with_help("add `principals`"),
            );
        }
        if !problems.is_empty() {
            return Err(PolicyError::new(problems));
        }
        let own = self.write(&tools);
        let mut fragments = Vec::new();
        let mut text = String::new();
        for (file, source) in &self.files {
            match SchemaFragment::from_cedarschema_str(source) {
                Ok((fragment, _)) => fragments.push(fragment),
                Err(error) => problems.push(Problem::of(file, source, &error)),
            }
            let _ = writeln!(text, "// {file}\n{}\n", source.trim_end());
        }
        if !problems.is_empty() {
            return Err(PolicyError::new(problems));
        }
        let of_tools = SchemaFragment::from_cedarschema_str(&own).map_err(|error| {
            PolicyError::from(Problem::of("the schema of the tools", &own, &error))
        })?;
        fragments.push(of_tools.0);
        text.push_str(&own);
        let schema = Schema::from_schema_fragments(fragments)
            .map_err(|error| PolicyError::from(Problem::of("the schema", &text, &error)))?;
        let actions = schema
            .action_entities()
            .map_err(|error| PolicyError::from(Problem::new(error.to_string())))?;
        Ok(Requests {
            tools,
            schema,
            actions,
            text,
            has_flow: self.has_flow,
            has_app: self.app.is_some(),
            has_own_resources: !self.resources.is_empty(),
        })
    }

    fn tool(&self, declaration: &Arc<ToolDeclaration>) -> Result<KnownTool, Vec<Problem>> {
        let name = declaration.name();
        let hidden = self.hidden.get(name).cloned().unwrap_or_default();
        let properties = declaration.parameters().get("properties");
        let has = |argument: &str| properties.is_some_and(|all| all.get(argument).is_some());
        let misspelt = hidden
            .iter()
            .filter(|argument| *argument != ALL && !has(argument));
        let misspelt = misspelt.map(|argument| {
            let problem = format!("tool `{name}` has no argument `{argument}` to leave out");
            let names = properties.and_then(Value::as_object).into_iter().flatten();
            match nearest(argument, names.map(|(name, _)| &**name)) {
                Some(near) => Problem::new(problem).with_help(format!("did you mean `{near}`?")),
                None => Problem::new(problem),
            }
        });
        let misspelt: Vec<_> = misspelt.collect();
        if !misspelt.is_empty() {
            return Err(misspelt);
        }
        let input = if hidden.contains(ALL) {
            Ok(RecordType::hidden())
        } else {
            RecordType::of_schema(declaration.parameters(), hidden)
        };
        let inexpressible = |what: &str, found: Vec<crate::arguments::Inexpressible>| {
            let problems = found.into_iter().map(|part| {
                let (at, argument) = match part.at.trim_start_matches('/') {
                    "" => (format!("the {what}s"), ALL),
                    at => (
                        format!("{what} `{at}`"),
                        at.split('/').next().unwrap_or(ALL),
                    ),
                };
                let problem = Problem::new(format!(
                    "tool `{name}`: rules cannot be about {at}: {}",
                    part.why
                ));
                match what {
                    "argument" => problem.with_help(format!(
                        "leave it out with `without_argument(\"{name}\", \"{argument}\")`, and let \
                         an attribute of the application say what rules need of it"
                    )),
                    _ => problem,
                }
            });
            problems.collect::<Vec<_>>()
        };
        let input = input.map_err(|found| inexpressible("argument", found))?;
        let output = match self.outputs.get(name) {
            Some(schema) => Some(
                RecordType::of_schema(schema, BTreeSet::new())
                    .map_err(|found| inexpressible("result", found))?,
            ),
            None => None,
        };
        let uid = |kind: &str| entity(kind, name).map_err(|problem| vec![problem]);
        Ok(KnownTool {
            declaration: declaration.clone(),
            input,
            output,
            call: uid("Action")?,
            // No tool has a name with a colon.
            result: entity("Action", &format!("{RESULT}{name}"))
                .map_err(|problem| vec![problem])?,
            resource: uid(TOOL)?,
        })
    }

    /// Writes the part of the schema that follows from the tools.
    fn write(&self, tools: &BTreeMap<Arc<str>, KnownTool>) -> String {
        let mut text = String::from(
            "// A tool. Its effect is \"pure\", \"idempotent\" or \"mutating\"; `agent` says whether an agent works\n\
             // in it, and `others` whether a server or a page has described it.\n\
             entity Tool = { effect: String, agent: Bool, others: Bool };\n\n\
             // Every tool, by its effect.\n\
             action \"effect:pure\", \"effect:idempotent\", \"effect:mutating\";\n\n\
             // Whether the result of a call may be read: those of all tools.\n\
             action \"results:all\";\n",
        );
        for tool in tools.values() {
            let declaration = &tool.declaration;
            let group = effect(declaration.effect());
            let _ = write!(
                text,
                "\naction {} in [\"effect:{group}\"] appliesTo ",
                quoted(declaration.name())
            );
            self.write_request(&mut text, tool, None);
        }
        for tool in tools.values() {
            let mut output = String::new();
            if let Some(value) = &tool.output {
                output.push_str(", value: ");
                value.write(&mut output);
            }
            let name = format!("{RESULT}{}", tool.declaration.name());
            let _ = write!(
                text,
                "\naction {} in [\"results:all\"] appliesTo ",
                quoted(&name)
            );
            self.write_request(&mut text, tool, Some(&output));
        }
        text
    }

    fn write_request(&self, text: &mut String, tool: &KnownTool, output: Option<&str>) {
        let resources = if self.resources.is_empty() {
            TOOL.to_owned()
        } else {
            self.resources.join(", ")
        };
        let _ = write!(
            text,
            "{{\n  principal: [{}],\n  resource: [{resources}],\n  context: {{\n    input: ",
            self.principals.join(", ")
        );
        tool.input.write(text);
        text.push_str(
            ",\n    session: {time: datetime, calls: Long, conversation_calls: Long, iteration: Long, \
             agent: String, streamed: Bool}",
        );
        if self.has_flow {
            text.push_str(
                ",\n    flow: {untrusted: Bool, arguments: Set<String>, sources: Set<String>}",
            );
        }
        if let Some(app) = &self.app {
            let _ = write!(text, ",\n    app: {app}");
        }
        if let Some(output) = output {
            let _ = write!(
                text,
                ",\n    output: {{text: String, is_error: Bool{output}}}"
            );
        }
        text.push_str("\n  }\n};\n");
    }
}

fn unknown_tool(name: &str, tools: &BTreeMap<Arc<str>, KnownTool>) -> Problem {
    let problem = Problem::new(format!("there is no tool `{name}`"));
    match nearest(name, tools.keys().map(|name| &**name)) {
        Some(near) => problem.with_help(format!("did you mean `{near}`?")),
        None => problem,
    }
}

impl KnownTool {
    /// Returns the tool as an entity.
    pub(crate) fn entity(&self) -> Result<cedar_policy::Entity, Problem> {
        let declaration = &self.declaration;
        let attributes = [
            (
                "effect".to_owned(),
                RestrictedExpression::new_string(effect(declaration.effect()).to_owned()),
            ),
            (
                "agent".to_owned(),
                RestrictedExpression::new_bool(declaration.is_agent()),
            ),
            (
                "others".to_owned(),
                RestrictedExpression::new_bool(declaration.is_described_by_others()),
            ),
        ];
        cedar_policy::Entity::new(
            self.resource.clone(),
            attributes.into_iter().collect(),
            Default::default(),
        )
        .map_err(|error| Problem::new(error.to_string()))
    }
}
