//! OAuth for servers over HTTP.
//!
//! ```text
//! McpClientBuilder::oauth(OAuth)  ->  a token with every request, of a login or of a secret
//! ```
//!
//! A server that answers with 401 says where its authorization server is. The client finds it,
//! registers itself, has the user log in, and repeats the request with the token:
//!
//! ```no_run
//! use std::io;
//!
//! use tower_agent::BoxError;
//! use tower_agent_mcp::client::McpClient;
//! use tower_agent_mcp::client::oauth::OAuth;
//! use tower_agent_providers::HttpClient;
//!
//! /// Asks the user on the terminal.
//! async fn log_in(page: String) -> io::Result<String> {
//!     println!("Open {page}");
//!     println!("and paste the address that your browser was sent to:");
//!     tokio::task::spawn_blocking(|| io::stdin().lines().next().unwrap_or(Ok(String::new())))
//!         .await?
//! }
//!
//! # async fn connect() -> Result<McpClient, BoxError> {
//! let oauth = OAuth::authorization_code("http://127.0.0.1:8765/callback", log_in)
//!     .client_name("My agent");
//! let client = McpClient::http("https://mcp.example.com/mcp", HttpClient::shared()?)
//!     .oauth(oauth)
//!     .connect()
//!     .await?;
//! # Ok(client)
//! # }
//! ```
//!
//! A program without a user has a secret of its own:
//!
//! ```
//! use tower_agent_mcp::client::oauth::OAuth;
//!
//! let issuer = "https://login.example.com";
//! let oauth = OAuth::client_credentials(issuer, "my-agent", "a secret").scopes(["tickets:read"]);
//! # drop(oauth);
//! ```
//!
//! # What it does
//!
//! | step | by |
//! |---|---|
//! | finds the authorization server | protected resource metadata (RFC 9728), of the server's challenge or its well-known address; authorization server metadata (RFC 8414) or OpenID Connect Discovery |
//! | has a client id | a [registered client](OAuth::client), a [metadata document](OAuth::client_metadata_url), or dynamic registration (RFC 7591), in this order |
//! | logs in | authorization code with PKCE (S256), `state` and `iss` (RFC 9207), for this server alone (`resource`, RFC 8707) |
//! | renews a token | with the refresh token, before it expires and when the server rejects it; if that is rejected too, the user logs in again |
//! | needs more scopes | a 403 with `insufficient_scope`: the user is asked for the scopes so far and the new ones, and the request is repeated |
//!
//! It is the work of [rmcp](https://docs.rs/rmcp), the official SDK, over the HTTP service of the
//! client: proxies and certificates are those of that service.
//!
//! # Secrets
//!
//! A token is sent to the URL of its server alone, and is in no log, no error and no `Debug`. Of
//! the answer of an authorization server only the token and what belongs to it are read. (An
//! authorization code, which is of use to nobody else, is in the debug log of rmcp.) If the
//! server's URL is `https`, nothing about a login goes over `http`, and no page of another scheme
//! is given to the user.
//!
//! The server names the authorization server. A [secret](OAuth::client_with_secret) goes to the one
//! whose issuer stands beside it, and a request fails if the server names another one, also when a
//! stored token is renewed. Without a secret, [`issuer`](OAuth::issuer) does the same.
//!
//! A login needs PKCE, and an authorization server that does not say that it has it is refused. So
//! is a redirect with an error, whatever else is in it.
//!
//! Tokens are those of one user. Give each user a client of their own, with a [`TokenStore`] of
//! their own.
//!
//! # Time
//!
//! While the user is asked, the limits for connecting and for calls wait. A login that nobody
//! finishes keeps its request until that is dropped: limit it where the user is asked. A request
//! that is dropped does not end the login, and the next one waits for the same.

mod authorized;
mod authorizer;
mod oauth_http;
mod settings;
mod tokens;

pub use self::settings::OAuth;
pub use self::tokens::{TokenStore, Tokens};

pub(super) use self::authorized::Authorized;
pub(super) use self::authorizer::Authorizer;
