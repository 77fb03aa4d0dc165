//! TLS of the default HTTP client.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::client_error::HttpClientError;

/// The certificates of a client, as PEM.
#[derive(Clone, Default)]
pub(super) struct Certificates {
    /// Root certificates beside those of browsers.
    pub(super) roots: Vec<Vec<u8>>,
    pub(super) client: Option<ClientCertificate>,
}

#[derive(Clone)]
pub(super) struct ClientCertificate {
    pub(super) chain: Vec<u8>,
    pub(super) key: Vec<u8>,
}

impl Certificates {
    /// Returns the configuration for servers.
    pub(super) fn config(&self) -> Result<ClientConfig, HttpClientError> {
        let Some(client) = &self.client else {
            return self.anonymous_config();
        };
        let chain = certificates("client certificate", &client.chain)?;
        let key = PrivateKeyDer::from_pem_slice(&client.key)
            .map_err(|error| unreadable("key of the client certificate", error))?;
        self.with_roots()?
            .with_client_auth_cert(chain, key)
            .map_err(tls_error)
    }

    /// Returns the configuration without the client's own certificate.
    pub(super) fn anonymous_config(&self) -> Result<ClientConfig, HttpClientError> {
        Ok(self.with_roots()?.with_no_client_auth())
    }

    fn with_roots(&self) -> Result<ConfigBuilder, HttpClientError> {
        const WHAT: &str = "root certificates";
        let mut roots = RootCertStore {
            roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
        };
        for pem in &self.roots {
            for certificate in certificates(WHAT, pem)? {
                roots
                    .add(certificate)
                    .map_err(|error| unreadable(WHAT, error))?;
            }
        }
        // The crypto provider is explicit, since requesting the process default may panic.
        let crypto = rustls::crypto::ring::default_provider();
        let config = ClientConfig::builder_with_provider(crypto.into())
            .with_safe_default_protocol_versions()
            .map_err(tls_error)?;
        Ok(config.with_root_certificates(roots))
    }
}

type ConfigBuilder = rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>;

/// Reads certificates. A text without one is an error: nobody gives it on purpose.
fn certificates(
    what: &'static str,
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, HttpClientError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = read.map_err(|error| unreadable(what, error))?;
    if certificates.is_empty() {
        return Err(unreadable(what, "there is no certificate in it"));
    }
    Ok(certificates)
}

fn unreadable(what: &'static str, why: impl ToString) -> HttpClientError {
    let why = why.to_string();
    HttpClientError::Pem { what, why }
}

fn tls_error(error: rustls::Error) -> HttpClientError {
    HttpClientError::Tls(error.to_string())
}
