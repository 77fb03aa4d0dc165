//! Models at the far end of a network. Each module speaks one protocol over any HTTP service.
//!
//! ```text
//! Service<ModelRequest>  =  protocol  over  Service<http::Request>
//! ```

pub mod openai;
