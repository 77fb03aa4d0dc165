/// The mark of a response that was counted. No part of what it says, so all marks are equal.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted(bool);

impl Counted {
    pub(crate) fn set(&mut self) -> bool {
        !std::mem::replace(&mut self.0, true)
    }

    /// Marks the response if another is, which it replaces.
    pub(crate) fn take_over(&mut self, replaced: Self) {
        self.0 |= replaced.0;
    }

    pub(crate) fn is_set(self) -> bool {
        self.0
    }
}

impl PartialEq for Counted {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
