//! Features that only Anthropic Messages have.

mod agents;
mod answers;
mod caching;
mod conversations;
mod errors;
mod fixtures;
mod media;
mod reasoning;
mod settings;
mod streams;
