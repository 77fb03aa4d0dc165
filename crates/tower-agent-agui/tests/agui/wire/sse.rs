//! Events as bytes.

use std::sync::Arc;

use tower_agent_agui::{Event, sse};

#[test]
fn every_event_is_one_line_and_an_empty_one() {
    let (mut writer, mut bytes) = (sse::Writer::new(), Vec::new());
    let events = [
        Event::text_content("m", "a\r\nb\n\ndata: x\u{2028}"),
        Event::text_end("m"),
    ];
    for event in &events {
        writer.write(event, &mut bytes).unwrap();
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
fn each_event_is_written_as_if_it_stood_alone() {
    let [one, other]: [Arc<str>; 2] = ["m\"1".into(), "m2".into()];
    let events = [
        Event::text_content(one.clone(), "a \"word\"\n"),
        Event::text_content(one.clone(), ""),
        Event::text_content(one.clone(), "more \u{1F600}"),
        Event::text_content(one.clone(), "timed").with_timestamp(1),
        Event::reasoning_message_content(one.clone(), "thought"),
        Event::reasoning_message_content(one.clone(), "more"),
        Event::tool_call_args(one.clone(), "{\"a\":"),
        Event::tool_call_args(one.clone(), "1}"),
        Event::text_content(other.clone(), "of another"),
        Event::text_content(one.clone(), "from within").with_subagent_run_id("a2"),
        Event::text_content(other, "of another still"),
        Event::text_end(one.clone()),
        Event::text_content(one, "again"),
    ];
    let (mut writer, mut bytes) = (sse::Writer::new(), Vec::new());
    for event in &events {
        bytes.clear();
        writer.write(event, &mut bytes).unwrap();
        let json = serde_json::to_string(event).unwrap();
        assert_eq!(
            std::str::from_utf8(&bytes).unwrap(),
            format!("data: {json}\n\n")
        );
    }
}

#[test]
fn writing_into_a_buffer_with_room_allocates_nothing() {
    let mut bytes = Vec::with_capacity(1024);
    let mut writer = sse::Writer::new();
    let event = Event::text_content("m", "Hello");
    writer.write(&event, &mut bytes).unwrap();
    let used = crate::allocations::of(|| writer.write(&event, &mut bytes));
    assert_eq!(used, crate::allocations::Allocations::default());
    assert!(!bytes.is_empty());
}
