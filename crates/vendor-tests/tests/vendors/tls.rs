//! A server with a certificate that nobody knows.

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tower_agent::{ErrorKind, ModelRequest};
use tower_agent_providers::openai::OpenAi;

#[tokio::test]
async fn an_unknown_certificate_is_an_error() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.into()], key.into())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = async {
        let (socket, _) = listener.accept().await.unwrap();
        assert!(acceptor.accept(socket).await.is_err());
    };
    let model = OpenAi::builder()
        .base_url(format!("https://localhost:{port}/v1"))
        .api_key("")
        .model("m")
        .build()
        .unwrap();
    let call = test_support::call(model, ModelRequest::default());
    let (result, ()) = futures::join!(call, server);
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error:?}");
    assert!(error.message().starts_with("TLS failed: "), "{error}");
    assert!(error.message().contains("UnknownIssuer"), "{error}");
    assert!(!error.is_retryable());
}
