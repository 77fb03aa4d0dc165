//! The settings, from the environment.

use std::env;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tower_agent::BoxError;

pub(crate) struct Settings {
    /// The process is a mock provider, and no gateway.
    pub(crate) is_mock: bool,
    pub(crate) mock: MockSettings,
    pub(crate) address: SocketAddr,
    /// The address of the counts: tenants do not read those of others.
    pub(crate) metrics: SocketAddr,
    /// The URLs of the providers; mocks of this process if there are none.
    pub(crate) providers: Vec<String>,
    pub(crate) provider_key: Option<String>,
    pub(crate) tenants: Vec<Tenant>,
    /// The requests that each tenant may make in a minute.
    pub(crate) requests_per_minute: u64,
    /// The time after which a slow call is made a second time.
    pub(crate) hedge_after: Duration,
}

/// A caller, and its key. The key is a secret; the name stands in logs, counts and limits.
#[derive(Clone)]
pub(crate) struct Tenant {
    pub(crate) name: Arc<str>,
    pub(crate) key: String,
}

/// The settings of a mock provider.
#[derive(Clone, Copy)]
pub(crate) struct MockSettings {
    /// The wait before the first word.
    pub(crate) first: Duration,
    /// The wait between two words.
    pub(crate) step: Duration,
    pub(crate) words: usize,
}

impl Settings {
    pub(crate) fn from_env() -> Result<Self, BoxError> {
        let port = number("PORT", 3001)?;
        Ok(Self {
            is_mock: env::args().nth(1).as_deref() == Some("mock"),
            mock: MockSettings {
                first: Duration::from_millis(number("MOCK_FIRST_MS", 50)?),
                step: Duration::from_millis(number("MOCK_STEP_MS", 10)?),
                words: number("MOCK_WORDS", 20)?,
            },
            address: (Ipv4Addr::LOCALHOST, port).into(),
            metrics: (Ipv4Addr::LOCALHOST, number("METRICS_PORT", 3002)?).into(),
            providers: list("PROVIDERS", ""),
            provider_key: env::var("PROVIDER_KEY").ok(),
            tenants: tenants(&list("KEYS", "ada=sk-ada,grace=sk-grace"))?,
            requests_per_minute: number("REQUESTS_PER_MINUTE", 600)?,
            hedge_after: Duration::from_millis(number("HEDGE_AFTER_MS", 2_000)?),
        })
    }
}

fn number<T: FromStr<Err: std::fmt::Display>>(name: &str, default: T) -> Result<T, BoxError> {
    match env::var(name) {
        Ok(value) => value
            .parse()
            .map_err(|error| format!("{name} is `{value}`: {error}").into()),
        Err(_) => Ok(default),
    }
}

fn list(name: &str, default: &str) -> Vec<String> {
    let value = env::var(name).unwrap_or_else(|_| default.to_owned());
    let parts = value.split(',').filter(|part| !part.is_empty());
    parts.map(str::to_owned).collect()
}

/// Reads the tenants. An error does not say what it has read, which may be a key.
pub(crate) fn tenants(pairs: &[String]) -> Result<Vec<Tenant>, BoxError> {
    let mut tenants: Vec<Tenant> = Vec::new();
    for (index, pair) in pairs.iter().enumerate() {
        let number = index + 1;
        let (name, key) = pair
            .split_once('=')
            .filter(|(name, key)| !name.is_empty() && !key.is_empty() && name != key)
            .ok_or_else(|| format!("number {number} of KEYS is not a name, `=` and a key"))?;
        if tenants.iter().any(|other| other.key == key) {
            return Err(format!("number {number} of KEYS has the key of another").into());
        }
        tenants.push(Tenant {
            name: name.into(),
            key: key.to_owned(),
        });
    }
    Ok(tenants)
}
