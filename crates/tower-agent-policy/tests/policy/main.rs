//! Rules of a business, decided at each tool call.

mod deciding;
mod loading;
mod world;
