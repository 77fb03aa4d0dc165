//! Events as bytes.

use tower_agent::agui::{Event, sse};

#[test]
fn an_event_is_one_line_and_an_empty_one_whatever_it_says() {
    let mut bytes = Vec::new();
    let events = [Event::text_content("m", "a\r\nb\n\ndata: x\u{2028}"), Event::text_end("m")];
    for event in &events {
        sse::write(event, &mut bytes).unwrap();
    }
    let text = std::str::from_utf8(&bytes).unwrap();
    assert!(!text.contains('\r'));
    let blocks: Vec<_> = text.split_terminator("\n\n").collect();
    assert_eq!(blocks.len(), 2);
    for (block, event) in blocks.iter().zip(&events) {
        let json = block.strip_prefix("data: ").unwrap();
        assert!(!json.contains('\n'));
        assert_eq!(serde_json::from_str::<Event>(json).unwrap(), *event);
    }
}

#[test]
fn the_keep_alive_is_a_comment() {
    assert!(sse::KEEP_ALIVE.starts_with(b":") && sse::KEEP_ALIVE.ends_with(b"\n\n"));
    assert!(!sse::KEEP_ALIVE.contains(&b'\r'));
}

#[test]
fn writing_into_a_buffer_with_room_allocates_nothing() {
    let mut bytes = Vec::with_capacity(1024);
    let event = Event::text_content("m", "Hello");
    let used = crate::allocations::of(|| sse::write(&event, &mut bytes));
    assert_eq!(used, crate::allocations::Allocations::default());
    assert!(!bytes.is_empty());
}
