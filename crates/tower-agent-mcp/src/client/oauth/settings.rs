use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tower_agent::BoxError;

use super::tokens::{AnyStore, TokenStore};

/// Shows a page to the user, and returns the address that the browser was sent to.
pub(super) type LogIn =
    dyn Fn(String) -> BoxFuture<'static, Result<String, BoxError>> + Send + Sync;

/// The authorization of a client. See the [module](super).
#[derive(Clone)]
#[must_use]
pub struct OAuth {
    pub(super) grant: Grant,
    pub(super) scopes: Vec<String>,
    pub(super) issuer: Option<String>,
    pub(super) store: Option<Arc<dyn AnyStore>>,
}

#[derive(Clone)]
pub(super) enum Grant {
    AuthorizationCode {
        redirect_uri: String,
        log_in: Arc<LogIn>,
        client_name: Option<String>,
        client: Option<Client>,
        metadata_url: Option<String>,
    },
    ClientCredentials {
        client: Client,
    },
}

/// A client that the authorization server knows.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) id: String,
    pub(super) secret: Option<Secret>,
}

/// The secret of a client, and who has given it.
#[derive(Clone)]
pub(super) struct Secret {
    pub(super) issuer: String,
    pub(super) text: String,
}

impl Client {
    fn with_secret(
        issuer: impl Into<String>,
        id: impl Into<String>,
        secret: impl Into<String>,
    ) -> Self {
        Self {
            id: id.into(),
            secret: Some(Secret {
                issuer: issuer.into(),
                text: secret.into(),
            }),
        }
    }

    pub(super) fn secret_text(&self) -> Option<String> {
        self.secret.as_ref().map(|secret| secret.text.clone())
    }
}

impl OAuth {
    /// Has the user log in, with an authorization code and PKCE.
    ///
    /// `log_in` is given the address of a page, shows it to the user in a browser, and returns the
    /// address that the browser is sent to in the end: the one here, with parameters. It is called
    /// at the first request that needs a token, and again when the server needs more scopes or the
    /// login is over.
    pub fn authorization_code<F, L, E>(redirect_uri: impl Into<String>, log_in: F) -> Self
    where
        F: Fn(String) -> L + Send + Sync + 'static,
        L: Future<Output = Result<String, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        Self::new(Grant::AuthorizationCode {
            redirect_uri: redirect_uri.into(),
            log_in: Arc::new(move |page| {
                let login = log_in(page);
                Box::pin(async move { login.await.map_err(Into::into) })
            }),
            client_name: None,
            client: None,
            metadata_url: None,
        })
    }

    /// Authorizes a program without a user, by a secret that an authorization server has given it:
    /// the one with this issuer, such as `https://login.example.com`. The secret is sent to no
    /// other one, whatever the server names; the request fails then.
    pub fn client_credentials(
        issuer: impl Into<String>,
        id: impl Into<String>,
        secret: impl Into<String>,
    ) -> Self {
        let client = Client::with_secret(issuer, id, secret);
        Self::new(Grant::ClientCredentials { client })
    }

    fn new(grant: Grant) -> Self {
        Self {
            grant,
            scopes: Vec::new(),
            issuer: None,
            store: None,
        }
    }

    /// Sets the name by which a client that registers itself is shown to the user. Defaults to the
    /// name of this crate.
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        if let Grant::AuthorizationCode { client_name, .. } = &mut self.grant {
            *client_name = Some(name.into());
        }
        self
    }

    /// Sets the id of a client without a secret that the authorization server knows already.
    /// Defaults to none: the client registers itself.
    ///
    /// Has no effect on [`client_credentials`](Self::client_credentials).
    pub fn client(self, id: impl Into<String>) -> Self {
        self.known(Client {
            id: id.into(),
            secret: None,
        })
    }

    /// Sets the id of a client that the authorization server with this issuer, such as
    /// `https://login.example.com`, knows already, and the secret that it has given it. The secret
    /// is sent to no other one, whatever the server names; the request fails then.
    ///
    /// Has no effect on [`client_credentials`](Self::client_credentials).
    ///
    /// ```
    /// use tower_agent::BoxError;
    /// use tower_agent_mcp::client::oauth::OAuth;
    ///
    /// # async fn log_in(page: String) -> Result<String, BoxError> { Ok(page) }
    /// let oauth = OAuth::authorization_code("http://127.0.0.1:8765/callback", log_in)
    ///     .client_with_secret("https://login.example.com", "my-agent", "a secret");
    /// # drop(oauth);
    /// ```
    pub fn client_with_secret(
        self,
        issuer: impl Into<String>,
        id: impl Into<String>,
        secret: impl Into<String>,
    ) -> Self {
        self.known(Client::with_secret(issuer, id, secret))
    }

    fn known(mut self, known: Client) -> Self {
        if let Grant::AuthorizationCode { client, .. } = &mut self.grant {
            *client = Some(known);
        }
        self
    }

    /// Sets the `https` address of a document that describes the client, for authorization servers
    /// that take it as the client's id. Defaults to none.
    pub fn client_metadata_url(mut self, url: impl Into<String>) -> Self {
        if let Grant::AuthorizationCode { metadata_url, .. } = &mut self.grant {
            *metadata_url = Some(url.into());
        }
        self
    }

    /// Sets the scopes to ask for. Defaults to those that the server asks for.
    pub fn scopes(mut self, scopes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.scopes = scopes.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the only authorization server that may be used, by its issuer, such as
    /// `https://login.example.com`. Defaults to the one that the server names, or that has given
    /// the client its secret.
    pub fn issuer(mut self, issuer: impl Into<String>) -> Self {
        self.issuer = Some(issuer.into());
        self
    }

    /// Sets where the tokens of this user for this server are kept. Defaults to the memory of the
    /// client.
    pub fn store(mut self, store: impl TokenStore) -> Self {
        self.store = Some(Arc::new(store));
        self
    }
}

impl fmt::Debug for OAuth {
    /// Ids and secrets are not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let grant = match &self.grant {
            Grant::AuthorizationCode { .. } => "authorization_code",
            Grant::ClientCredentials { .. } => "client_credentials",
        };
        f.debug_struct("OAuth")
            .field("grant", &grant)
            .field("scopes", &self.scopes)
            .field("issuer", &self.issuer)
            .finish_non_exhaustive()
    }
}
