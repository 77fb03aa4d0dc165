//! Answers a server's requests for completions of a model (sampling).
// It is deprecated; servers still ask for it.
#![allow(deprecated)]

use rmcp::model::{
    AudioContent, CreateMessageRequestParams, CreateMessageResult, ErrorData, ImageContent, Role,
    SamplingMessage, SamplingMessageContentBlock,
};
use tower::ServiceExt;
use tower_agent::message::MediaSource;
use tower_agent::model::FinishReason;
use tower_agent::{Message, ModelRequest, ModelResponse, Part, RunContext, Settings};

use super::config::Config;

/// Answers with the caller's model, as a part of `run`.
pub(super) async fn answer(
    config: &Config,
    params: CreateMessageRequestParams,
    run: RunContext,
) -> Result<CreateMessageResult, ErrorData> {
    let Some(model) = &config.sampling else {
        return Err(ErrorData::invalid_request(
            "this client answers no sampling requests",
            None,
        ));
    };
    let request = request(params)?.with_context(run.clone());
    let response = model.clone().oneshot(request).await.map_err(|error| {
        let server = &config.server;
        // The server gets the kind alone: the message may quote the run or the provider.
        tracing::warn!(run_id = run.run_id(), agent = run.path(), %server, error = %error.to_string().escape_debug(), "the model did not answer a sampling request");
        ErrorData::internal_error(format!("the model did not answer: {}", error.kind()), None)
    })?;
    result(&response)
}

fn request(params: CreateMessageRequestParams) -> Result<ModelRequest, ErrorData> {
    if params.tools.is_some_and(|tools| !tools.is_empty()) {
        return Err(ErrorData::invalid_params(
            "this client offers no tools in sampling",
            None,
        ));
    }
    let messages = params
        .messages
        .into_iter()
        .map(message)
        .collect::<Result<Vec<_>, _>>()?;
    let mut settings = Settings::default();
    settings.temperature = params.temperature.map(f64::from);
    settings.max_tokens = Some(params.max_tokens);
    settings.stop = params.stop_sequences.unwrap_or_default();
    let mut request = ModelRequest::new(messages).with_settings(settings);
    request.set_instructions(params.system_prompt.map(Into::into));
    Ok(request)
}

fn message(message: SamplingMessage) -> Result<Message, ErrorData> {
    let parts = message
        .content
        .into_vec()
        .into_iter()
        .map(|content| match content {
            SamplingMessageContentBlock::Text(text) => Ok(Part::from_text(text.text)),
            SamplingMessageContentBlock::Image(image) => Ok(Part::image(MediaSource::base64(
                image.mime_type,
                image.data,
            ))),
            SamplingMessageContentBlock::Audio(audio) => Ok(Part::audio(MediaSource::base64(
                audio.mime_type,
                audio.data,
            ))),
            _ => Err(ErrorData::invalid_params(
                "this client offers no tools in sampling",
                None,
            )),
        });
    let role = match message.role {
        Role::User => tower_agent::Role::User,
        _ => tower_agent::Role::Assistant,
    };
    Ok(Message::new(role, parts.collect::<Result<Vec<_>, _>>()?))
}

fn result(response: &ModelResponse) -> Result<CreateMessageResult, ErrorData> {
    let parts = response.message().parts().iter();
    let mut content = parts.filter_map(content).collect::<Result<Vec<_>, _>>()?;
    let message = match content.len() {
        0 => SamplingMessage::assistant_text(""),
        1 => SamplingMessage::new(Role::Assistant, content.remove(0)),
        _ => SamplingMessage::new_multiple(Role::Assistant, content),
    };
    let model = response.metadata().model.clone();
    let model = model.unwrap_or_else(|| "unknown".to_owned());
    let stop = match response.finish_reason() {
        FinishReason::Length => CreateMessageResult::STOP_REASON_END_MAX_TOKEN,
        _ => CreateMessageResult::STOP_REASON_END_TURN,
    };
    Ok(CreateMessageResult::new(message, model).with_stop_reason(stop))
}

/// Converts a part for the server. `None` for reasoning, which is not for it.
fn content(part: &Part) -> Option<Result<SamplingMessageContentBlock, ErrorData>> {
    let cannot_carry = || {
        let message = "the model answered with something that sampling cannot carry";
        Some(Err(ErrorData::internal_error(message, None)))
    };
    let content = match part {
        Part::Text(text) => SamplingMessageContentBlock::text(text.text.clone()),
        Part::Image(image) => match &image.source {
            MediaSource::Base64 { media_type, data } => SamplingMessageContentBlock::Image(
                ImageContent::new(data.clone(), media_type.clone()),
            ),
            _ => return cannot_carry(),
        },
        Part::Audio(audio) => match &audio.source {
            MediaSource::Base64 { media_type, data } => SamplingMessageContentBlock::Audio(
                AudioContent::new(data.clone(), media_type.clone()),
            ),
            _ => return cannot_carry(),
        },
        Part::Reasoning(_) => return None,
        _ => return cannot_carry(),
    };
    Some(Ok(content))
}
