//! Features that only Bedrock has.

mod anthropic;
mod requests;
mod responses;
mod signatures;
mod verifier;

pub(super) use self::verifier::signatures as signatures_of;

use tower_agent_providers::HttpClient;
use tower_agent_providers::bedrock::{Bedrock, Credentials};

use crate::server::Server;

const ID: &str = "AKIDEXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const TOKEN: &str = "IQoJb3JpZ2luX2VjEXAMPLE//////////wEaCXVzLWVhc3QtMSJ";

fn credentials(token: Option<&str>) -> Credentials {
    Credentials::new(ID, SECRET, token.map(str::to_owned), None, "test")
}

fn model(server: &Server) -> Bedrock<HttpClient> {
    Bedrock::builder()
        .base_url(&server.base_url)
        .api_key("k")
        .model("test-model")
        .build()
        .unwrap()
}
