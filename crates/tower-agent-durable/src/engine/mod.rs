//! Durable runs on several machines: an engine says which of them makes a run, and the
//! [journal](crate::journal) keeps its steps.

#[cfg(feature = "dbos")]
#[cfg_attr(docsrs, doc(cfg(feature = "dbos")))]
pub mod dbos;
