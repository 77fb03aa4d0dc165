use std::fmt;
use std::future::Future;
use std::sync::Arc;

use aws_credential_types::Credentials;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use tower_agent::error::BoxError;

type FetchCredentials =
    Arc<dyn Fn() -> BoxFuture<'static, Result<Credentials, BoxError>> + Send + Sync>;

/// The region of a service of AWS, and the credentials that sign its calls.
///
/// A [`Protocol`](super::Protocol) contains it and returns it from [`aws`](super::Protocol::aws).
#[derive(Clone)]
pub struct AwsAccess {
    service: &'static str,
    region: Option<String>,
    credentials: Option<CredentialSource>,
}

#[derive(Clone)]
enum CredentialSource {
    Fixed(Credentials),
    Fetched(FetchCredentials),
}

impl AwsAccess {
    /// Creates the access to a service by its name in signatures, such as `bedrock`.
    #[must_use]
    pub const fn new(service: &'static str) -> Self {
        Self {
            service,
            region: None,
            credentials: None,
        }
    }

    /// Returns the service's name in signatures.
    #[must_use]
    pub fn service(&self) -> &'static str {
        self.service
    }

    /// Returns the region.
    #[must_use]
    pub fn region(&self) -> Option<&str> {
        self.region.as_deref()
    }

    /// Sets the region.
    pub fn set_region(&mut self, region: impl Into<String>) {
        self.region = Some(region.into());
    }

    /// Sets the credentials.
    pub fn set_credentials(&mut self, credentials: Credentials) {
        self.credentials = Some(CredentialSource::Fixed(credentials));
    }

    /// Sets a function that fetches the credentials of each call.
    pub fn set_credentials_with<F, Fut>(&mut self, fetch: F)
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Credentials, BoxError>> + Send + 'static,
    {
        let fetch: FetchCredentials = Arc::new(move || fetch().boxed());
        self.credentials = Some(CredentialSource::Fetched(fetch));
    }

    /// Sets the region from `AWS_REGION` or `AWS_DEFAULT_REGION`, if it is not set.
    pub fn complete(&mut self, environment: &dyn Fn(&str) -> Option<String>) {
        if self.region.is_none() {
            let names = ["AWS_REGION", "AWS_DEFAULT_REGION"];
            self.region = names.into_iter().find_map(environment);
        }
    }

    /// Returns the region, as it may stand in a host name.
    ///
    /// # Errors
    ///
    /// Fails if there is none, or if it is not a word of letters, digits and `-`.
    pub fn require_region(&self) -> Result<&str, String> {
        let Some(region) = self.region() else {
            let message = "no region is set: set `AWS_REGION`, or call `region` on the builder";
            return Err(message.to_owned());
        };
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if region.is_empty() || !region.bytes().all(is_word) {
            return Err(format!(
                "`{region}` is not a region: write it as in `eu-central-1`"
            ));
        }
        Ok(region)
    }

    /// Returns the access with the credentials of the environment, if there are any.
    pub(crate) fn of_environment(
        &self,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Option<Self> {
        let id = environment("AWS_ACCESS_KEY_ID")?;
        let secret = environment("AWS_SECRET_ACCESS_KEY")?;
        let token = environment("AWS_SESSION_TOKEN");
        let mut access = self.clone();
        access.set_credentials(Credentials::new(id, secret, token, None, "environment"));
        Some(access)
    }

    /// Returns whether the caller has set credentials.
    pub(crate) fn has_credentials(&self) -> bool {
        self.credentials.is_some()
    }

    /// Returns the credentials of one call, if there are any.
    pub(crate) async fn credentials(&self) -> Result<Option<Credentials>, BoxError> {
        match &self.credentials {
            None => Ok(None),
            Some(CredentialSource::Fixed(credentials)) => Ok(Some(credentials.clone())),
            Some(CredentialSource::Fetched(fetch)) => fetch().await.map(Some),
        }
    }
}

/// Without the credentials.
impl fmt::Debug for AwsAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsAccess")
            .field("service", &self.service)
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}
