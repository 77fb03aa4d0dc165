//! Bounds and checks for servers of agents, whatever protocol they speak.
//!
//! Whoever reaches a server can send anything, as often as they like, and may never read what it
//! answers. The servers of AG-UI and MCP have these bounds; a server of your own needs them too.
//!
//! | a client | bound |
//! |---|---|
//! | begins run after run | [`Places`]: so many at once, and so many of one user |
//! | takes nothing of what it has asked for | [`ReadTimeout`]: its stream is dropped |
//! | names a URL that a provider fetches | [`is_public_url`] |
//! | is the page of another site, in a browser on this machine | [`is_loopback_host`], [`is_own_origin`] |
//!
//! The size and the time of a request are the HTTP server's to bound.

mod local;
mod places;
mod read_timeout;
mod urls;

pub use self::local::{is_loopback_host, is_own_origin};
pub use self::places::{NoPlace, Place, Places};
pub use self::read_timeout::{NotRead, ReadTimeout};
pub use self::urls::is_public_url;
