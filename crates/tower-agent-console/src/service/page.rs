//! The page and its files.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::CONTENT_SECURITY_POLICY;
use http::{HeaderValue, Response};
use sha2::{Digest, Sha256};

use super::body::ResponseBody;
use super::reply::{Refusal, typed};

const PAGE: &str = include_str!("../page/index.html");

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Each file's name, type and content.
const FILES: &[(&str, &str, &str)] = &[
    (
        "style.css",
        "text/css; charset=utf-8",
        include_str!("../page/style.css"),
    ),
    ("app.js", SCRIPT, include_str!("../page/app.js")),
    ("dom.js", SCRIPT, include_str!("../page/dom.js")),
    ("server.js", SCRIPT, include_str!("../page/server.js")),
    ("runs.js", SCRIPT, include_str!("../page/runs.js")),
    ("prefix.js", SCRIPT, include_str!("../page/prefix.js")),
    ("run.js", SCRIPT, include_str!("../page/run.js")),
    ("list.js", SCRIPT, include_str!("../page/list.js")),
    ("stack.js", SCRIPT, include_str!("../page/stack.js")),
    ("inbox.js", SCRIPT, include_str!("../page/inbox.js")),
    ("data.js", SCRIPT, include_str!("../page/data.js")),
    ("diff.js", SCRIPT, include_str!("../page/diff.js")),
    ("beside.js", SCRIPT, include_str!("../page/beside.js")),
    ("durable.js", SCRIPT, include_str!("../page/durable.js")),
    ("limits.js", SCRIPT, include_str!("../page/limits.js")),
    ("fork.js", SCRIPT, include_str!("../page/fork.js")),
];

/// The policy on what the page may load: its own files, and the one script in it, by its hash.
static POLICY: LazyLock<Option<HeaderValue>> = LazyLock::new(|| {
    let script = PAGE.split_once("<script>")?.1.split_once("</script>")?.0;
    let hash = STANDARD.encode(Sha256::digest(script));
    let policy = format!(
        "default-src 'none'; script-src 'self' 'sha256-{hash}'; style-src 'self'; \
         connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    HeaderValue::try_from(policy).ok()
});

/// Returns a file, by its name. The page has none.
pub(super) fn file(name: &str) -> Result<Response<ResponseBody>, Refusal> {
    if name.is_empty() {
        let mut response = typed("text/html; charset=utf-8", PAGE);
        if let Some(policy) = &*POLICY {
            response
                .headers_mut()
                .insert(CONTENT_SECURITY_POLICY, policy.clone());
        }
        return Ok(response);
    }
    let mut files = FILES.iter();
    let (_, content_type, content) = files
        .find(|(known, ..)| *known == name)
        .ok_or_else(Refusal::not_found)?;
    Ok(typed(content_type, *content))
}
