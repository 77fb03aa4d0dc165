//! Who may call whom: workers know their server, the ingress is encrypted and asks for a token, and
//! a user has no part in the runs of another.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rcgen::{CertifiedKey, KeyPair, PKCS_ED25519, PublicKeyData, generate_simple_self_signed};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tower_agent::{Agent, AgentRequest, Effect};
use tower_agent_durable::journal::{JournalError, RunEnd, RunKey};
use tower_agent_restate::{Engine, RestateError, Worker};

use super::server::Server;
use super::work;
use crate::support::folder::Folder;
use crate::support::{Count, calling, counting, durable, request};

/// A key of a server: the private one in a file, and the public one as its workers know it.
fn identity(folder: &Folder) -> (String, String) {
    let pair = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let file = folder.file("identity.pem");
    std::fs::write(&file, pair.serialize_pem()).unwrap();
    let public = bs58::encode(pair.der_bytes()).into_string();
    (file.display().to_string(), format!("publickeyv1_{public}"))
}

fn agent(engine: &Engine, models: &Count) -> Agent {
    durable(calling(&[], models), engine.clone())
        .build()
        .unwrap()
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_serves_nobody_but_its_server() {
    let folder = Folder::new("restate-identity-key");
    let (private, public) = identity(&folder);
    let identity = ("RESTATE_REQUEST_IDENTITY_PRIVATE_KEY_PEM_FILE", &*private);
    let Some(server) = Server::start("restate-identity", &[identity]) else {
        return;
    };
    let models = Count::default();
    let engine = server.engine();
    let (listener, address) = listen().await;
    let _worker = Worker::builder(&engine)
        .agent("agent", agent(&engine, &models))
        .identity_key(&public)
        .unwrap()
        .start(listener);
    server.admin().register(address).await;
    let run = engine.start("agent", request()).await.unwrap();
    assert!(matches!(run.end().await.unwrap(), RunEnd::Completed { .. }));
    assert_eq!(models.get(), 1);

    // Somebody else calls the worker as the server does, but for the signature.
    let client = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http::<Full<Bytes>>();
    for path in [
        "/discover",
        "/invoke/TowerAgentRun/make",
        "/invoke/TowerAgentJournal/see",
    ] {
        let call = http::Request::post(format!("http://{address}{path}"))
            .header("content-type", "application/vnd.restate.invocation.v5")
            .header("accept", "application/vnd.restate.endpointmanifest.v3+json")
            .body(Full::default())
            .unwrap();
        let answer = client.request(call).await.unwrap();
        assert_eq!(answer.status(), http::StatusCode::UNAUTHORIZED, "{path}");
    }
    assert_eq!(models.get(), 1);
}

#[test]
fn a_text_that_is_no_key_is_refused() {
    let engine = Engine::new("http://localhost:8080").unwrap();
    for text in ["", "secret", "publickeyv1_0", "publickeyv1_2wmh"] {
        let refused = Worker::builder(&engine).identity_key(text).unwrap_err();
        assert!(
            matches!(refused, RestateError::IdentityKey { .. }),
            "{refused}"
        );
    }
}

/// Puts a proxy in front of an ingress that encrypts and asks for a token, as the operator of a
/// server has one. Returns its address and its root certificate.
async fn protect(ingress: SocketAddr, token: &'static str) -> (String, String) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (listener, address) = listen().await;
    tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut client) = acceptor.accept(client).await else {
                    return;
                };
                let mut head = vec![0; 65536];
                let read = client.read(&mut head).await.unwrap_or(0);
                let asked = String::from_utf8_lossy(&head[..read]).to_lowercase();
                if !asked.contains(&format!("authorization: bearer {token}\r\n")) {
                    let refusal = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n";
                    let _ = client.write_all(refusal.as_bytes()).await;
                    return;
                }
                let mut server = TcpStream::connect(ingress).await.unwrap();
                server.write_all(&head[..read]).await.unwrap();
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (format!("https://localhost:{}", address.port()), cert.pem())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ingress_is_reached_over_tls_with_a_token() {
    let Some(server) = Server::start("restate-tls", &[]) else {
        return;
    };
    let (address, root) = protect(server.ingress_address(), "secret").await;
    let timeout = std::time::Duration::from_secs(2);
    let engine = Engine::new(&address).unwrap().roots(&root).unwrap();
    let engine = engine.timeout(timeout * 10).token("secret").unwrap();
    let models = Count::default();
    let _worker = work(&server, &engine, [agent(&engine, &models)]).await;
    let run = engine.start("agent", request()).await.unwrap();
    assert!(matches!(run.end().await.unwrap(), RunEnd::Completed { .. }));
    assert_eq!(models.get(), 1);

    let without = Engine::new(&address).unwrap().roots(&root).unwrap();
    let refused = without.start("agent", request()).await.unwrap_err();
    assert!(refused.to_string().contains("401"), "{refused}");
    let unknown = Engine::new(&address).unwrap().timeout(timeout);
    let refused = unknown
        .token("secret")
        .unwrap()
        .get("run 1")
        .await
        .unwrap_err();
    assert!(
        matches!(refused, RestateError::Journal(JournalError::Store(_))),
        "{refused}"
    );
}

#[test]
fn a_token_is_not_sent_in_clear() {
    let engine = Engine::new("http://restate.example.com:8080").unwrap();
    let refused = engine.token("secret").unwrap_err();
    assert!(refused.to_string().contains("https://"), "{refused}");
    assert!(!refused.to_string().contains("secret"), "{refused}");
    let engine = Engine::new("https://restate.example.com").unwrap();
    assert!(engine.clone().token("line\nbreak").is_err());
    assert!(engine.roots("no certificate").is_err());
    assert!(Engine::new("ftp://restate.example.com").is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_share_no_run_and_one_call_deletes_all_of_a_user() {
    let Some(server) = Server::start("restate-users", &[]) else {
        return;
    };
    let (engine, pays) = (server.engine(), Count::default());
    let pays_once = durable(calling(&["pay"], &Count::default()), engine.clone())
        .tool(counting("pay", Effect::Mutating, &pays))
        .build()
        .unwrap();
    let _worker = work(&server, &engine, [pays_once]).await;
    // The same words with the same id.
    for user in ["ada", "bob"] {
        for id in ["invoice 1", "invoice 2"] {
            let request = AgentRequest::new("the marker of somebody").with_run_id(id);
            let request = RunKey::new(id).of(user).request(request);
            let run = engine.start("agent", request).await.unwrap();
            assert!(matches!(run.end().await.unwrap(), RunEnd::Completed { .. }));
            assert_eq!(run.key(), &RunKey::new(id).of(user));
        }
    }
    assert_eq!(pays.get(), 4);
    assert!(engine.get("invoice 1").await.is_err());
    // An id that looks like the key of another.
    let key = RunKey::new("invoice 1").of("ada");
    assert!(engine.get(RunKey::new(key.to_text())).await.is_err());

    assert_eq!(engine.delete_user("ada").await.unwrap(), 2);
    assert_eq!(engine.delete_user("ada").await.unwrap(), 0);
    let unknown = engine.info(&key).await.unwrap_err();
    assert!(
        matches!(
            unknown,
            RestateError::Journal(JournalError::UnknownRun { .. })
        ),
        "{unknown}"
    );
    let bobs = engine
        .info(RunKey::new("invoice 1").of("bob"))
        .await
        .unwrap();
    assert_eq!(bobs.user.as_deref(), Some("bob"));
    let has_state = |user: &str| format!("SELECT key FROM state WHERE service_key LIKE '%{user}%'");
    assert_eq!(server.admin().rows(&has_state("ada")).await, 0);
    assert_ne!(server.admin().rows(&has_state("bob")).await, 0);
    engine.delete_user("bob").await.unwrap();
    let words = "SELECT key FROM state WHERE value_utf8 LIKE '%the marker%'";
    assert_eq!(server.admin().rows(words).await, 0);
}
