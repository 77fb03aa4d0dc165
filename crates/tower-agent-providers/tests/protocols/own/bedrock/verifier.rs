//! Signature Version 4 as a server checks it, written from AWS's description.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::server::Seen;

fn sha256(bytes: &[u8]) -> Vec<u8> {
    Sha256::digest(bytes).to_vec()
}

fn hmac(key: &[u8], message: &str) -> Vec<u8> {
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let inner = block.map(|byte| byte ^ 0x36);
    let outer = block.map(|byte| byte ^ 0x5c);
    let inner = sha256(&[&inner, message.as_bytes()].concat());
    sha256(&[&outer[..], &inner].concat())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// Returns a part of the header, as in `Credential=..`.
fn part<'a>(authorization: &'a str, name: &str) -> &'a str {
    let (_, value) = authorization.split_once(&format!("{name}=")).unwrap();
    value.split(',').next().unwrap()
}

/// Returns the signature that a request should have, and the one that it has.
pub(in crate::own) fn signatures(request: &Seen, secret: &str) -> (String, String) {
    let authorization = request.header("authorization").unwrap();
    assert!(
        authorization.starts_with("AWS4-HMAC-SHA256 "),
        "{authorization}"
    );
    let scope = part(authorization, "Credential");
    let (_, scope) = scope.split_once('/').unwrap();
    let signed = part(authorization, "SignedHeaders");
    // The path is escaped once more than it is sent.
    let path = request.line().split(' ').nth(1).unwrap();
    let mut canonical = format!("POST\n{}\n\n", path.replace('%', "%25"));
    for name in signed.split(';') {
        let value = request.header(name).unwrap().trim();
        writeln!(canonical, "{name}:{value}").unwrap();
    }
    let body = hex(&sha256(request.text.as_bytes()));
    write!(canonical, "\n{signed}\n{body}").unwrap();
    let date = request.header("x-amz-date").unwrap();
    let hash = hex(&sha256(canonical.as_bytes()));
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{hash}");
    let key = scope
        .split('/')
        .fold(format!("AWS4{secret}").into_bytes(), |key, word| {
            hmac(&key, word)
        });
    let right = hex(&hmac(&key, &text));
    (right, part(authorization, "Signature").to_owned())
}
