//! Rules of a business, decided at each tool call.

mod by_hand;
mod cost;
mod deciding;
mod flow;
mod loading;
mod matrix;
mod results;
mod seen;
mod shown;
mod sources;
mod stacks;
mod threads;
mod world;
