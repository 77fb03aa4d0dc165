//! What is redacted stays so, in every part of a run and in the next one.
