use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::part::Part;

/// The parts of a message. Most messages have one, which is stored inline, without an allocation of
/// its own.
#[derive(Clone)]
pub(super) struct PartList {
    /// The only part, if there is one.
    one: Option<Part>,
    #[allow(
        clippy::box_collection,
        reason = "most messages have one part, and stay small"
    )]
    many: Option<Box<Vec<Part>>>,
}

impl PartList {
    pub(super) fn as_slice(&self) -> &[Part] {
        match &self.one {
            Some(part) => std::slice::from_ref(part),
            None => self.many.as_deref().map_or(&[], |many| many),
        }
    }

    pub(super) fn as_mut_vec(&mut self) -> &mut Vec<Part> {
        let many = self.many.get_or_insert_default();
        // In a vector from here on, since the caller may push another part.
        many.extend(self.one.take());
        many
    }
}

impl FromIterator<Part> for PartList {
    fn from_iter<I: IntoIterator<Item = Part>>(parts: I) -> Self {
        let mut parts = parts.into_iter();
        match (parts.next(), parts.next()) {
            (one, None) => Self { one, many: None },
            (first, second) => {
                let many = first.into_iter().chain(second).chain(parts).collect();
                Self {
                    one: None,
                    many: Some(Box::new(many)),
                }
            }
        }
    }
}

impl PartialEq for PartList {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Serialize for PartList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_slice().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PartList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from_iter)
    }
}
