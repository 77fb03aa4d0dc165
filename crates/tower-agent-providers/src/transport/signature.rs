//! Signs requests as AWS requires: Signature Version 4.

use std::time::SystemTime;

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4::SigningParams;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Request};

use crate::protocol::AwsAccess;
use tower_agent::error::{BoxError, Error, ErrorKind, Result};

/// Adds the headers with the signature of a request.
pub(super) fn add(
    access: &AwsAccess,
    credentials: &Credentials,
    request: &mut Request<Bytes>,
) -> Result<()> {
    let headers = signed_headers(access, credentials, request).map_err(|error| {
        let message = format!("the request cannot be signed: {error}");
        Error::new(ErrorKind::InvalidRequest, message)
    })?;
    request.headers_mut().extend(headers);
    Ok(())
}

type Headers = Vec<(HeaderName, HeaderValue)>;

fn signed_headers(
    access: &AwsAccess,
    credentials: &Credentials,
    request: &Request<Bytes>,
) -> Result<Headers, BoxError> {
    // Headers that a layer below may change, such as `accept`, are not signed; AWS requires its
    // own.
    let headers = request
        .headers()
        .iter()
        .filter(|(name, _)| **name == CONTENT_TYPE || name.as_str().starts_with("x-amz"));
    let headers: Vec<_> = headers
        .map(|(name, value)| Ok((name.as_str(), value.to_str()?)))
        .collect::<Result<_, BoxError>>()?;
    let uri = request.uri().to_string();
    let body = SignableBody::Bytes(request.body());
    let signable = SignableRequest::new(request.method().as_str(), uri, headers.into_iter(), body)?;
    let identity = credentials.clone().into();
    let params = SigningParams::builder()
        .identity(&identity)
        .region(access.require_region()?)
        .name(access.service())
        .time(SystemTime::now())
        .settings(SigningSettings::default())
        .build()?;
    let (instructions, _) = sign(signable, &params.into())?.into_parts();
    let (headers, _) = instructions.into_parts();
    let mut signed = Headers::new();
    for header in headers {
        let mut value = HeaderValue::from_str(header.value())?;
        // So that layers do not print it.
        value.set_sensitive(true);
        signed.push((HeaderName::from_static(header.name()), value));
    }
    Ok(signed)
}
