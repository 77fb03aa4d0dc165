//! A client says only what is its own to say.
