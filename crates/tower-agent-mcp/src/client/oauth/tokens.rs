use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use rmcp::transport::auth::{
    AuthError, CredentialRefreshGuard, CredentialStore, StoredCredentials,
};
use serde::{Deserialize, Serialize};
use tower_agent::BoxError;

use crate::lock::lock;

/// The tokens of one user for one server, to be kept as a secret.
#[derive(Clone, Serialize, Deserialize)]
pub struct Tokens {
    /// The URL of the server.
    resource: String,
    credentials: StoredCredentials,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

/// A place where the tokens of one user for one server are kept between runs of the program.
///
/// ```
/// use std::path::PathBuf;
///
/// use tower_agent::BoxError;
/// use tower_agent_mcp::client::oauth::{TokenStore, Tokens};
///
/// /// A file that only its owner can read.
/// struct File(PathBuf);
///
/// impl TokenStore for File {
///     async fn load(&self) -> Result<Option<Tokens>, BoxError> {
///         match tokio::fs::read(&self.0).await {
///             Ok(json) => Ok(Some(serde_json::from_slice(&json)?)),
///             Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
///             Err(error) => Err(error.into()),
///         }
///     }
///
///     async fn save(&self, tokens: Option<Tokens>) -> Result<(), BoxError> {
///         tokio::fs::write(&self.0, serde_json::to_vec(&tokens)?).await?;
///         Ok(())
///     }
/// }
/// ```
pub trait TokenStore: Send + Sync + 'static {
    /// Returns the tokens that were saved last. Called with every request.
    fn load(&self) -> impl Future<Output = Result<Option<Tokens>, BoxError>> + Send;

    /// Saves tokens in place of those before; `None` if they are no longer valid.
    fn save(&self, tokens: Option<Tokens>) -> impl Future<Output = Result<(), BoxError>> + Send;
}

/// A [`TokenStore`] of any type.
pub(super) trait AnyStore: Send + Sync {
    fn load(&self) -> BoxFuture<'_, Result<Option<Tokens>, BoxError>>;
    fn save(&self, tokens: Option<Tokens>) -> BoxFuture<'_, Result<(), BoxError>>;
}

impl<S: TokenStore> AnyStore for S {
    fn load(&self) -> BoxFuture<'_, Result<Option<Tokens>, BoxError>> {
        Box::pin(TokenStore::load(self))
    }

    fn save(&self, tokens: Option<Tokens>) -> BoxFuture<'_, Result<(), BoxError>> {
        Box::pin(TokenStore::save(self, tokens))
    }
}

/// The store of a client that was given none.
#[derive(Default)]
pub(super) struct InMemory(Mutex<Option<Tokens>>);

impl TokenStore for InMemory {
    async fn load(&self) -> Result<Option<Tokens>, BoxError> {
        Ok(lock(&self.0).clone())
    }

    async fn save(&self, tokens: Option<Tokens>) -> Result<(), BoxError> {
        *lock(&self.0) = tokens;
        Ok(())
    }
}

/// A store for the tokens of one server, as rmcp takes it.
#[derive(Clone)]
pub(super) struct ServerTokens {
    pub(super) resource: Arc<str>,
    pub(super) store: Arc<dyn AnyStore>,
    /// Two requests with one refresh token would look like a stolen one.
    pub(super) refresh: Arc<tokio::sync::Mutex<()>>,
}

#[async_trait::async_trait]
impl CredentialStore for ServerTokens {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        let tokens = self.store.load().await.map_err(failed)?;
        // Those of another server would be given away.
        let own = tokens.filter(|tokens| tokens.resource == *self.resource);
        Ok(own.map(|tokens| tokens.credentials))
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let tokens = Tokens {
            resource: self.resource.to_string(),
            credentials,
        };
        self.store.save(Some(tokens)).await.map_err(failed)
    }

    async fn clear(&self) -> Result<(), AuthError> {
        self.store.save(None).await.map_err(failed)
    }

    async fn acquire_refresh_guard(&self) -> Result<Option<CredentialRefreshGuard>, AuthError> {
        let guard = self.refresh.clone().lock_owned().await;
        Ok(Some(CredentialRefreshGuard::new(guard)))
    }
}

fn failed(error: BoxError) -> AuthError {
    AuthError::CredentialStoreError(error.to_string())
}
