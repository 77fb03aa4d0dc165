//! What an engineer tries in the first hour.
