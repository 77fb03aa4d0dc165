use std::borrow::Cow;

use crate::protocol::push_segments;
use tower_agent::error::{Error, ErrorKind, Result};

/// The service's address for all locations.
pub(super) const BASE_URL: &str = "https://aiplatform.googleapis.com/v1";

/// The variable of Google's own clients.
pub(super) const BASE_URL_VARIABLE: &str = "GOOGLE_VERTEX_BASE_URL";

/// The variable of an access token.
pub(super) const KEY_VARIABLE: &str = "GOOGLE_OAUTH_ACCESS_TOKEN";

/// The provider's name for prices and telemetry.
pub(super) const TARGET: &str = "vertex_ai";

/// The location without a region.
const GLOBAL: &str = "global";

/// The place where calls of Vertex AI go.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct VertexLocation {
    /// The project that the calls are made for.
    pub project: Option<String>,
    /// A region such as `europe-west4`, `us`, `eu` or `global`. Defaults to `global`.
    pub location: Option<String>,
}

impl VertexLocation {
    /// Sets what is not set from the environment.
    pub(super) fn complete(&mut self, environment: &dyn Fn(&str) -> Option<String>) {
        if self.project.is_none() {
            self.project = environment("GOOGLE_CLOUD_PROJECT");
        }
        if self.location.is_none() {
            self.location = environment("GOOGLE_CLOUD_LOCATION");
        }
    }

    fn location(&self) -> &str {
        self.location.as_deref().unwrap_or(GLOBAL)
    }

    fn require_project(&self) -> Result<&str, String> {
        let project = self.project.as_deref().filter(|project| is_word(project));
        project.ok_or_else(|| {
            let message = "no project is set: set `GOOGLE_CLOUD_PROJECT`, or call `project` on the \
                           builder";
            message.to_owned()
        })
    }

    /// Returns the address of the location.
    pub(super) fn base_url(&self) -> Result<Cow<'static, str>, String> {
        let location = self.location();
        if !is_word(location) {
            return Err(format!(
                "`{location}` is not a location: write it as in `europe-west4`"
            ));
        }
        self.require_project()?;
        Ok(match location {
            GLOBAL => BASE_URL.into(),
            "us" | "eu" => format!("https://aiplatform.{location}.rep.googleapis.com/v1").into(),
            region => format!("https://{region}-aiplatform.googleapis.com/v1").into(),
        })
    }

    /// Returns the path of a model of a publisher, or of a resource of the project.
    pub(super) fn path(&self, publisher: &str, model: &str) -> Result<String> {
        let invalid = |message| Error::new(ErrorKind::InvalidRequest, message);
        let project = self.require_project().map_err(invalid)?;
        let location = self.location();
        let model = model.trim_start_matches('/');
        let mut path = format!("/projects/{project}/locations/{location}");
        if !model.contains('/') {
            path.push_str("/publishers/");
            path.push_str(publisher);
            path.push_str("/models");
        }
        push_segments(&mut path, model)?;
        Ok(path)
    }
}

/// Returns whether a text can stand in a host and in a path. The project of some organisations is
/// preceded by a domain, as in `example.com:project`.
fn is_word(text: &str) -> bool {
    let is_accepted = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:_".contains(&byte);
    !text.is_empty() && text != "." && text != ".." && text.bytes().all(is_accepted)
}
