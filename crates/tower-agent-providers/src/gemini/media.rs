use tower_agent::message::{Media, MediaSource, Part, ProviderData};

/// Returns an image, audio, or else a document that the model made.
pub(super) fn media(kind: &str, source: MediaSource, provider: ProviderData) -> Part {
    let mut media = Media::new(source);
    media.provider = provider;
    match kind {
        "image" => Part::image(media),
        "audio" => Part::audio(media),
        _ => Part::document(media),
    }
}
