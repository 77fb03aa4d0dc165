use std::fmt;
use std::time::Duration;

use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::client::{HttpClient, TimeLimits};
use super::client_error::HttpClientError;

/// Builds an [`HttpClient`]; created by [`HttpClient::builder`].
///
/// ```no_run
/// use tower_agent_providers::HttpClient;
///
/// # fn main() -> Result<(), tower_agent::BoxError> {
/// // A server inside a company, with the company's certificates.
/// let client = HttpClient::builder()
///     .root_certificates(std::fs::read("/etc/company/roots.pem")?)
///     .client_certificate(std::fs::read("client.pem")?, std::fs::read("client.key")?)
///     .build()?;
/// # drop(client);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct HttpClientBuilder {
    limits: TimeLimits,
    roots: Vec<Vec<u8>>,
    client: Option<ClientCertificate>,
    #[cfg(feature = "proxy")]
    proxy: super::proxy::ProxyChoice,
}

#[derive(Clone)]
struct ClientCertificate {
    chain: Vec<u8>,
    key: Vec<u8>,
}

impl HttpClientBuilder {
    /// Sets how long the client waits for a server that says nothing. See [`TimeLimits`] for the defaults.
    pub fn time_limits(mut self, limits: TimeLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Trusts these root certificates as well as those of browsers. One or more, as PEM.
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.roots.push(pem.into());
        self
    }

    /// Shows this certificate to servers that ask for one: the chain, the client's own certificate first,
    /// and its private key, both as PEM. A proxy is not shown it.
    pub fn client_certificate(
        mut self,
        chain_pem: impl Into<Vec<u8>>,
        key_pem: impl Into<Vec<u8>>,
    ) -> Self {
        self.client = Some(ClientCertificate {
            chain: chain_pem.into(),
            key: key_pem.into(),
        });
        self
    }

    /// Reaches all servers through this proxy, `http://host:port` or `https://host:port`, which may contain
    /// `user:password@`.
    ///
    /// Defaults to the proxies that the environment names, as for curl: `HTTPS_PROXY`, `HTTP_PROXY` and
    /// `ALL_PROXY`, except for the hosts in `NO_PROXY` and for this machine's own servers.
    #[cfg(feature = "proxy")]
    pub fn proxy(mut self, url: impl Into<String>) -> Self {
        self.proxy = super::proxy::ProxyChoice::Url(url.into());
        self
    }

    /// Uses no proxy, also if the environment names one.
    #[cfg(feature = "proxy")]
    pub fn no_proxy(mut self) -> Self {
        self.proxy = super::proxy::ProxyChoice::None;
        self
    }

    /// Builds the client, without connections.
    ///
    /// # Errors
    ///
    /// Fails with an [`HttpClientError`] that names the invalid part.
    pub fn build(self) -> Result<HttpClient, HttpClientError> {
        let roots = self.root_store()?;
        let tls = match &self.client {
            None => anonymous(roots.clone())?,
            Some(client) => {
                let chain = certificates("client certificate", &client.chain)?;
                let key = PrivateKeyDer::from_pem_slice(&client.key)
                    .map_err(|error| unreadable("key of the client certificate", error))?;
                client_config(roots.clone())?
                    .with_client_auth_cert(chain, key)
                    .map_err(tls_error)?
            }
        };
        let tcp = self.tcp();
        #[cfg(feature = "proxy")]
        let proxies = self.proxy.proxies()?;
        #[cfg(feature = "proxy")]
        let tcp = super::proxy::ProxyConnector::new(tcp, anonymous(roots)?, proxies.clone());
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .build(connector);
        Ok(HttpClient::from_parts(
            client,
            self.limits,
            #[cfg(feature = "proxy")]
            proxies,
        ))
    }

    fn tcp(&self) -> HttpConnector {
        let mut tcp = HttpConnector::new();
        tcp.set_connect_timeout(self.limits.connect);
        // A request is written at once, and need not wait for more bytes to fill a packet.
        tcp.set_nodelay(true);
        // A router forgets a silent connection within minutes, and a model may think for that long.
        tcp.set_keepalive(Some(KEEP_ALIVE));
        // Otherwise the connector rejects `https`, which the one around it handles.
        tcp.enforce_http(false);
        tcp
    }

    fn root_store(&self) -> Result<RootCertStore, HttpClientError> {
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
        Ok(roots)
    }
}

/// The time of silence after which TCP asks whether the server is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

type ConfigBuilder = rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>;

fn client_config(roots: RootCertStore) -> Result<ConfigBuilder, HttpClientError> {
    // The crypto provider is explicit, since requesting the process default may panic.
    let crypto = rustls::crypto::ring::default_provider();
    let config = ClientConfig::builder_with_provider(crypto.into())
        .with_safe_default_protocol_versions()
        .map_err(tls_error)?;
    Ok(config.with_root_certificates(roots))
}

fn anonymous(roots: RootCertStore) -> Result<ClientConfig, HttpClientError> {
    Ok(client_config(roots)?.with_no_client_auth())
}

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

impl fmt::Debug for HttpClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClientBuilder")
            .field("limits", &self.limits)
            .field("has_client_certificate", &self.client.is_some())
            .finish_non_exhaustive()
    }
}
