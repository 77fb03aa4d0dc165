//! What goes out to a model is whole, and a run always says something.
