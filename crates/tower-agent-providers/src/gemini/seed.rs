use tower_agent::error::{Error, ErrorKind, Result};

/// Returns the seed as Google has it.
pub(super) fn seed(seed: u64) -> Result<i32> {
    i32::try_from(seed).map_err(|_| {
        let message = format!(
            "the seed {seed} is too large: the protocol allows {}",
            i32::MAX
        );
        Error::new(ErrorKind::InvalidRequest, message)
    })
}
