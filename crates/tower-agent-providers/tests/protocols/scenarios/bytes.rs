//! How the bytes of a stream arrive.

use tower_agent::ModelRequest;
use tower_agent::stream::{self, Unfinished};
use tower_agent_providers::Protocol;
use tower_agent_providers::protocol::Framing;

use super::{assert_said, read};
use crate::answer::{Answer, Bit, call, text};
use crate::column::{Column, bytes_of, media_type, model, stream_of, streamed};
use crate::server::{Server, json, unfinished_as};
use test_support::property::positions;
use test_support::stream as read_stream;

/// An answer with everything that a split could break: characters of two, three and four bytes, an
/// escape, and a call in fragments.
fn recorded() -> Answer {
    Answer::new([
        text(&["aé漢", "🦀\n"]),
        call("call_1", "look", &["{\"at\":\"Trom", "sø 🦀\"}"]),
    ])
}

pub(crate) async fn a_stream_that_is_cut_off_anywhere_is_an_error<C: Column>() {
    let events = C::events(&recorded());
    let bytes = bytes_of::<C>(&events);
    let spare = &events[events.len() - C::SPARE_EVENTS..];
    let spare = bytes_of::<C>(spare).len();
    // The end of the last event that is needed may be a few bytes shorter.
    let needed = bytes.len() - spare;
    let cuts: Vec<_> = positions(0..needed).collect();
    let replies = cuts.iter().map(|&cut| stream_of::<C, _>([&bytes[..cut]]));
    let server = Server::start(replies).await;
    let model = model::<C>(&server);
    for cut in cuts {
        let (response, _) = read_stream(model.clone(), ModelRequest::default()).await;
        match response {
            Err(error) => {
                assert!(error.is_retryable(), "cut at {cut}: {error}");
                assert!(
                    error.message().contains("ended early"),
                    "cut at {cut}: {error}"
                );
                assert_eq!(
                    error.metadata().request_id.as_deref(),
                    Some("req_1"),
                    "cut at {cut}"
                );
            }
            // The end of a line may be missing where a line is an event.
            Ok(response) => {
                assert!(bytes[cut..needed].trim_ascii().is_empty(), "cut at {cut}");
                assert_said::<C>(&response, &recorded());
            }
        }
    }
}

pub(crate) async fn a_connection_that_breaks_is_an_error<C: Column>() {
    let events = C::events(&recorded());
    for kept in 0..events.len() - C::SPARE_EVENTS {
        let reply = unfinished_as(
            media_type::<C>(),
            events[..kept].iter().map(|event| C::framed(event)),
        );
        let error = read::<C>(reply).await.response.unwrap_err();
        assert!(error.is_retryable(), "{error}");
        assert_eq!(error.metadata().request_id.as_deref(), Some("req_1"));
    }
}

/// A budget charges for it.
pub(crate) async fn a_connection_that_breaks_leaves_what_was_received<C: Column>() {
    let events = C::events(&recorded());
    let whole = "aé漢🦀\n".len() + "look".len() + "{\"at\":\"Tromsø 🦀\"}".len();
    let mut before = Unfinished::default();
    for sent in 0..events.len() - C::SPARE_EVENTS {
        let server = Server::start([unfinished_as(
            media_type::<C>(),
            events[..sent].iter().map(|event| C::framed(event)),
        )])
        .await;
        let (sink, shown) = stream::channel(1000);
        let request = ModelRequest::default().with_delta_sender(sink.clone());

        test_support::call(model::<C>(&server), request)
            .await
            .unwrap_err();

        let [received] = sink.unfinished()[..] else {
            panic!("{:?}", sink.unfinished());
        };
        assert!(received.text_len >= before.text_len, "{received:?}");
        assert!(received.text_len <= whole, "{received:?}");
        for (now, before, at_last) in [
            (
                received.usage.input_tokens,
                before.usage.input_tokens,
                C::usage().input_tokens,
            ),
            (
                received.usage.output_tokens,
                before.usage.output_tokens,
                C::usage().output_tokens,
            ),
        ] {
            assert!(before <= now && now <= at_last, "{received:?}");
        }
        before = received;
        drop(shown);
    }
    assert!(before.text_len > 0);
}

/// The distance between two splits.
const APART: usize = 97;

pub(crate) async fn a_stream_split_anywhere<C: Column>() {
    let events = C::events(&recorded());
    let ends = match <C::Protocol as Protocol>::FRAMING {
        Framing::ServerSentEvents => &["\n", "\r\n", "\r"][..],
        Framing::Lines => &["\n", "\r\n"],
        // A frame has a length in place of an end.
        _ => &["\n"],
    };
    for end in ends {
        let events = events.iter().map(|event| event.replace('\n', end));
        let bytes = bytes_of::<C>(&events.collect::<Vec<_>>());
        // Every place is once the only split for some distance.
        let far = (1..=APART).map(|at| {
            let rest = bytes[at..].chunks(APART);
            stream_of::<C, _>([&bytes[..at]].into_iter().chain(rest))
        });
        let often = [1, 2, 3, 7].map(|size| stream_of::<C, _>(bytes.chunks(size)));
        let replies: Vec<_> = far.chain(often).collect();
        let count = replies.len();
        let server = Server::start(replies).await;
        let model = model::<C>(&server);
        for at in 0..count {
            let (response, _) = read_stream(model.clone(), ModelRequest::default()).await;
            let response = response.unwrap_or_else(|error| panic!("split at {at}: {error}"));
            assert_said::<C>(&response, &recorded());
            assert_eq!(response.usage(), C::usage(), "split at {at}");
        }
    }
}

pub(crate) async fn an_event_of_five_megabytes<C: Column>() {
    let long = "漢🦀".repeat(5_000_000 / 7);
    let arguments = format!("{{\"text\":\"{}\"}}", "漢🦀".repeat(50_000));
    let answer = Answer::new([text(&[&long]), call("call_1", "write", &[&arguments])]);
    let bytes = bytes_of::<C>(&C::events(&answer));
    // In pieces that cut characters.
    let reply = stream_of::<C, _>(bytes.chunks(16_381));
    assert_said::<C>(&read::<C>(reply).await.response.unwrap(), &answer);
}

pub(crate) async fn ten_thousand_events<C: Column>() {
    let words: Vec<_> = (0..10_000).map(|number| format!("{number} ")).collect();
    let answer = Answer::new([Bit::Text(words.clone())]);
    let bytes = bytes_of::<C>(&C::events(&answer));
    let read = read::<C>(stream_of::<C, _>(bytes.chunks(4096))).await;
    assert_eq!(read.texts(), words);
    assert_said::<C>(&read.response.unwrap(), &answer);
}

/// Servers answer a streamed call plainly, and a plain call with a stream.
pub(crate) async fn the_other_form_is_read<C: Column>() {
    let answer = Answer::new([text(&["a", "b"]), call("call_1", "now", &["{}"])]);
    let read = read::<C>(json(200, &C::body(&answer))).await;
    assert_eq!(read.texts(), ["ab"]);
    assert_said::<C>(&read.response.unwrap(), &answer);
    let server = Server::start([streamed::<C>(&answer)]).await;
    let plain = test_support::call(model::<C>(&server), ModelRequest::default())
        .await
        .unwrap();
    assert_said::<C>(&plain, &answer);
    assert_eq!(plain.attempt(), None);
}
