//! Reads a request body within limits.

use std::error::Error as StdError;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use super::limits::Limits;
use super::reply::Refusal;
use crate::bounds::VALUES_OF_AN_OBJECT;
use tower_agent::error::BoxError;

pub(super) async fn read<B>(body: B, limits: Limits) -> Result<Bytes, Refusal>
where
    B: http_body::Body<Error: Into<BoxError>>,
{
    // Rejected before it is read, if its length is known.
    if body.size_hint().lower() > limits.body as u64 {
        return Err(too_large(limits));
    }
    let body = Limited::new(body, limits.body).collect();
    // Of the whole: a body that comes a byte at a time would keep its permit for as long as it
    // likes.
    let body = tokio::time::timeout(limits.body_time, body)
        .await
        .map_err(|_| too_slow(limits))?
        .map_err(|error| {
            if error.is::<LengthLimitError>() {
                return too_large(limits);
            }
            // An outer layer may have a limit of its own.
            let status = if is_limit(&*error) {
                StatusCode::PAYLOAD_TOO_LARGE
            } else {
                StatusCode::BAD_REQUEST
            };
            Refusal::new(status, format!("the body did not arrive: {error}"))
        })?;
    let body = body.to_bytes();
    // Checked before it is parsed: parsing and dropping nested values both recurse.
    let shape = Shape::of(&body);
    if shape.nesting > limits.nesting {
        let message = format!(
            "the JSON is nested more than {} levels deep",
            limits.nesting
        );
        return Err(Refusal::new(StatusCode::BAD_REQUEST, message));
    }
    if shape.values > limits.values {
        let message = format!("the JSON has more than {} values", limits.values);
        return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message));
    }
    Ok(body)
}

fn too_large(limits: Limits) -> Refusal {
    let message = format!("the body is larger than {} bytes", limits.body);
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message)
}

fn too_slow(limits: Limits) -> Refusal {
    let message = format!("the body did not arrive within {:?}", limits.body_time);
    Refusal::new(StatusCode::REQUEST_TIMEOUT, message)
}

fn is_limit(error: &(dyn StdError + 'static)) -> bool {
    error.is::<LengthLimitError>() || error.source().is_some_and(is_limit)
}

/// The shape of a JSON text, which decides how much memory its values take.
struct Shape {
    /// In levels of arrays and objects.
    nesting: usize,
    /// Arrays, objects, and what is in them; each object as several.
    values: usize,
}

impl Shape {
    fn of(json: &[u8]) -> Self {
        let mut depth = 0_usize;
        let mut shape = Self {
            nesting: 0,
            values: 1,
        };
        // Brackets and commas inside strings have no meaning.
        let mut in_string = false;
        let mut escaped = false;
        for byte in json {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if in_string => escaped = true,
                b'"' => in_string = !in_string,
                b'[' | b'{' if !in_string => {
                    depth += 1;
                    shape.nesting = shape.nesting.max(depth);
                    shape.values += if *byte == b'{' {
                        VALUES_OF_AN_OBJECT
                    } else {
                        1
                    };
                }
                b',' if !in_string => shape.values += 1,
                // The text may be invalid, which the parser reports later.
                b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        shape
    }
}
