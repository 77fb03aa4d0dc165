use tower_agent::message::{Audio, Document, Image, MediaSource, Part, ProviderData};

/// Returns an image, audio, or else a document that the model made.
pub(super) fn media(kind: &str, source: MediaSource, provider: ProviderData) -> Part {
    match kind {
        "image" => {
            let mut image = Image::new(source);
            image.provider = provider;
            image.into()
        }
        "audio" => {
            let mut audio = Audio::new(source);
            audio.provider = provider;
            audio.into()
        }
        _ => {
            let mut document = Document::new(source);
            document.provider = provider;
            document.into()
        }
    }
}
