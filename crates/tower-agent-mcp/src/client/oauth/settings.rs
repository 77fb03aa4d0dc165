use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tower_agent::BoxError;

use super::tokens::{AnyStore, TokenStore};

/// Shows a page to the user, and returns the address that the browser was sent to.
pub(super) type LogIn =
    dyn Fn(String) -> BoxFuture<'static, Result<String, BoxError>> + Send + Sync;

/// How a client is authorized. See the [module](super).
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
    pub(super) secret: Option<String>,
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

    /// Authorizes a program without a user, by a secret that its authorization server has given it.
    pub fn client_credentials(id: impl Into<String>, secret: impl Into<String>) -> Self {
        let client = Client {
            id: id.into(),
            secret: Some(secret.into()),
        };
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

    /// Sets the id of a client that the authorization server knows already, and its secret if it
    /// has one. Defaults to none: the client registers itself.
    pub fn client(mut self, id: impl Into<String>, secret: Option<String>) -> Self {
        let known = Client {
            id: id.into(),
            secret,
        };
        match &mut self.grant {
            Grant::AuthorizationCode { client, .. } => *client = Some(known),
            Grant::ClientCredentials { client } => *client = known,
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
    /// `https://login.example.com`. Defaults to the one that the server names.
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
