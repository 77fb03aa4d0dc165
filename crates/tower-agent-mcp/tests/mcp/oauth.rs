//! OAuth of the client, against an authorization server of this process; the official suite has
//! more.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tower_agent::{BoxError, ErrorKind, Tool};
use tower_agent_mcp::client::oauth::{OAuth, TokenStore, Tokens};
use tower_agent_mcp::client::{McpClient, McpClientBuilder};
use tower_agent_mcp::server::McpServer;

use crate::support::{Server, ask, connected};
use crate::tracing_log::TracingLog;

const URL: &str = "https://mcp.example.com/mcp";
const BACK: &str = "http://127.0.0.1:8765/callback";

/// An MCP server and its authorization server.
#[derive(Default)]
struct World {
    /// The token that the server accepts, and its scopes.
    valid: Mutex<Option<(String, String)>>,
    issued: AtomicUsize,
    refreshes: AtomicUsize,
    refuses_refreshes: AtomicBool,
    calls: AtomicUsize,
    /// What the token endpoint was sent.
    requests: Mutex<Vec<BTreeMap<String, String>>>,
    /// The authorization headers of all requests, by host.
    sent: Mutex<Vec<(String, String)>>,
    /// Whether the server names another authorization server.
    has_moved: AtomicBool,
    /// Whether the authorization server says nothing of PKCE.
    lacks_pkce: AtomicBool,
    /// The address of the login page.
    page: Mutex<Option<String>>,
    /// What stands in an answer with a token in place of the usual.
    odd: Mutex<Vec<(&'static str, Value)>>,
}

impl World {
    fn revoke(&self) {
        *self.valid.lock().unwrap() = None;
    }

    fn issuer(&self) -> &'static str {
        if self.has_moved.load(Ordering::SeqCst) {
            "https://login.evil.example"
        } else {
            "https://login.example.com"
        }
    }

    fn issue(&self, scope: &str) -> Value {
        let n = self.issued.fetch_add(1, Ordering::SeqCst);
        let token = format!("access-secret-{n}");
        *self.valid.lock().unwrap() = Some((token.clone(), scope.to_owned()));
        let mut issued = json!({
            "access_token": token, "token_type": "Bearer", "expires_in": 3600, "scope": scope,
            "refresh_token": format!("refresh-secret-{n}"), "id_token": "identity-secret",
        });
        for (field, value) in &*self.odd.lock().unwrap() {
            issued[*field] = value.clone();
        }
        issued
    }
}

fn router(world: &Arc<World>) -> Router {
    let counts = world.clone();
    let count = Tool::function("count", "Counts.", move |_: Value| {
        counts.calls.fetch_add(1, Ordering::SeqCst) + 1
    });
    let server = McpServer::builder("guarded", "1.0.0")
        .tool(count)
        .allowed_hosts(["mcp.example.com", "other.example.com"])
        .build()
        .unwrap();
    let guarded = Router::new()
        .route_service("/mcp", server.into_http())
        .layer(axum::middleware::from_fn_with_state(world.clone(), guard));
    Router::new()
        .route("/.well-known/oauth-protected-resource/mcp", get(resource))
        .route("/.well-known/oauth-authorization-server", get(metadata))
        .route("/register", post(register))
        .route("/token", post(token))
        .with_state(world.clone())
        .merge(guarded)
}

async fn guard(State(world): State<Arc<World>>, request: Request, next: Next) -> Response {
    let header = request.headers().get(AUTHORIZATION);
    let sent = header.map(|header| header.to_str().unwrap().to_owned());
    let host = request.uri().host().unwrap_or_default().to_owned();
    if let Some(sent) = &sent {
        world.sent.lock().unwrap().push((host, sent.clone()));
    }
    let valid = world.valid.lock().unwrap().clone();
    let scope = match valid {
        Some((token, scope)) if sent == Some(format!("Bearer {token}")) => scope,
        _ => {
            let challenge = format!(
                r#"Bearer error="invalid_token", scope="list", resource_metadata="{URL_BASE}/.well-known/oauth-protected-resource/mcp""#
            );
            return (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, challenge)]).into_response();
        }
    };
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let is_call = body.windows(12).any(|text| text == b"\"tools/call\"");
    if is_call && !scope.split(' ').any(|scope| scope == "call") {
        let challenge = r#"Bearer error="insufficient_scope", scope="call""#;
        return (StatusCode::FORBIDDEN, [(WWW_AUTHENTICATE, challenge)]).into_response();
    }
    next.run(Request::from_parts(parts, Body::from(body))).await
}

const URL_BASE: &str = "https://mcp.example.com";

async fn resource(State(world): State<Arc<World>>) -> Json<Value> {
    Json(json!({ "resource": URL, "authorization_servers": [world.issuer()] }))
}

async fn metadata(State(world): State<Arc<World>>) -> Json<Value> {
    let page = world.page.lock().unwrap().clone();
    let has_pkce = !world.lacks_pkce.load(Ordering::SeqCst);
    Json(json!({
        "issuer": world.issuer(),
        "authorization_endpoint": page.unwrap_or("https://login.example.com/authorize".into()),
        "token_endpoint": "https://login.example.com/token",
        "registration_endpoint": "https://login.example.com/register",
        "response_types_supported": ["code"],
        "code_challenge_methods_supported": has_pkce.then_some(["S256"]),
        "token_endpoint_auth_methods_supported": ["none", "client_secret_post"],
        "scopes_supported": ["list", "call"],
    }))
}

async fn register() -> (StatusCode, Json<Value>) {
    let client = json!({ "client_id": "registered", "redirect_uris": [BACK] });
    (StatusCode::CREATED, Json(client))
}

async fn token(State(world): State<Arc<World>>, body: String) -> Response {
    let form: BTreeMap<String, String> = form_urlencoded::parse(body.as_bytes())
        .into_owned()
        .collect();
    let scope = form.get("code").or(form.get("scope")).cloned();
    let is_refresh = form["grant_type"] == "refresh_token";
    world.requests.lock().unwrap().push(form);
    if is_refresh {
        world.refreshes.fetch_add(1, Ordering::SeqCst);
        if world.refuses_refreshes.load(Ordering::SeqCst) {
            let refusal = json!({ "error": "invalid_grant" });
            return (StatusCode::BAD_REQUEST, Json(refusal)).into_response();
        }
    }
    Json(world.issue(&scope.unwrap_or("list call".into()))).into_response()
}

/// Sends the user back with a code that names the scopes of the page.
fn back(page: &str) -> String {
    let query = page.split_once('?').unwrap().1;
    let page: BTreeMap<_, _> = form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect();
    assert_eq!(page["code_challenge_method"], "S256");
    assert_eq!(page["resource"], URL);
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("code", &page["scope"])
        .append_pair("state", &page["state"])
        .append_pair("iss", "https://login.example.com")
        .finish();
    format!("{BACK}?{query}")
}

/// The logins of a user who is always there.
#[derive(Clone, Default)]
struct User(Arc<Mutex<Vec<String>>>);

impl User {
    fn oauth(&self) -> OAuth {
        let pages = self.0.clone();
        OAuth::authorization_code(BACK, move |page| {
            pages.lock().unwrap().push(page.clone());
            async move { Ok::<_, BoxError>(back(&page)) }
        })
    }

    fn logins(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// A client of routes of this process, without a network.
fn over(url: &str, routes: Router) -> McpClientBuilder {
    let service = tower::ServiceBuilder::new()
        .map_request(|request: Request| request)
        .service(routes);
    McpClient::http(url, service).name("guarded")
}

fn client(world: &Arc<World>, oauth: OAuth) -> McpClientBuilder {
    over(URL, router(world)).oauth(oauth)
}

/// Asks for both scopes, so that one login is enough.
fn both(oauth: OAuth) -> OAuth {
    oauth.scopes(["list", "call"])
}

#[tokio::test]
async fn a_login_gives_a_token_that_is_in_no_log() {
    let (log, _guard) = TracingLog::begin();
    let world = Arc::new(World::default());
    let user = User::default();
    let client = connected(client(&world, both(user.oauth()))).await;
    let counted = ask(&client, "count", json!({})).await.unwrap();
    assert_eq!(counted.value(), "1");
    assert_eq!(user.logins(), 1);

    world.revoke();
    world.refuses_refreshes.store(true, Ordering::SeqCst);
    ask(&client, "count", json!({})).await.unwrap();
    assert_eq!(user.logins(), 2);
    let lines = log.lines();
    assert!(lines.len() > 20);
    for line in lines {
        for secret in ["access-secret", "refresh-secret", "identity-secret"] {
            assert!(!line.text.contains(secret), "{line:?}");
        }
    }
}

#[tokio::test]
async fn a_token_that_the_server_rejects_is_renewed_without_the_user() {
    let world = Arc::new(World::default());
    let user = User::default();
    let client = connected(client(&world, both(user.oauth()))).await;
    for _ in 0..3 {
        world.revoke();
        ask(&client, "count", json!({})).await.unwrap();
    }
    assert_eq!(user.logins(), 1);
    assert_eq!(world.refreshes.load(Ordering::SeqCst), 3);
    assert_eq!(world.calls.load(Ordering::SeqCst), 3);
    let requests = world.requests.lock().unwrap();
    assert!(requests.iter().all(|form| form["resource"] == URL));
}

#[tokio::test]
async fn one_odd_value_beside_a_token_does_not_fail_the_login() {
    let times = [
        json!("3600"),
        json!(" 3600.0 "),
        json!("soon"),
        json!(""),
        json!("NaN"),
        json!(null),
        json!(3599.5),
        json!(1e300),
        json!(-1),
        json!(0),
        json!([3600]),
        json!(true),
    ];
    let times = times.into_iter().map(|time| vec![("expires_in", time)]);
    let others = [
        vec![("scope", json!(null))],
        vec![("scope", json!(["list", "call"]))],
        vec![("scope", json!(7))],
        vec![("token_type", json!(null))],
        vec![("token_type", json!("bearer"))],
        vec![("refresh_token", json!(""))],
        vec![("refresh_token", json!(7)), ("expires_in", json!("1"))],
    ];
    for odd in times.chain(others) {
        let world = Arc::new(World::default());
        world.odd.lock().unwrap().clone_from(&odd);
        let user = User::default();
        let client = client(&world, both(user.oauth())).connect().await;
        let client = client.unwrap_or_else(|error| panic!("{odd:?}: {error}"));
        let counted = ask(&client, "count", json!({})).await;
        assert_eq!(counted.unwrap().value(), "1", "{odd:?}");
        // A token that has just been given is used, and not renewed.
        if !odd.iter().any(|(_, value)| value == "1") {
            let (logins, refreshes) = (user.logins(), world.refreshes.load(Ordering::SeqCst));
            assert_eq!((logins, refreshes), (1, 0), "{odd:?}");
        }
    }
}

#[tokio::test]
async fn twenty_calls_at_once_share_one_login() {
    let world = Arc::new(World::default());
    let user = User::default();
    let client = connected(client(&world, both(user.oauth()))).await;
    world.revoke();
    world.refuses_refreshes.store(true, Ordering::SeqCst);
    let calls = (0..20).map(|_| ask(&client, "count", json!({})));
    for call in futures::future::join_all(calls).await {
        call.unwrap();
    }
    assert_eq!(user.logins(), 2);
    assert_eq!(world.calls.load(Ordering::SeqCst), 20);
}

#[tokio::test]
async fn a_call_that_needs_more_scopes_asks_the_user_and_is_made_once() {
    let world = Arc::new(World::default());
    let user = User::default();
    let client = connected(client(&world, user.oauth())).await;
    ask(&client, "count", json!({})).await.unwrap();
    assert_eq!(world.calls.load(Ordering::SeqCst), 1);
    let pages = user.0.lock().unwrap();
    assert_eq!(pages.len(), 2);
    assert!(pages[0].contains("scope=list&") || pages[0].ends_with("scope=list"));
    assert!(pages[1].contains("list+call"), "{}", pages[1]);
}

#[tokio::test(start_paused = true)]
async fn limits_wait_for_the_user_and_a_dropped_call_does_not_end_the_login() {
    let world = Arc::new(World::default());
    let logins = Arc::new(AtomicUsize::new(0));
    let asked = Arc::new(Notify::new());
    let answers = Arc::new(Notify::new());
    let (counts, asks, waits) = (logins.clone(), asked.clone(), answers.clone());
    let oauth = OAuth::authorization_code(BACK, move |page| {
        counts.fetch_add(1, Ordering::SeqCst);
        asks.notify_one();
        let waits = waits.clone();
        async move {
            waits.notified().await;
            Ok::<_, BoxError>(back(&page))
        }
    });
    let builder = client(&world, both(oauth)).connect_timeout(Duration::from_secs(5));
    let connecting = tokio::spawn(builder.call_timeout(Duration::from_secs(5)).connect());
    asked.notified().await;
    // An hour, in which nothing else is to be done.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!connecting.is_finished());
    answers.notify_one();
    let client = connecting.await.unwrap().unwrap();

    world.revoke();
    world.refuses_refreshes.store(true, Ordering::SeqCst);
    tokio::select! {
        _ = ask(&client, "count", json!({})) => unreachable!(),
        () = asked.notified() => {}
    }
    let second = tokio::spawn(async move { ask(&client, "count", json!({})).await });
    tokio::time::sleep(Duration::from_secs(3600)).await;
    answers.notify_one();
    second.await.unwrap().unwrap();
    assert_eq!(logins.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_user_who_refuses_fails_the_call_and_is_asked_again_by_the_next() {
    let world = Arc::new(World::default());
    let attempts = Arc::new(AtomicUsize::new(0));
    let counts = attempts.clone();
    let oauth = OAuth::authorization_code(BACK, move |page: String| {
        let attempt = counts.fetch_add(1, Ordering::SeqCst);
        async move {
            match attempt {
                0 => Ok(back(&page)),
                1 => Err("not now"),
                2 => Ok(format!("{BACK}?error=access_denied&state=x")),
                // Another user's code.
                3 => Ok(format!("{BACK}?code=stolen&state=forged")),
                _ => Ok(back(&page)),
            }
        }
    });
    let client = connected(client(&world, both(oauth))).await;
    world.revoke();
    world.refuses_refreshes.store(true, Ordering::SeqCst);
    for text in ["did not log in", "access_denied", "state not found"] {
        let failed = ask(&client, "count", json!({})).await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Auth);
        assert!(failed.message().contains(text), "{failed}");
    }
    ask(&client, "count", json!({})).await.unwrap();
    assert_eq!(world.calls.load(Ordering::SeqCst), 1);
}

/// A store that the test looks into.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Option<String>>>);

impl TokenStore for Shared {
    async fn load(&self) -> Result<Option<Tokens>, BoxError> {
        let saved = self.0.lock().unwrap().clone();
        Ok(saved
            .map(|saved| serde_json::from_str(&saved))
            .transpose()?)
    }

    async fn save(&self, tokens: Option<Tokens>) -> Result<(), BoxError> {
        let saved = tokens.as_ref().map(serde_json::to_string).transpose()?;
        assert!(!format!("{tokens:?}").contains("secret"));
        *self.0.lock().unwrap() = saved;
        Ok(())
    }
}

#[tokio::test]
async fn tokens_are_kept_for_the_next_program_and_sent_to_no_other_server() {
    let world = Arc::new(World::default());
    let user = User::default();
    let store = Shared::default();
    let oauth = || both(user.oauth()).store(store.clone());
    connected(client(&world, oauth())).await;
    assert!(
        store
            .0
            .lock()
            .unwrap()
            .as_ref()
            .unwrap()
            .contains("refresh-secret-0")
    );

    let again = connected(client(&world, oauth())).await;
    ask(&again, "count", json!({})).await.unwrap();
    world.revoke();
    ask(&again, "count", json!({})).await.unwrap();
    assert_eq!(user.logins(), 1);

    world.sent.lock().unwrap().clear();
    let other = over("https://other.example.com/mcp", router(&world)).oauth(oauth());
    // Its metadata is that of another resource.
    assert_eq!(other.connect().await.unwrap_err().kind(), ErrorKind::Auth);
    let sent = world.sent.lock().unwrap();
    assert!(
        sent.iter().all(|(host, _)| host != "other.example.com"),
        "{sent:?}"
    );
}

#[tokio::test]
async fn a_program_logs_in_with_its_secret_at_the_right_issuer_alone() {
    let world = Arc::new(World::default());
    let program = |issuer: &str| OAuth::client_credentials(issuer, "program", "program-secret");
    let trusted = || both(program("https://login.example.com"));
    let connected = connected(client(&world, trusted())).await;
    ask(&connected, "count", json!({})).await.unwrap();
    let form = world.requests.lock().unwrap().pop().unwrap();
    assert_eq!(form["grant_type"], "client_credentials");
    assert_eq!(form["scope"], "list call");
    // There is no refresh without a user: the secret is used again.
    world.revoke();
    world.refuses_refreshes.store(true, Ordering::SeqCst);
    ask(&connected, "count", json!({})).await.unwrap();

    let world = Arc::new(World::default());
    let other = "https://login.company.example";
    let two = trusted().issuer(other);
    // What stands beside the secret counts, whatever else is set, and whatever was mixed up.
    let swapped = OAuth::client_credentials("program-secret", "program", other);
    for oauth in [both(program(other)), two, swapped] {
        let failed = client(&world, oauth).connect().await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Auth);
        assert!(
            !format!("{failed:?}").contains("program-secret"),
            "{failed:?}"
        );
        assert!(world.requests.lock().unwrap().is_empty());
    }

    // Nor at one that the server names when it wants more scopes.
    let few = program("https://login.example.com").scopes(["list"]);
    let client = client(&world, few).connect().await.unwrap();
    world.has_moved.store(true, Ordering::SeqCst);
    let failed = ask(&client, "count", json!({})).await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Auth);
    assert_eq!(world.requests.lock().unwrap().len(), 1);
    world.has_moved.store(false, Ordering::SeqCst);
    ask(&client, "count", json!({})).await.unwrap();
}

#[tokio::test]
async fn the_secret_of_a_login_is_sent_to_its_issuer_alone_also_with_stored_tokens() {
    let world = Arc::new(World::default());
    let user = User::default();
    let store = Shared::default();
    let oauth = || {
        let oauth = both(user.oauth()).store(store.clone());
        oauth.client_with_secret("https://login.example.com/", "app", "app-secret")
    };
    connected(client(&world, oauth())).await;
    let form = world.requests.lock().unwrap().pop().unwrap();
    assert_eq!(form["client_secret"], "app-secret");

    // The next program has the tokens, and the server wants them renewed elsewhere.
    world.revoke();
    world.has_moved.store(true, Ordering::SeqCst);
    let failed = client(&world, oauth()).connect().await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Auth);
    assert!(world.requests.lock().unwrap().is_empty());

    // Even if the tokens do not say who has given them.
    let stored = store.0.lock().unwrap().clone().unwrap();
    let mut stored: Value = serde_json::from_str(&stored).unwrap();
    stored["credentials"]["issuer"] = Value::Null;
    *store.0.lock().unwrap() = Some(stored.to_string());
    let failed = client(&world, oauth()).connect().await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Auth);
    assert!(world.requests.lock().unwrap().is_empty());

    // Nothing is lost by that.
    world.has_moved.store(false, Ordering::SeqCst);
    connected(client(&world, oauth())).await;
    assert_eq!(user.logins(), 1);
}

#[tokio::test]
async fn no_login_without_pkce_or_with_an_error_beside_the_code() {
    let world = Arc::new(World::default());
    world.lacks_pkce.store(true, Ordering::SeqCst);
    let user = User::default();
    let failed = client(&world, user.oauth()).connect().await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Auth);
    assert!(failed.message().contains("PKCE"), "{failed}");
    assert_eq!(user.logins(), 0);

    let world = Arc::new(World::default());
    let oauth = OAuth::authorization_code(BACK, |page: String| async move {
        Ok::<_, BoxError>(format!("{}&error=access_denied", back(&page)))
    });
    let failed = client(&world, both(oauth)).connect().await.unwrap_err();
    assert!(failed.message().contains("access_denied"), "{failed}");
    assert!(world.requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_login_leaves_tls_for_no_page_and_no_server() {
    for page in [
        "http://login.example.com/authorize",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "calc.exe",
    ] {
        let world = Arc::new(World::default());
        *world.page.lock().unwrap() = Some(page.to_owned());
        let user = User::default();
        let failed = client(&world, user.oauth()).connect().await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Auth, "{page}: {failed}");
        assert_eq!(user.logins(), 0, "{page}");
    }
}

#[tokio::test]
async fn a_server_that_is_never_content_has_the_user_log_in_a_few_times() {
    let world = Arc::new(World::default());
    let user = User::default();
    let app = router(&world).layer(axum::middleware::from_fn(
        |request: Request, next: Next| async move {
            match request.uri().path() {
                "/mcp" => {
                    (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")]).into_response()
                }
                _ => next.run(request).await,
            }
        },
    ));
    let builder = over(URL, app).oauth(user.oauth());
    let failed = builder.connect().await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Auth);
    assert!(user.logins() <= 6, "{}", user.logins());
}

#[tokio::test]
async fn oauth_without_http_is_an_error() {
    let builder = Server::echo().client().oauth(User::default().oauth());
    let failed = builder.connect().await.unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::InvalidRequest);
    assert!(failed.message().contains("OAuth"));
}
