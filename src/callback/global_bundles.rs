use super::bundle::Bundle;
use super::named_tool::NamedTool;

/// The bundles that an agent has for its whole tree, outermost first.
#[derive(Clone, Debug, Default)]
pub(crate) struct GlobalBundles(Vec<Bundle>);

impl GlobalBundles {
    /// Appends a bundle, inside the others.
    pub(crate) fn push(&mut self, bundle: Bundle) {
        if bundle.is_empty() {
            return;
        }
        match self.0.last_mut() {
            // One bundle is faster to enter than two.
            Some(last) if !last.may_be_idle() && !bundle.may_be_idle() => {
                *last = std::mem::take(last).and(bundle);
            }
            _ => self.0.push(bundle),
        }
    }

    /// Returns the bundles.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Bundle> {
        self.0.iter()
    }

    /// Returns the bundles that now have something to do.
    pub(crate) fn at_work(&self) -> impl Iterator<Item = &Bundle> {
        self.iter().filter(|bundle| !bundle.is_idle())
    }

    /// Returns the tools that the callbacks name.
    pub(crate) fn named_tools(&self) -> Vec<NamedTool> {
        self.0.iter().flat_map(Bundle::named_tools).collect()
    }

    /// Returns whether there is a journal among them.
    pub(crate) fn has_journal(&self) -> bool {
        self.0.iter().any(Bundle::has_journal)
    }
}
