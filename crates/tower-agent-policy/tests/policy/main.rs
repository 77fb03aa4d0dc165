//! Rules of a business, decided at each tool call.

mod by_hand;
mod deciding;
mod flow;
mod loading;
mod matrix;
mod results;
mod shown;
mod sources;
mod world;
