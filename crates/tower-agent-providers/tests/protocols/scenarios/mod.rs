//! The scenarios, written once.

mod answers;
mod bytes;
mod compositions;
mod errors;
mod lies;
mod requests;

use test_support::{call, deltas, stream};
use tower_agent::stream::Delta;
use tower_agent::{Error, ModelRequest, ModelResponse};

pub(crate) use self::answers::*;
pub(crate) use self::bytes::*;
pub(crate) use self::compositions::*;
pub(crate) use self::errors::*;
pub(crate) use self::lies::*;
pub(crate) use self::requests::*;
use crate::answer::{Answer, Said, said};
use crate::column::{Column, model, streamed};
use crate::server::{Reply, Server, json};

/// The outcome of a streamed call.
struct Read {
    response: Result<ModelResponse, Error>,
    deltas: Vec<Delta>,
}

impl Read {
    fn texts(&self) -> Vec<&str> {
        let texts = self.deltas.iter().filter_map(|delta| match delta {
            Delta::Text(text) => Some(&**text),
            _ => None,
        });
        texts.collect()
    }

    fn thoughts(&self) -> String {
        let thoughts = self.deltas.iter().filter_map(|delta| match delta {
            Delta::Reasoning(text) => Some(&**text),
            _ => None,
        });
        thoughts.collect()
    }
}

/// Calls a server that replies with a stream.
async fn read<C: Column>(reply: Reply) -> Read {
    let server = Server::start([reply]).await;
    let (response, events) = stream(model::<C>(&server), ModelRequest::default()).await;
    Read {
        response,
        deltas: deltas(events),
    }
}

/// The response to a plain call and to a streamed one.
async fn both<C: Column>(answer: &Answer) -> [ModelResponse; 2] {
    let server = Server::start([json(200, &C::body(answer))]).await;
    let plain = call(model::<C>(&server), ModelRequest::default())
        .await
        .unwrap();
    let streamed = read::<C>(streamed::<C>(answer)).await.response.unwrap();
    [plain, streamed]
}

#[track_caller]
fn assert_said<C: Column>(response: &ModelResponse, answer: &Answer) {
    let mask = |said: Vec<Said>| {
        if C::HAS_CALL_IDS {
            said
        } else {
            said.into_iter().map(Said::without_id).collect()
        }
    };
    assert_eq!(mask(said(response.message())), mask(answer.said()));
}
