use std::sync::Arc;

use super::finish_reason::FinishReason;
use super::part::Part;
use super::provider_data::ProviderData;

/// The parts of a message, and the provider data, the finish reason and the author of the whole
/// message.
///
/// Most messages have one part and none of those. The part is stored inline: with another
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
    parts: Vec<Part>,
    provider: ProviderData,
    /// `None` for the usual ones, which the parts tell.
    finish_reason: Option<Box<FinishReason>>,
    author: Option<Arc<str>>,
}

impl MessageBody {
    pub(super) fn new(
        parts: Vec<Part>,
        provider: ProviderData,
        finish_reason: Option<Box<FinishReason>>,
        author: Option<Arc<str>>,
    ) -> Self {
        if provider.is_empty() && finish_reason.is_none() && author.is_none() {
            return parts.into_iter().collect();
        }
        Self::Other(Box::new(OtherBody {
            parts,
            provider,
            finish_reason,
            author,
        }))
    }

    pub(super) fn parts(&self) -> &[Part] {
        match self {
            Self::One(part) => std::slice::from_ref(part),
            Self::Other(other) => &other.parts,
        }
    }

    fn other(&self) -> Option<&OtherBody> {
        match self {
            Self::One(_) => None,
            Self::Other(other) => Some(other),
        }
    }

    pub(super) fn provider(&self) -> &ProviderData {
        static NONE: ProviderData = ProviderData::none();
        self.other().map_or(&NONE, |other| &other.provider)
    }

    /// Returns the finish reason, if it is an unusual one.
    pub(super) fn finish_reason(&self) -> Option<&FinishReason> {
        self.other()?.finish_reason.as_deref()
    }

    pub(super) fn set_finish_reason(&mut self, reason: Option<FinishReason>) {
        self.other_mut().finish_reason = reason.map(Box::new);
    }

    pub(super) fn author(&self) -> Option<&Arc<str>> {
        self.other()?.author.as_ref()
    }

    pub(super) fn set_author(&mut self, author: Arc<str>) {
        self.other_mut().author = Some(author);
    }

    pub(super) fn parts_mut(&mut self) -> &mut Vec<Part> {
        &mut self.other_mut().parts
    }

    pub(super) fn provider_mut(&mut self) -> &mut ProviderData {
        &mut self.other_mut().provider
    }

    fn other_mut(&mut self) -> &mut OtherBody {
        match self {
            Self::Other(other) => other,
            Self::One(_) => {
                let one = std::mem::replace(self, Self::Other(Box::default()));
                if let Self::One(part) = one {
                    self.parts_mut().push(part);
                }
                self.other_mut()
            }
        }
    }
}

impl FromIterator<Part> for MessageBody {
    fn from_iter<I: IntoIterator<Item = Part>>(parts: I) -> Self {
        let mut parts = parts.into_iter();
        let Some(first) = parts.next() else {
            return Self::Other(Box::default());
        };
        let Some(second) = parts.next() else {
            return Self::One(first);
        };
        Self::Other(Box::new(OtherBody {
            parts: [first, second].into_iter().chain(parts).collect(),
            ..OtherBody::default()
        }))
    }
}
