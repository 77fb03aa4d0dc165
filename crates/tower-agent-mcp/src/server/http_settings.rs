use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use rmcp::transport::StreamableHttpServerConfig;

use super::bounds;

/// Returns the principal of a request.
pub(super) type PrincipalOf = Arc<dyn Fn(&Parts) -> Option<Arc<str>> + Send + Sync>;

/// The settings of a server over HTTP.
#[derive(Clone)]
pub(super) struct HttpSettings {
    pub(super) hosts: Option<Vec<String>>,
    pub(super) origins: Option<Vec<String>>,
    pub(super) principal: Option<PrincipalOf>,
    /// In bytes.
    pub(super) max_request: usize,
    pub(super) answers_with_json: bool,
    /// At once.
    pub(super) max_runs: usize,
    /// At once, of one principal.
    pub(super) max_runs_per_principal: usize,
    /// In which a request has to arrive.
    pub(super) body_time: Duration,
    /// For which a client may take nothing.
    pub(super) read_time: Duration,
    pub(super) max_sessions: usize,
    /// The time without a message after which a session ends.
    pub(super) session_timeout: Duration,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            hosts: None,
            origins: None,
            principal: None,
            max_request: bounds::REQUEST,
            answers_with_json: false,
            max_runs: bounds::RUNS,
            max_runs_per_principal: bounds::RUNS_PER_PRINCIPAL,
            body_time: bounds::BODY_TIME,
            read_time: bounds::READ_TIME,
            max_sessions: bounds::SESSIONS,
            session_timeout: bounds::SESSION_TIME,
        }
    }
}

impl HttpSettings {
    pub(super) fn config(&self) -> StreamableHttpServerConfig {
        let mut config = StreamableHttpServerConfig::default();
        // rmcp's own default, the names of this machine, applies unless hosts were set.
        if let Some(hosts) = &self.hosts {
            config = config.with_allowed_hosts(hosts.clone());
        }
        // Checked also if nobody is allowed.
        let origins = self.allowed_origins(&config.allowed_hosts);
        config = config
            .with_allowed_origins(origins)
            .enforce_origin_validation();
        // It was read within the limit before rmcp sees it.
        config.max_request_body_bytes = usize::MAX;
        config
    }

    /// Returns the origins that may call: those that were set, or else pages of the server's own
    /// hosts.
    fn allowed_origins(&self, hosts: &[String]) -> Vec<String> {
        if let Some(origins) = &self.origins {
            return origins.clone();
        }
        let mut origins = Vec::new();
        for host in hosts {
            // An IPv6 address stands in brackets in an origin.
            let is_bare_ipv6 = host.parse::<std::net::Ipv6Addr>().is_ok();
            let host = if is_bare_ipv6 {
                format!("[{host}]")
            } else {
                host.clone()
            };
            // A host with a port is one origin a scheme.
            let has_port = host
                .parse::<http::uri::Authority>()
                .is_ok_and(|host| host.port().is_some());
            let port = if has_port { "" } else { ":*" };
            origins.push(format!("http://{host}{port}"));
            origins.push(format!("https://{host}{port}"));
        }
        origins
    }
}

impl fmt::Debug for HttpSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSettings")
            .field("hosts", &self.hosts)
            .field("origins", &self.origins)
            .field("has_principal", &self.principal.is_some())
            .finish_non_exhaustive()
    }
}
