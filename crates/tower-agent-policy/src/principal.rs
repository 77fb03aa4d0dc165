use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// The one for whom a run is made, as rules see it: a Cedar entity with the groups that it is in.
///
/// It is made of what the server has given the run, and of nothing that a model, a tool or a client
/// can write.
///
/// ```
/// use tower_agent_policy::Principal;
///
/// let ann = Principal::new("User", "ann")
///     .within("Role", "support")
///     .attribute("tenant", "shop-7");
/// # drop(ann);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Principal {
    kind: String,
    id: String,
    parents: Vec<(String, String)>,
    attributes: BTreeMap<String, Value>,
}

impl Principal {
    /// Creates a principal of a type of the schema.
    #[must_use]
    pub fn new(kind: impl Into<String>, id: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            id: id.into(),
            parents: Vec::new(),
            attributes: BTreeMap::new(),
        }
    }

    /// Puts it into a group, such as a role or a tenant: `principal in Role::"support"`.
    #[must_use]
    pub fn within(mut self, kind: impl Into<String>, id: impl Into<String>) -> Self {
        self.parents.push((kind.into(), id.into()));
        self
    }

    /// Gives it an attribute, which the schema types. An entity is written as Cedar writes it in
    /// JSON: `{ "type": "Shop", "id": "7" }`.
    #[must_use]
    pub fn attribute(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.attributes.insert(name.into(), value.into());
        self
    }

    /// Returns the type of the entity.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns the id of the entity.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Adds this principal to entities in Cedar's JSON. What both say about it is joined; an
    /// attribute that both have is an error, with its name.
    pub(crate) fn join(&self, entities: &mut Vec<Value>) -> Result<(), String> {
        let own = entities.iter_mut().find(|entity| self.is(&entity["uid"]));
        let Some(own) = own else {
            entities.push(json!({
                "uid": reference(&self.kind, &self.id),
                "parents": self.parents(),
                "attrs": self.attributes,
            }));
            return Ok(());
        };
        let Some(own) = own.as_object_mut() else {
            return Err("an entity is not an object".to_owned());
        };
        let parents = own.entry("parents").or_insert_with(|| json!([]));
        match parents {
            Value::Array(parents) => parents.extend(self.parents()),
            _ => return Err("the parents of an entity are not a list".to_owned()),
        }
        let attributes = own
            .entry("attrs")
            .or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(attributes) = attributes else {
            return Err("the attributes of an entity are not an object".to_owned());
        };
        for (name, value) in &self.attributes {
            if attributes.contains_key(name) {
                return Err(format!(
                    "both the run and the source of entities say what `{name}` of the principal is"
                ));
            }
            attributes.insert(name.clone(), value.clone());
        }
        Ok(())
    }

    fn parents(&self) -> Vec<Value> {
        let parents = self.parents.iter();
        parents.map(|(kind, id)| reference(kind, id)).collect()
    }

    /// Returns whether a reference in JSON names this principal.
    fn is(&self, reference: &Value) -> bool {
        let reference = reference.get("__entity").unwrap_or(reference);
        reference["type"] == *self.kind && reference["id"] == *self.id
    }
}

fn reference(kind: &str, id: &str) -> Value {
    json!({ "type": kind, "id": id })
}
