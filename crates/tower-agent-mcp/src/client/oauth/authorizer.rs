use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use http::header::WWW_AUTHENTICATE;
use http::{HeaderMap, Response, StatusCode, Uri};
use rmcp::transport::auth::{
    AuthError, AuthorizationCallback, AuthorizationManager, AuthorizationMetadata,
    AuthorizationRequest, AuthorizationSession, ClientCredentialsConfig, OAuthClientConfig,
    WWWAuthenticateParams,
};
use tower_agent::{Error, ErrorKind, Result};
use tracing::Instrument;

use super::oauth_http::{OAuthHttp, is_allowed};
use super::settings::{Client, Grant, LogIn, OAuth};
use super::tokens::{InMemory, ServerTokens};
use crate::client::http_service::{BoxedBody, HttpService};
use crate::client::logins::Logins;
use crate::lock::lock;

/// The maximum length of an error's text: an authorization server can send anything.
const MESSAGE: usize = 512;

/// Gets tokens for one server, and renews them.
pub(in crate::client) struct Authorizer(Arc<Inner>);

struct Inner {
    server: Arc<str>,
    url: Arc<str>,
    resource: Uri,
    oauth: OAuth,
    http: Arc<OAuthHttp>,
    tokens: ServerTokens,
    logins: Logins,
    /// The state of the last login. `None` before the first, and before tokens were read from the
    /// store.
    manager: Mutex<Option<Arc<AuthorizationManager>>>,
    /// One login at a time: concurrent requests share it.
    login: tokio::sync::Mutex<()>,
    /// The scopes that were asked for since the last login. A server that asks for them again is
    /// not content with them.
    asked: Mutex<BTreeSet<String>>,
}

/// The reason of a server for refusing a request.
pub(super) enum Challenge {
    /// There is no token, or it is not valid; with the challenge of the server.
    Unauthorized(Option<String>),
    /// The token is not for all that is needed.
    InsufficientScope(String),
}

impl Authorizer {
    pub(in crate::client) fn new(
        server: Arc<str>,
        url: Arc<str>,
        service: HttpService,
        oauth: OAuth,
        logins: Logins,
    ) -> Result<Self> {
        let resource: Uri = url.parse().map_err(|error| {
            let message = format!("cannot authorize for MCP server `{server}`: {error}");
            Error::new(ErrorKind::InvalidRequest, message)
        })?;
        let http = OAuthHttp {
            service,
            resource: resource.clone(),
        };
        let store = oauth.store.clone();
        let tokens = ServerTokens {
            resource: url.clone(),
            store: store.unwrap_or_else(|| Arc::new(InMemory::default())),
            refresh: Arc::default(),
        };
        Ok(Self(Arc::new(Inner {
            server,
            url,
            resource,
            oauth,
            http: Arc::new(http),
            tokens,
            logins,
            manager: Mutex::default(),
            login: tokio::sync::Mutex::default(),
            asked: Mutex::default(),
        })))
    }

    /// Returns whether tokens are for an address.
    pub(super) fn is_resource(&self, address: &Uri) -> bool {
        *address == self.0.resource
    }

    /// Returns the token, which is renewed if it is about to expire. `None` before the first login.
    pub(super) async fn token(&self) -> Result<Option<String>> {
        self.0.token().await
    }

    /// Returns the reason if a response is a refusal that another token could mend.
    pub(super) fn challenge(&self, response: &Response<BoxedBody>) -> Option<Challenge> {
        let (status, challenges) = challenges(response)?;
        if status == StatusCode::UNAUTHORIZED {
            // A server may offer other schemes beside.
            let bearer = challenges
                .into_iter()
                .find(|challenge| challenge.to_ascii_lowercase().starts_with("bearer"));
            return Some(Challenge::Unauthorized(bearer));
        }
        let url = self.0.url.parse().ok()?;
        challenges.iter().find_map(|challenge| {
            let challenge = WWWAuthenticateParams::parse(challenge, &url);
            let scope = challenge.scope.clone().unwrap_or_default();
            challenge
                .is_insufficient_scope()
                .then_some(Challenge::InsufficientScope(scope))
        })
    }

    /// Gets another token than the one that was refused. `None` if no other would help.
    ///
    /// In a task of its own: a request that is dropped must not end a login that a person has
    /// begun.
    pub(super) async fn answer(
        &self,
        challenge: Challenge,
        refused: Option<String>,
    ) -> Result<Option<String>> {
        let inner = self.0.clone();
        let answering = async move {
            let _login = inner.login.lock().await;
            // Another request may have logged in meanwhile.
            let current = inner.token().await?;
            if current.is_some() && current != refused {
                return Ok(current);
            }
            match challenge {
                Challenge::Unauthorized(challenge) => {
                    inner.renew(challenge, refused.is_some()).await.map(Some)
                }
                Challenge::InsufficientScope(scope) => inner.step_up(&scope).await,
            }
        };
        tokio::spawn(answering.in_current_span())
            .await
            .map_err(|error| {
                Error::new(ErrorKind::Auth, "the login was aborted")
                    .with_source(tower::BoxError::from(error))
            })?
    }
}

impl Inner {
    async fn token(&self) -> Result<Option<String>> {
        let Some(manager) = self.manager().await? else {
            return Ok(None);
        };
        match manager.get_access_token().await {
            Ok(token) => Ok(Some(token)),
            // The server answers without a token, and says what it needs.
            Err(AuthError::AuthorizationRequired) => Ok(None),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Returns the state of the last login, of this process or of the store.
    async fn manager(&self) -> Result<Option<Arc<AuthorizationManager>>> {
        if let Some(manager) = &*lock(&self.manager) {
            return Ok(Some(manager.clone()));
        }
        let stored = self.tokens.store.load().await.map_err(|error| {
            let message = format!("the tokens of MCP server `{}` cannot be read", self.server);
            Error::new(ErrorKind::Auth, message).with_source(error)
        })?;
        // Nothing is asked of a server that may need no token.
        if stored.is_none() {
            return Ok(None);
        }
        let mut manager = self.new_manager().await?;
        // Checked before the secret is there: a token is renewed without another look.
        let found = manager.resolve_metadata().await;
        let metadata = found.map_err(|error| self.failed(error))?.metadata;
        self.check(&metadata)?;
        manager.set_metadata(metadata);
        let is_stored = manager.initialize_from_store().await;
        if !is_stored.map_err(|error| self.failed(error))? {
            return Ok(None);
        }
        if let Some(client) = self.known_client() {
            let mut config = OAuthClientConfig::new(&client.id, self.url.as_ref());
            config.client_secret = client.secret_text();
            manager
                .configure_client(config)
                .map_err(|error| self.failed(error))?;
        }
        Ok(Some(self.keep(manager)))
    }

    fn keep(&self, manager: AuthorizationManager) -> Arc<AuthorizationManager> {
        let manager = Arc::new(manager);
        *lock(&self.manager) = Some(manager.clone());
        manager
    }

    fn known_client(&self) -> Option<&Client> {
        match &self.oauth.grant {
            Grant::AuthorizationCode { client, .. } => client.as_ref(),
            Grant::ClientCredentials { client } => Some(client),
        }
    }

    async fn new_manager(&self) -> Result<AuthorizationManager> {
        let http = self.http.clone();
        let manager = AuthorizationManager::new_with_oauth_http_client(&*self.url, http).await;
        let mut manager = manager.map_err(|error| self.failed(error))?;
        manager.set_credential_store(self.tokens.clone());
        Ok(manager)
    }

    /// Finds the authorization server that the server names.
    async fn discover(&self, challenge: Option<&str>) -> Result<AuthorizationManager> {
        let mut manager = self.new_manager().await?;
        let found = manager.resolve_metadata_from_challenge(challenge).await;
        let metadata = found.map_err(|error| self.failed(error))?.metadata;
        // Each time: a server could name another one later, to be given the secret.
        self.check(&metadata)?;
        manager.set_metadata(metadata);
        Ok(manager)
    }

    /// Fails for an authorization server that is not the one that was chosen, or cannot do what a
    /// login needs.
    fn check(&self, metadata: &AuthorizationMetadata) -> Result<()> {
        let named = metadata.issuer.as_deref().unwrap_or_default();
        let secret = self
            .known_client()
            .and_then(|client| client.secret.as_ref());
        let of_secret = secret.map(|secret| &secret.issuer);
        for issuer in self.oauth.issuer.iter().chain(of_secret) {
            if named.trim_end_matches('/') != issuer.trim_end_matches('/') {
                // Without the issuer that was expected: a program may have mixed up its arguments.
                let message = format!(
                    "MCP server `{}` names another authorization server than the issuer that was set",
                    self.server
                );
                return Err(Error::new(ErrorKind::Auth, message));
            }
        }
        let is_login = matches!(self.oauth.grant, Grant::AuthorizationCode { .. });
        if is_login && metadata.code_challenge_methods_supported.is_none() {
            let message = format!(
                "the authorization server of MCP server `{}` does not say that it has PKCE \
                 (`code_challenge_methods_supported`), without which a login is not safe",
                self.server
            );
            return Err(Error::new(ErrorKind::Auth, message));
        }
        Ok(())
    }

    /// Renews a token that was refused, or gets the first one.
    async fn renew(&self, challenge: Option<String>, had_token: bool) -> Result<String> {
        if had_token && let Some(manager) = self.manager().await? {
            match manager.refresh_token().await {
                Ok(_) => return self.current(&manager).await,
                // Only a login can help.
                Err(AuthError::AuthorizationRequired | AuthError::TokenRefreshRejected(_)) => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        let manager = self.discover(challenge.as_deref()).await?;
        // The new token may have fewer scopes than the one before.
        lock(&self.asked).clear();
        match &self.oauth.grant {
            Grant::ClientCredentials { client } => {
                let scopes = if self.oauth.scopes.is_empty() {
                    manager.select_initial_scopes(&[]).await
                } else {
                    self.oauth.scopes.clone()
                };
                self.exchange_secret(manager, client, scopes).await
            }
            Grant::AuthorizationCode {
                redirect_uri,
                log_in,
                client_name,
                client,
                metadata_url,
            } => {
                let mut request = AuthorizationRequest::new(redirect_uri)
                    .with_scopes(&self.oauth.scopes)
                    .with_initial_scope_selection()
                    .with_client_name(client_name.as_deref().unwrap_or(env!("CARGO_PKG_NAME")));
                request.client_metadata_url = metadata_url.clone();
                if let Some(client) = client {
                    request.client_id = Some(client.id.clone());
                    request.client_secret = client.secret_text();
                }
                let session = AuthorizationSession::new(manager, request).await;
                let session = session.map_err(|(_, error)| self.failed(error))?;
                let page = session.get_authorization_url().to_owned();
                self.log_in(&session.auth_manager, log_in, page).await?;
                let manager = self.keep(session.auth_manager);
                self.current(&manager).await
            }
        }
    }

    /// Asks for more scopes. `None` if they were asked for since the last login, and did not help.
    async fn step_up(&self, scope: &str) -> Result<Option<String>> {
        let before = lock(&self.asked).clone();
        let mut asked = before.clone();
        asked.extend(scope.split_whitespace().map(str::to_owned));
        if asked.len() == before.len() {
            return Ok(None);
        }
        *lock(&self.asked) = asked;
        let token = self.ask_for(scope).await;
        // A user who has refused can be asked again.
        if token.is_err() {
            *lock(&self.asked) = before;
        }
        token
    }

    async fn ask_for(&self, scope: &str) -> Result<Option<String>> {
        let Some(manager) = self.manager().await? else {
            return Ok(None);
        };
        match &self.oauth.grant {
            Grant::ClientCredentials { client } => {
                let mut scopes = manager.get_current_scopes().await;
                scopes.extend(scope.split_whitespace().map(str::to_owned));
                let manager = self.discover(None).await?;
                self.exchange_secret(manager, client, scopes)
                    .await
                    .map(Some)
            }
            Grant::AuthorizationCode { log_in, .. } => {
                let page = manager.request_scope_upgrade(scope).await;
                let page = page.map_err(|error| self.failed(error))?;
                self.log_in(&manager, log_in, page).await?;
                self.current(&manager).await.map(Some)
            }
        }
    }

    async fn exchange_secret(
        &self,
        mut manager: AuthorizationManager,
        client: &Client,
        scopes: Vec<String>,
    ) -> Result<String> {
        let config = ClientCredentialsConfig::ClientSecret {
            client_id: client.id.clone(),
            client_secret: client.secret_text().unwrap_or_default(),
            scopes,
            resource: Some(self.url.to_string()),
        };
        let configured = manager
            .validate_client_credentials_metadata(&config)
            .and_then(|()| manager.configure_client_credentials(&config));
        configured.map_err(|error| self.failed(error))?;
        let exchanged = manager.exchange_client_credentials(&config).await;
        exchanged.map_err(|error| self.failed(error))?;
        let manager = self.keep(manager);
        self.current(&manager).await
    }

    /// Has the user log in on a page, and exchanges the code for a token.
    async fn log_in(
        &self,
        manager: &AuthorizationManager,
        log_in: &Arc<LogIn>,
        page: String,
    ) -> Result<()> {
        // The authorization server has made the address up, and a program may open it.
        let is_page = page
            .parse()
            .is_ok_and(|page| is_allowed(&self.resource, &page));
        if !is_page {
            let message = format!(
                "the login page of MCP server `{}` is not https",
                self.server
            );
            return Err(Error::new(ErrorKind::Auth, message));
        }
        let guard = self.logins.begin();
        let redirected = log_in(page).await.map_err(|error| {
            let message = format!("the user did not log in at MCP server `{}`", self.server);
            Error::new(ErrorKind::Auth, message).with_source(error)
        });
        drop(guard);
        let redirected = redirected?;
        // Before the code: with both, somebody has added one of them.
        let callback = match refusal(&redirected) {
            Some(refusal) => Err(refusal),
            None => AuthorizationCallback::from_redirect_url(&redirected),
        };
        let callback = callback.map_err(|error| self.failed(error))?;
        let exchanged = manager.exchange_code_for_token_with_issuer(
            &callback.code,
            &callback.csrf_token,
            callback.issuer.as_deref(),
        );
        exchanged.await.map_err(|error| self.failed(error))?;
        Ok(())
    }

    async fn current(&self, manager: &AuthorizationManager) -> Result<String> {
        let token = manager.get_access_token().await;
        token.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: AuthError) -> Error {
        // The others will fail again in the same way.
        let kind = match error {
            AuthError::DiscoveryRequestFailed { .. }
            | AuthError::TokenRefreshFailed(_)
            | AuthError::HttpError(_) => ErrorKind::Connection,
            _ => ErrorKind::Auth,
        };
        let text: String = error.to_string().chars().take(MESSAGE).collect();
        let message = format!("cannot authorize for MCP server `{}`: {text}", self.server);
        Error::new(kind, message)
    }
}

/// Returns the reason for which the authorization server sent the user back without a login.
fn refusal(redirected: &str) -> Option<AuthError> {
    let uri: Uri = redirected.parse().ok()?;
    let parameters = uri.query()?.split('&');
    let error = parameters
        .filter_map(|parameter| parameter.split_once('='))
        .find(|(name, _)| *name == "error")?
        .1
        .to_owned();
    Some(AuthError::AuthorizationFailed(error))
}

/// Returns the challenges of a response, if it is a refusal.
fn challenges(response: &Response<BoxedBody>) -> Option<(StatusCode, Vec<String>)> {
    let status = response.status();
    if !matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return None;
    }
    Some((status, texts(response.headers())))
}

fn texts(headers: &HeaderMap) -> Vec<String> {
    let challenges = headers.get_all(WWW_AUTHENTICATE).iter();
    challenges
        .filter_map(|challenge| challenge.to_str().ok().map(str::to_owned))
        .collect()
}
