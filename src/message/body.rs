use std::sync::Arc;

use super::finish_reason::FinishReason;
use super::part::Part;
use super::provider_data::ProviderData;

/// The contents of a message.
///
/// Most messages have one part and nothing else. The part is stored inline: with another
/// allocation, or with more room, the allocator would take longer for each message of a
/// conversation.
#[derive(Clone)]
pub(super) enum MessageBody {
    /// The only part, and nothing else.
    One(Part),
    Other(Box<OtherBody>),
}

#[derive(Clone, Default)]
pub(super) struct OtherBody {
    pub(super) parts: Vec<Part>,
    pub(super) provider: ProviderData,
    /// `None` for the usual ones, which the parts tell.
    pub(super) finish_reason: Option<FinishReason>,
    pub(super) author: Option<Arc<str>>,
}

impl MessageBody {
    pub(super) fn parts(&self) -> &[Part] {
        match self {
            Self::One(part) => std::slice::from_ref(part),
            Self::Other(other) => &other.parts,
        }
    }

    pub(super) fn other(&self) -> Option<&OtherBody> {
        match self {
            Self::One(_) => None,
            Self::Other(other) => Some(other),
        }
    }

    pub(super) fn other_mut(&mut self) -> &mut OtherBody {
        match self {
            Self::Other(other) => other,
            Self::One(_) => {
                let one = std::mem::replace(self, Self::Other(Box::default()));
                let other = self.other_mut();
                if let Self::One(part) = one {
                    other.parts.push(part);
                }
                other
            }
        }
    }
}

impl From<OtherBody> for MessageBody {
    fn from(mut body: OtherBody) -> Self {
        let is_bare =
            body.provider.is_empty() && body.finish_reason.is_none() && body.author.is_none();
        match body.parts.pop() {
            Some(only) if is_bare && body.parts.is_empty() => Self::One(only),
            last => {
                body.parts.extend(last);
                Self::Other(Box::new(body))
            }
        }
    }
}

impl FromIterator<Part> for MessageBody {
    fn from_iter<I: IntoIterator<Item = Part>>(parts: I) -> Self {
        let mut parts = parts.into_iter().fuse();
        match (parts.next(), parts.next()) {
            (Some(only), None) => Self::One(only),
            (first, second) => Self::Other(Box::new(OtherBody {
                parts: first.into_iter().chain(second).chain(parts).collect(),
                ..OtherBody::default()
            })),
        }
    }
}
