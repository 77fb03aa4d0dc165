//! Replacements that leave something of a text.

use sha2::{Digest, Sha256};

/// Leaves of a text what a person needs to recognise it: the last four digits of a `card`, the
/// first letter and the last domain of an `email`, the last number of an `ip`. Of any other kind
/// nothing is left.
///
/// ```
/// use tower_agent_middleware::redact::{Detector, Redact, mask};
///
/// # fn main() -> Result<(), tower_agent::BoxError> {
/// let redact = Redact::new([Detector::email(), Detector::card(), Detector::ip_address()])?
///     .replace_with(mask);
/// assert_eq!(redact.text("jo@example.com, 4111 1111 1111 1111"), "j****@****.com, ****1111");
/// assert_eq!(redact.text("10.0.0.7"), "*.*.*.7");
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn mask(kind: &str, text: &str) -> String {
    let left = match kind {
        "card" => last_digits(text),
        "email" => mailbox(text),
        "ip" => text
            .rsplit_once('.')
            .map(|(_, last)| format!("*.*.*.{last}")),
        _ => None,
    };
    left.unwrap_or_else(|| "****".to_owned())
}

fn last_digits(text: &str) -> Option<String> {
    let digits: Vec<_> = text.chars().filter(char::is_ascii_digit).collect();
    let last: String = digits.get(digits.len().checked_sub(4)?..)?.iter().collect();
    Some(format!("****{last}"))
}

fn mailbox(text: &str) -> Option<String> {
    let (name, host) = text.split_once('@')?;
    let (_, last) = host.rsplit_once('.')?;
    Some(format!("{}****@****.{last}", name.chars().next()?))
}

/// Returns a replacement by a hash, such as `<email:1b2c3d4e>`: the same text has the same hash, in
/// every conversation and process with this key. Without the key nobody can try texts against it,
/// so keep it like a password.
///
/// ```
/// use tower_agent_middleware::redact::{Detector, Redact, hash};
///
/// # fn main() -> Result<(), tower_agent::BoxError> {
/// let redact = |key: &str| Redact::new([Detector::email()]).map(|it| it.replace_with(hash(key)));
/// let hidden = redact("secret")?.text("jo@example.com").into_owned();
/// assert_eq!(hidden.len(), "<email:12345678>".len());
/// assert_eq!(redact("secret")?.text("jo@example.com"), hidden);
/// assert_ne!(redact("other")?.text("jo@example.com"), hidden);
/// # Ok(())
/// # }
/// ```
pub fn hash(key: impl AsRef<[u8]>) -> impl Fn(&str, &str) -> String + Send + Sync + 'static {
    // The hash of the key has one length, so a key and a text cannot be another key and text.
    let keyed = Sha256::new_with_prefix(Sha256::digest(key));
    move |kind, text| {
        let digest = keyed.clone().chain_update(text).finalize();
        let short = digest.iter().take(4);
        let hex: String = short.map(|byte| format!("{byte:02x}")).collect();
        format!("<{kind}:{hex}>")
    }
}
