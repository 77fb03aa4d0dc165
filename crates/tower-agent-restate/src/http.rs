use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use restate_sdk::ingress::RequestExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tower_agent::error::BoxError;

/// The time that a connection may take to open, and may be silent before it is probed.
const PATIENCE: Duration = Duration::from_secs(5);

/// The connections to a server. Clones share them.
#[derive(Clone)]
pub(crate) struct Http(Client<HttpsConnector<HttpConnector>, Full<Bytes>>);

#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct HttpError(BoxError);

impl Http {
    /// Creates connections that trust the roots of browsers and these, each one or more
    /// certificates as PEM.
    pub(crate) fn new(roots: &[Vec<u8>]) -> Result<Self, BoxError> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(PATIENCE));
        tcp.set_keepalive(Some(PATIENCE));
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls(roots)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .build(https);
        Ok(Self(client))
    }
}

fn tls(roots: &[Vec<u8>]) -> Result<ClientConfig, BoxError> {
    let mut trusted = RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
    };
    for pem in roots {
        let mut has_one = false;
        for certificate in CertificateDer::pem_slice_iter(pem) {
            trusted.add(certificate?)?;
            has_one = true;
        }
        if !has_one {
            return Err("there is no certificate in the PEM text".into());
        }
    }
    // The crypto provider is explicit, since requesting the process default may panic.
    let crypto = rustls::crypto::ring::default_provider();
    let config = ClientConfig::builder_with_provider(crypto.into())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(trusted);
    Ok(config.with_no_client_auth())
}

impl RequestExecutor for Http {
    type Error = HttpError;

    async fn execute(
        &self,
        request: http::Request<Bytes>,
    ) -> Result<http::Response<Bytes>, HttpError> {
        let response = self.0.request(request.map(Full::new)).await;
        let (head, body) = response
            .map_err(|error| HttpError(error.into()))?
            .into_parts();
        let body = body
            .collect()
            .await
            .map_err(|error| HttpError(error.into()))?;
        Ok(http::Response::from_parts(head, body.to_bytes()))
    }
}
