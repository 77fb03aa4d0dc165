//! A run as a recording, for those who see content.

use http::header::CONTENT_DISPOSITION;
use http::{HeaderValue, Response};

use super::body::ResponseBody;
use super::reply::{Refusal, typed};
use crate::console::{Console, Found};
use crate::operator::Operator;

/// Returns the recording of a run as a file, and writes down who has taken it.
pub(super) async fn recording(
    console: &Console,
    operator: &Operator,
    run: &str,
) -> Result<Response<ResponseBody>, Refusal> {
    let response = save(console, operator, run).await.map(|text| {
        let mut response = typed("application/json", text);
        // The id may be anything, and is no name of a file.
        let name = HeaderValue::from_static("attachment; filename=\"recording.json\"");
        response.headers_mut().insert(CONTENT_DISPOSITION, name);
        response
    });
    let status = response
        .as_ref()
        .map_or_else(Refusal::status, Response::status);
    console.inner.audited(
        operator,
        "save",
        format!("run {}", run.chars().take(200).collect::<String>()),
        status,
    );
    response
}

async fn save(console: &Console, operator: &Operator, run: &str) -> Result<String, Refusal> {
    if !operator.sees_content {
        return Err(Refusal::content());
    }
    if matches!(console.inner.find(run).await?, Found::Nowhere) {
        return Err(Refusal::not_found());
    }
    Ok(console.recording(run).await?)
}
