use serde_json::{Map, Value};

use super::provider::{PROVIDER, own};
use tower_agent::message::{Media, MediaSource, Part, ProviderData};
use tower_agent::model::Settings;

/// The images and the audio that the model makes. They are marked as its own.
#[derive(Debug)]
pub(super) struct OwnMedia {
    images: Vec<Part>,
    audio_type: &'static str,
    /// The audio in base64, in pieces. One that ends with padding ends the data of a part.
    audio: Vec<String>,
    audio_fields: Map<String, Value>,
}

impl OwnMedia {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            images: Vec::new(),
            audio_type: audio_type(settings),
            audio: Vec::new(),
            audio_fields: Map::new(),
        }
    }

    /// Adds the images of a message or a delta, as OpenRouter sends them.
    pub(super) fn add_images(&mut self, message: &Value) {
        for image in message["images"].as_array().into_iter().flatten() {
            let url = &image["image_url"];
            if let Some(url) = url["url"].as_str().or(url.as_str()) {
                let mut image = Media::new(source(url));
                image.provider = own(None, None);
                self.images.push(Part::image(image));
            }
        }
    }

    /// Adds the audio of a message or a delta.
    pub(super) fn add_audio(&mut self, message: &Value) {
        let audio = &message["audio"];
        let data = audio["data"].as_str().unwrap_or_default();
        match self.audio.last_mut().filter(|last| !last.ends_with('=')) {
            Some(last) => last.push_str(data),
            None if data.is_empty() => {}
            None => self.audio.push(data.to_owned()),
        }
        for name in ["id", "expires_at"] {
            if !audio[name].is_null() {
                self.audio_fields.insert(name.into(), audio[name].clone());
            }
        }
    }

    /// Returns the parts and keeps none.
    pub(super) fn take(&mut self) -> Vec<Part> {
        let mut parts = std::mem::take(&mut self.images);
        for data in std::mem::take(&mut self.audio) {
            let mut provider = ProviderData::default();
            provider.set(PROVIDER, Value::Object(self.audio_fields.clone()));
            let mut audio = Media::new(MediaSource::base64(self.audio_type, data));
            audio.provider = provider;
            parts.push(Part::audio(audio));
        }
        parts
    }
}

/// Returns the media type of the audio that a request asks for.
fn audio_type(settings: &Settings) -> &'static str {
    let audio = settings.extra.get("audio");
    match audio.and_then(|audio| audio["format"].as_str()) {
        Some("mp3") => "audio/mpeg",
        Some("flac") => "audio/flac",
        Some("opus") => "audio/opus",
        Some("aac") => "audio/aac",
        Some("pcm16") => "audio/l16;rate=24000",
        _ => "audio/wav",
    }
}

fn source(url: &str) -> MediaSource {
    let data = url
        .strip_prefix("data:")
        .and_then(|url| url.split_once(";base64,"));
    match data {
        Some((media_type, data)) => MediaSource::base64(media_type, data),
        None => MediaSource::url(url),
    }
}

/// Returns whether a part is media that a model of this protocol made.
pub(super) fn is_own_media(part: &Part) -> bool {
    match part {
        Part::Image(image) => image.provider.get(PROVIDER).is_some(),
        Part::Audio(audio) => audio.provider.get(PROVIDER).is_some(),
        _ => false,
    }
}
