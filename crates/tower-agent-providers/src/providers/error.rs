use std::sync::Arc;

use tower_agent::error::{Error, ErrorKind};

/// [`Providers`](super::Providers) has no model of a name.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProvidersError {
    /// The name has no provider.
    #[error("`{name}` names no provider: write `<provider>:{name}`, with one of {}", list(.known))]
    NoProvider {
        /// The name.
        name: String,
        /// The known providers.
        known: Vec<String>,
    },
    /// There is no such provider.
    #[error(
        "there is no provider `{provider}`, only {}; others are features of `tower-agent-providers`, \
         or added with `Providers::with`",
        list(.known)
    )]
    Unknown {
        /// The provider.
        provider: String,
        /// The known providers.
        known: Vec<String>,
    },
    /// The name has no model.
    #[error("`{provider}:` names no model: write `{provider}:<model>`")]
    NoModel {
        /// The provider.
        provider: String,
    },
    /// The provider is not configured correctly.
    #[error("cannot use the provider `{provider}`: {source}")]
    Build {
        /// The provider.
        provider: String,
        /// The problem.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
}

fn list(known: &[String]) -> String {
    match known {
        [] => "none".to_owned(),
        known => known
            .iter()
            .map(|name| format!("`{name}`"))
            .collect::<Vec<_>>()
            .join(", "),
    }
}

impl From<ProvidersError> for Error {
    fn from(error: ProvidersError) -> Self {
        Self::from_source(ErrorKind::InvalidRequest, error)
    }
}
