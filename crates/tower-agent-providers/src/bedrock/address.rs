use std::borrow::Cow;

use crate::protocol::AwsAccess;

/// The service's name in signatures.
pub(super) const SERVICE: &str = "bedrock";

/// The address in the region that most examples use; each region has its own.
pub(super) const BASE_URL: &str = "https://bedrock-runtime.us-east-1.amazonaws.com";

/// The variable of AWS's own clients.
pub(super) const BASE_URL_VARIABLE: &str = "AWS_ENDPOINT_URL_BEDROCK_RUNTIME";

/// The variable of a Bedrock API key.
pub(super) const KEY_VARIABLE: &str = "AWS_BEARER_TOKEN_BEDROCK";

/// The provider's name for prices and telemetry.
pub(super) const TARGET: &str = "bedrock";

/// Returns the address of the service in the region.
pub(super) fn base_url(aws: &AwsAccess) -> Result<Cow<'static, str>, String> {
    let region = aws.require_region()?;
    let domain = if region.starts_with("cn-") {
        "amazonaws.com.cn"
    } else {
        "amazonaws.com"
    };
    Ok(format!("https://bedrock-runtime.{region}.{domain}").into())
}
