use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

/// The tokens used by a call or a whole run. Zero if the provider did not report them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
#[must_use]
pub struct Usage {
    /// Input tokens, those read from and written to the cache included.
    pub input_tokens: u64,
    /// Output tokens, reasoning included.
    pub output_tokens: u64,
    /// Input tokens read from the provider's cache.
    pub cached_input_tokens: u64,
    /// Input tokens written to the provider's cache.
    pub cache_write_tokens: u64,
    /// Output tokens spent on reasoning.
    pub reasoning_tokens: u64,
}

impl Usage {
    /// Creates a usage of input and output tokens.
    pub const fn new(input_tokens: u64, output_tokens: u64) -> Self {
        Self {
            input_tokens,
            output_tokens,
            cached_input_tokens: 0,
            cache_write_tokens: 0,
            reasoning_tokens: 0,
        }
    }

    /// The most tokens of one kind that an answer can have used: ten times the longest prompt that
    /// any model reads. Whatever states more has not counted.
    pub(crate) const MOST: u64 = 100_000_000;

    /// Returns the usage if it is known: if the provider has stated one that can be true, of at
    /// most 100 million tokens of a kind. Runs and budgets count no other.
    ///
    /// ```
    /// use tower_agent::Usage;
    ///
    /// assert_eq!(Usage::default().known(), None);
    /// assert_eq!(Usage::new(u64::MAX, 3).known(), None);
    /// assert_eq!(Usage::new(12, 3).known(), Some(Usage::new(12, 3)));
    /// ```
    #[must_use]
    #[inline]
    pub fn known(self) -> Option<Self> {
        let counts = [
            self.input_tokens,
            self.output_tokens,
            self.cached_input_tokens,
            self.cache_write_tokens,
            self.reasoning_tokens,
        ];
        if counts.into_iter().any(|count| count > Self::MOST) {
            return None;
        }
        (self.total() > 0).then_some(self)
    }

    /// Returns the sum of input and output tokens.
    #[must_use]
    #[inline]
    pub const fn total(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

impl Usage {
    /// Combines two usages field by field: the one list of fields that sums and differences share.
    fn combined(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        // Without `..`, so that a field which is not combined does not compile.
        let Self {
            input_tokens,
            output_tokens,
            cached_input_tokens,
            cache_write_tokens,
            reasoning_tokens,
        } = other;
        Self {
            input_tokens: combine(self.input_tokens, input_tokens),
            output_tokens: combine(self.output_tokens, output_tokens),
            cached_input_tokens: combine(self.cached_input_tokens, cached_input_tokens),
            cache_write_tokens: combine(self.cache_write_tokens, cache_write_tokens),
            reasoning_tokens: combine(self.reasoning_tokens, reasoning_tokens),
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        // Saturating: the counts are a provider's word, and a wrong one must not panic.
        *self = self.combined(other, u64::saturating_add);
    }
}

impl Add for Usage {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

/// Returns the usage since an earlier count.
impl Sub for Usage {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        self.combined(earlier, u64::saturating_sub)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a usage with every field set, each to another number.
    fn usage(factor: u64) -> Usage {
        Usage {
            input_tokens: factor,
            output_tokens: 2 * factor,
            cached_input_tokens: 3 * factor,
            cache_write_tokens: 4 * factor,
            reasoning_tokens: 5 * factor,
        }
    }

    #[test]
    fn sums_and_differences_have_every_field() {
        assert_eq!(usage(10) + usage(1), usage(11));
        assert_eq!(usage(11) - usage(1), usage(10));

        let mut sum = usage(10);
        sum += usage(1);
        assert_eq!(sum, usage(11));
    }

    #[test]
    fn sums_and_differences_saturate() {
        assert_eq!(usage(1) - usage(2), Usage::default());
        let most = Usage::new(u64::MAX, u64::MAX);
        assert_eq!((most + usage(1)).input_tokens, u64::MAX);
    }
}
