//! The directories that a server may work in.
// Deprecated since protocol version 2026-07-28; servers still ask for them.
#![allow(deprecated)]

use std::path::{Path, absolute};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rmcp::model::Root;
use tower_agent::{Error, ErrorKind, Result};

/// The bytes that are escaped in the path of a URI.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// Returns the root of a directory.
pub(super) fn root(directory: &Path) -> Result<Root> {
    let path = absolute(directory).map_err(|error| {
        let message = format!("the root `{}` is no path: {error}", directory.display());
        Error::new(ErrorKind::InvalidRequest, message)
    })?;
    let bytes = path.as_os_str().as_encoded_bytes();
    let uri = if cfg!(windows) {
        let slashes: Vec<u8> = bytes
            .iter()
            .map(|byte| if *byte == b'\\' { b'/' } else { *byte })
            .collect();
        // The colon behind the drive's letter stays.
        let escaped = percent_encode(&slashes, ESCAPED).to_string();
        format!("file:///{}", escaped.replacen("%3A", ":", 1))
    } else {
        format!("file://{}", percent_encode(bytes, ESCAPED))
    };
    let root = Root::new(uri);
    Ok(match path.file_name() {
        Some(name) => root.with_name(name.to_string_lossy()),
        None => root,
    })
}
