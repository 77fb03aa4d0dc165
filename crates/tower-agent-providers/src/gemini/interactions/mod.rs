mod content;
mod decoder;
mod input;
mod protocol;
mod provider;
mod request;
mod response;
mod settings;
mod step;

pub use self::protocol::{Interactions, InteractionsDecoder};
