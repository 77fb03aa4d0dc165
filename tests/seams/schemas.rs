//! What providers would refuse is refused or mended here.
