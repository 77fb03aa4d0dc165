//! Servers with certificates, the client's own, and tunnels to them.

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tower_agent::{Error, ErrorKind, ModelRequest};
use tower_agent_providers::openai::OpenAi;
use tower_agent_providers::{HttpClient, HttpClientError};

use crate::server::{Seen, read_request, says};

/// A certificate that is its own root, for a name.
struct Identity {
    certificate: CertificateDer<'static>,
    certificate_pem: String,
    key_pem: String,
    key: Vec<u8>,
}

impl Identity {
    fn of(name: &str) -> Self {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        Self {
            certificate_pem: made.cert.pem(),
            certificate: made.cert.into(),
            key_pem: made.signing_key.serialize_pem(),
            key: made.signing_key.serialize_der(),
        }
    }
}

/// A server that shows a certificate, and asks for one that `client` has signed, if there is one.
fn acceptor(server: &Identity, client: Option<&Identity>) -> TlsAcceptor {
    let crypto = Arc::new(ring::default_provider());
    let config = ServerConfig::builder_with_provider(crypto.clone())
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = match client {
        None => config.with_no_client_auth(),
        Some(client) => {
            let mut roots = RootCertStore::empty();
            roots.add(client.certificate.clone()).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), crypto);
            config.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let key = PrivatePkcs8KeyDer::from(server.key.clone());
    let config = config
        .with_single_cert(vec![server.certificate.clone()], key.into())
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

async fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Answers one request.
async fn answer(mut socket: impl AsyncRead + AsyncWrite + Unpin) -> Seen {
    let seen = read_request(&mut socket).await.unwrap();
    for piece in says("Hi.") {
        socket.write_all(&piece).await.unwrap();
    }
    socket.shutdown().await.unwrap();
    seen
}

async fn ask(client: HttpClient, port: u16) -> Result<String, Error> {
    let model = OpenAi::builder()
        .base_url(format!("https://localhost:{port}/v1"))
        .api_key("sk-1")
        .model("m")
        .build_with(client)
        .unwrap();
    let response = test_support::call(model, ModelRequest::default()).await?;
    Ok(response.text())
}

#[tokio::test]
async fn a_root_certificate_of_the_callers_own_is_trusted() {
    let identity = Identity::of("localhost");
    let acceptor = acceptor(&identity, None);
    let (listener, port) = listen().await;
    let server = async {
        let (socket, _) = listener.accept().await.unwrap();
        answer(acceptor.accept(socket).await.unwrap()).await
    };
    let client = HttpClient::builder().root_certificates(identity.certificate_pem.clone());
    let call = ask(client.build().unwrap(), port);
    let (answer, _) = futures::join!(call, server);
    assert_eq!(answer.unwrap(), "Hi.");
}

#[tokio::test]
async fn a_client_certificate_is_shown_to_a_server_that_asks_for_one() {
    let identity = Identity::of("localhost");
    let shown = Identity::of("client");
    let acceptor = acceptor(&identity, Some(&shown));
    let (listener, port) = listen().await;
    let client = HttpClient::builder().root_certificates(identity.certificate_pem.clone());

    let with = client
        .clone()
        .client_certificate(shown.certificate_pem.clone(), shown.key_pem.clone());
    let server = async {
        let (socket, _) = listener.accept().await.unwrap();
        answer(acceptor.accept(socket).await.unwrap()).await
    };
    let (answer, _) = futures::join!(ask(with.build().unwrap(), port), server);
    assert_eq!(answer.unwrap(), "Hi.");

    let server = async {
        let (socket, _) = listener.accept().await.unwrap();
        assert!(acceptor.accept(socket).await.is_err());
    };
    let (answer, ()) = futures::join!(ask(client.build().unwrap(), port), server);
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error:?}");
    assert!(error.message().contains("CertificateRequired"), "{error}");
}

#[tokio::test]
async fn a_tunnel_leads_to_the_server_and_its_proxy_sees_no_request() {
    let identity = Identity::of("localhost");
    let acceptor = acceptor(&identity, None);
    let (listener, port) = listen().await;
    let (proxy, proxy_port) = listen().await;
    let server = async {
        let (socket, _) = listener.accept().await.unwrap();
        answer(acceptor.accept(socket).await.unwrap()).await
    };
    let tunnel = async {
        let (mut client, _) = proxy.accept().await.unwrap();
        let seen = read_request(&mut client).await.unwrap();
        let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        let _ = copy_bidirectional(&mut client, &mut server).await;
        seen
    };
    let client = HttpClient::builder()
        .root_certificates(identity.certificate_pem.clone())
        .proxy(format!("http://ann:secret@127.0.0.1:{proxy_port}"));
    let call = ask(client.build().unwrap(), port);
    let (answer, at_server, at_proxy) = futures::join!(call, server, tunnel);
    assert_eq!(answer.unwrap(), "Hi.");
    assert_eq!(at_proxy.line(), format!("CONNECT localhost:{port}"));
    // `ann:secret`.
    let password = at_proxy.header("proxy-authorization");
    assert_eq!(password, Some("Basic YW5uOnNlY3JldA=="));
    assert_eq!(at_proxy.header("authorization"), None);
    assert_eq!(at_server.header("authorization"), Some("Bearer sk-1"));
    assert_eq!(at_server.header("proxy-authorization"), None);
}

#[tokio::test]
async fn a_proxy_may_have_a_certificate_as_well() {
    let identity = Identity::of("localhost");
    let acceptor = acceptor(&identity, None);
    let (listener, port) = listen().await;
    let (proxy, proxy_port) = listen().await;
    let server = async {
        let (socket, _) = listener.accept().await.unwrap();
        answer(acceptor.accept(socket).await.unwrap()).await
    };
    let tunnel = async {
        let (socket, _) = proxy.accept().await.unwrap();
        let mut client = acceptor.accept(socket).await.unwrap();
        read_request(&mut client).await.unwrap();
        let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        let _ = copy_bidirectional(&mut client, &mut server).await;
    };
    let client = HttpClient::builder()
        .root_certificates(identity.certificate_pem.clone())
        .proxy(format!("https://localhost:{proxy_port}"));
    let call = ask(client.build().unwrap(), port);
    let (answer, _, ()) = futures::join!(call, server, tunnel);
    assert_eq!(answer.unwrap(), "Hi.");
}

#[test]
fn what_is_no_pem_is_an_error_that_does_not_show_it() {
    let own = Identity::of("client");
    let client = HttpClient::builder;
    let tries = [
        client().root_certificates("secret"),
        client().root_certificates(own.key_pem.clone()),
        client().client_certificate("secret", own.key_pem.clone()),
        client().client_certificate(own.certificate_pem.clone(), "secret"),
    ];
    for builder in tries {
        let error = builder.build().unwrap_err();
        assert!(matches!(error, HttpClientError::Pem { .. }), "{error:?}");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
    // The key of another certificate.
    let other = Identity::of("other");
    let error = client()
        .client_certificate(own.certificate_pem, other.key_pem)
        .build()
        .unwrap_err();
    assert!(matches!(error, HttpClientError::Tls(_)), "{error:?}");
}

#[tokio::test]
async fn an_unknown_certificate_is_an_error() {
    let acceptor = acceptor(&Identity::of("localhost"), None);
    let (listener, port) = listen().await;
    let server = async {
        let (socket, _) = listener.accept().await.unwrap();
        assert!(acceptor.accept(socket).await.is_err());
    };
    let (result, ()) = futures::join!(ask(HttpClient::new().unwrap(), port), server);
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error:?}");
    assert!(error.message().starts_with("TLS failed: "), "{error}");
    assert!(error.message().contains("UnknownIssuer"), "{error}");
    assert!(!error.is_retryable());
}
