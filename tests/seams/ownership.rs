//! A call belongs to the agent that made it.
