mod contents;
mod decoder;
mod model_name;
mod operations;
mod part;
mod protocol;
mod provider;
mod request;
mod response;
mod settings;

pub use self::protocol::{GenerateContent, GenerateContentDecoder};
