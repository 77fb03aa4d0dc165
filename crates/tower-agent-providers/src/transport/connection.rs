//! Converts errors of the HTTP service.

use std::error::Error as StdError;
use std::io;

use tower::buffer::error::{Closed, ServiceError};
use tower::load_shed::error::Overloaded;
use tower::timeout::error::Elapsed;

use tower_agent::error::{BoxError, Error, ErrorKind};

/// Converts an error of the HTTP service. Our errors and tower's keep their kind; others are
/// connection errors.
pub(crate) fn failed(error: BoxError) -> Error {
    connection_error(error, "the HTTP call failed")
}

/// Converts an error of the response's body.
pub(crate) fn broke(error: BoxError) -> Error {
    connection_error(error, "the connection broke while reading the response")
}

fn connection_error(error: BoxError, otherwise: &'static str) -> Error {
    let mut what = otherwise;
    let mut tls = false;
    let mut words = String::new();
    let mut last = String::new();
    let mut next: Option<&(dyn StdError + 'static)> = Some(&*error);
    while let Some(link) = next {
        if let Some(ours) = link.downcast_ref::<Error>() {
            return ours.clone();
        }
        // A layer of tower below the model says more with its type than we could with its text.
        if is_tower(link) {
            return Error::from(error);
        }
        let text = link.to_string();
        // The deepest cause wins: an error of the client wraps those of TLS, of the socket and of
        // the name's look-up, the last of which has no type but this text.
        if is_tls(link) {
            tls = true;
            what = "TLS failed";
        } else if is_io(link, io::ErrorKind::ConnectionRefused) {
            what = "the connection was refused";
        } else if is_io(link, io::ErrorKind::TimedOut) {
            what = "the server does not respond";
        } else if text == "dns error" {
            what = "the host name could not be resolved";
        }
        // Avoids repeating the source of an error that includes it.
        if !last.contains(&text) {
            words.push_str(": ");
            words.push_str(&text);
            last = text;
        }
        next = below(link);
    }
    let connection = Error::new(ErrorKind::Connection, format!("{what}{words}")).with_source(error);
    // A certificate does not get better by another try.
    if tls {
        connection.with_retryable(false)
    } else {
        connection
    }
}

/// The next error of a chain. An `io::Error` hides the error that it wraps and shows the source of
/// that.
fn below<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    match error
        .downcast_ref::<io::Error>()
        .and_then(io::Error::get_ref)
    {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}

fn is_tower(link: &(dyn StdError + 'static)) -> bool {
    link.is::<Elapsed>()
        || link.is::<Overloaded>()
        || link.is::<Closed>()
        || link.is::<ServiceError>()
}

fn is_io(link: &(dyn StdError + 'static), kind: io::ErrorKind) -> bool {
    link.downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == kind)
}

#[cfg(feature = "http-client")]
fn is_tls(link: &(dyn StdError + 'static)) -> bool {
    link.is::<rustls::Error>()
}

#[cfg(not(feature = "http-client"))]
fn is_tls(_: &(dyn StdError + 'static)) -> bool {
    false
}
