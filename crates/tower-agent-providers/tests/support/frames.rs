//! The frames of AWS's event streams, written from AWS's description of them.

use flate2::Crc;

fn checksum(bytes: &[u8]) -> [u8; 4] {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum().to_be_bytes()
}

/// A frame with these headers, all of which are strings.
pub fn frame(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    const STRING: u8 = 7;
    let mut written = Vec::new();
    for (name, value) in headers {
        written.push(u8::try_from(name.len()).unwrap());
        written.extend_from_slice(name.as_bytes());
        written.push(STRING);
        written.extend_from_slice(&u16::try_from(value.len()).unwrap().to_be_bytes());
        written.extend_from_slice(value.as_bytes());
    }
    let length = 12 + written.len() + payload.len() + 4;
    let mut frame = u32::try_from(length).unwrap().to_be_bytes().to_vec();
    frame.extend_from_slice(&u32::try_from(written.len()).unwrap().to_be_bytes());
    frame.extend_from_slice(&checksum(&frame));
    frame.extend_from_slice(&written);
    frame.extend_from_slice(payload);
    frame.extend_from_slice(&checksum(&frame));
    frame
}

/// The frame of an event.
pub fn event(kind: &str, payload: &str) -> Vec<u8> {
    let headers = [
        (":event-type", kind),
        (":content-type", "application/json"),
        (":message-type", "event"),
    ];
    frame(&headers, payload.as_bytes())
}

/// The frame of an exception.
pub fn exception(kind: &str, payload: &str) -> Vec<u8> {
    let headers = [
        (":exception-type", kind),
        (":content-type", "application/json"),
        (":message-type", "exception"),
    ];
    frame(&headers, payload.as_bytes())
}
