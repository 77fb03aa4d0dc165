//! Has the model repair a final answer that does not match.

use super::loop_state::LoopState;
use crate::error::Result;
use crate::message::{Message, Messages};
use crate::run::EndReason;
use crate::stream::EventKind;

impl LoopState<'_> {
    /// Returns the end of the run, unless the model must repair its final answer.
    pub(super) async fn judge(&mut self) -> Result<Option<EndReason>> {
        let Some(answering) = &mut self.answering else {
            return Ok(Some(EndReason::Completed));
        };
        let answer = self
            .transcript
            .read(|messages: &Messages| messages.last().cloned());
        let judged = answering.judge(&answer.unwrap_or_else(|| Message::assistant("")))?;
        let Some((again, error)) = judged else {
            return Ok(Some(EndReason::Completed));
        };
        self.transcript.push(again);
        self.end_step();
        if let Some(emitter) = self.turn.emitter() {
            emitter.tell(EventKind::AnswerRejected { error }).await;
        }
        Ok(None)
    }
}
