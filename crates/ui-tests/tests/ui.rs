//! The compiler's messages for the likeliest mistakes. They must tell the cure.
//!
//! They are the compiler's own, so they are compared with one version of it: the one in
//! `rust-version`. After a change, look at them all, then write them anew with
//! `TRYBUILD=overwrite cargo test --test ui`.

#[test]
fn messages() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
