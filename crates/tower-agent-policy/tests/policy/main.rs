//! Rules of a business, decided at each tool call.

mod deciding;
mod flow;
mod loading;
mod results;
mod shown;
mod sources;
mod world;
