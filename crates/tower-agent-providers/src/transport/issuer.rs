//! The issuers of opaque data.
//!
//! A signature, a sealed item or an id of a server's own is good for the server that made it, and
//! others that speak the same protocol refuse it, at every later turn. So a client marks what it
//! has received with its issuer, and leaves out what has another one. Data without an issuer is the
//! caller's own, and goes to any server.

use std::sync::Arc;

use http::HeaderMap;

use super::call_ids;
use crate::protocol::{fnv1a, issuer_of_host};
use tower_agent::message::{Message, Part, ProviderData};
use tower_agent::model::{ModelRequest, ModelResponse};

/// The issuer of the opaque data that a client sends.
#[derive(Clone, Debug)]
pub(super) struct Issuer {
    /// The key of the data.
    provider: &'static str,
    name: Arc<str>,
    /// The name without an account, for data that is bound to one.
    family: Option<Arc<str>>,
}

/// The headers that name an account, the more exact ones first, and the key as a last resort.
const ACCOUNTS: [&str; 3] = ["openai-project", "openai-organization", "authorization"];

impl Issuer {
    /// Returns the issuer that the caller has named.
    pub(super) fn named(provider: &'static str, name: &str) -> Self {
        Self {
            provider,
            name: name.into(),
            family: None,
        }
    }

    /// Returns the issuer of a host.
    pub(super) fn of_host(
        provider: &'static str,
        target: &str,
        host: &str,
        headers: &HeaderMap,
    ) -> Self {
        let (name, is_bound) = issuer_of_host(provider, target, host);
        let issuer = Self {
            family: is_bound.then(|| name.into()),
            ..Self::named(provider, name)
        };
        issuer.for_headers(headers)
    }

    /// Returns the issuer of a call with these headers, which may name another account.
    pub(super) fn for_headers(mut self, headers: &HeaderMap) -> Self {
        let Some(family) = &self.family else {
            return self;
        };
        let mut values = ACCOUNTS.iter().filter_map(|name| headers.get(*name));
        if let Some(account) = values.next() {
            // Far too short to find the key by it: it is stored with conversations.
            let digest = fnv1a(&String::from_utf8_lossy(account.as_bytes())) & 0xffff_ffff;
            self.name = format!("{family}/{digest:08x}").into();
        }
        self
    }

    /// Returns the request as it is to be sent, if that differs: without what others have made, and
    /// with ids of calls that are unique in it.
    pub(super) fn own(&self, request: &ModelRequest) -> Option<ModelRequest> {
        let mut own: Option<ModelRequest> = None;
        for (index, message) in request.messages().iter().enumerate() {
            let mut parts = message.parts().iter();
            if !self.is_foreign(message.provider()) && !parts.any(|part| self.has_foreign(part)) {
                continue;
            }
            let own = own.get_or_insert_with(|| request.clone());
            if let Some(message) = own.messages_mut().get_mut(index) {
                self.strip(message);
            }
        }
        if call_ids::may_repeat(request.messages()) {
            let own = own.get_or_insert_with(|| request.clone());
            call_ids::make_unique(own.messages_mut(), self.provider);
        }
        own
    }

    fn has_foreign(&self, part: &Part) -> bool {
        match part {
            Part::ToolResult(result) => result.parts.iter().any(|part| self.has_foreign(part)),
            part => data_of(part).is_some_and(|data| self.is_foreign(data)),
        }
    }

    fn is_foreign(&self, data: &ProviderData) -> bool {
        let issuer = data.issuer(self.provider);
        issuer.is_some_and(|issuer| *issuer != *self.name)
    }

    fn strip(&self, message: &mut Message) {
        if self.is_foreign(message.provider()) {
            message.provider_mut().remove(self.provider);
        }
        self.strip_parts(message.parts_mut());
    }

    fn strip_parts(&self, parts: &mut [Part]) {
        for part in parts {
            let is_media = matches!(part, Part::Image(_) | Part::Audio(_) | Part::Document(_));
            match part {
                Part::ToolResult(result) => self.strip_parts(&mut result.parts),
                part => {
                    if let Some(data) = data_mut(part).filter(|data| self.is_foreign(data)) {
                        data.remove(self.provider);
                        if is_media {
                            // It is still the work of a model, which has a place of its own.
                            data.set(self.provider, serde_json::json!({}));
                        }
                    }
                }
            }
        }
    }

    /// Marks what a server has sent.
    pub(super) fn mark(&self, response: &mut ModelResponse) {
        let is_unmarked = |data: &ProviderData| {
            data.get(self.provider).is_some() && data.issuer(self.provider).is_none()
        };
        let message = response.message();
        // Asking for mutable parts copies them if they are shared, and many answers have no data.
        if is_unmarked(message.provider()) {
            let data = response.message_mut().provider_mut();
            data.set_issuer(self.provider, self.name.clone());
        }
        let mut parts = response.message().parts().iter();
        if !parts.any(|part| data_of(part).is_some_and(is_unmarked)) {
            return;
        }
        for part in response.message_mut().parts_mut() {
            if let Some(data) = data_mut(part).filter(|data| is_unmarked(data)) {
                data.set_issuer(self.provider, self.name.clone());
            }
        }
    }
}

/// Returns the data of a part. A result has none itself.
fn data_of(part: &Part) -> Option<&ProviderData> {
    Some(match part {
        Part::Text(text) => &text.provider,
        Part::Reasoning(reasoning) => &reasoning.provider,
        Part::Image(image) => &image.provider,
        Part::Audio(audio) => &audio.provider,
        Part::Document(document) => &document.provider,
        Part::ToolCall(call) => &call.provider,
        Part::Provider(data) => data,
        _ => return None,
    })
}

fn data_mut(part: &mut Part) -> Option<&mut ProviderData> {
    Some(match part {
        Part::Text(text) => &mut text.provider,
        Part::Reasoning(reasoning) => &mut reasoning.provider,
        Part::Image(image) => &mut image.provider,
        Part::Audio(audio) => &mut audio.provider,
        Part::Document(document) => &mut document.provider,
        Part::ToolCall(call) => &mut call.provider,
        Part::Provider(data) => data,
        _ => return None,
    })
}
