//! One table of scenarios, run against every protocol over real sockets.
//!
//! A column is a protocol: it writes what a server of that protocol sends for an answer, and reads
//! what a request says. The scenarios are written once.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a test fails by panicking"
)]

#[path = "../support/server.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod server;

#[path = "../support/frames.rs"]
mod frames;

mod answer;
mod changes;
mod column;
mod columns;
mod contract;
mod own;
mod scenarios;

/// Runs every scenario against a protocol. Add a scenario here, and it runs against all.
macro_rules! column {
    ($name:ident, $column:ty) => {
        column!($name, $column;
            text_streams_in_its_deltas,
            a_call_is_sent_as_the_protocol_has_it,
            tools_of_the_server_stand_beside_those_of_the_agent,
            no_extra_field_removes_what_the_agent_has_set,
            a_tool_call,
            arguments_in_fragments,
            arguments_that_are_empty,
            parallel_calls_stay_apart,
            parts_keep_their_order,
            reasoning_goes_back_beside_its_call,
            two_reasoning_parts_stay_apart,
            the_data_of_another_provider_is_left_out,
            a_conversation_that_another_protocol_began,
            a_refusal,
            why_the_model_stopped,
            an_unknown_event_is_ignored,
            fields_that_are_missing,
            fields_that_are_unknown,
            fields_that_are_null,
            usage_that_is_missing,
            an_error_in_place_of_an_answer,
            an_error_before_any_delta,
            an_error_after_some_deltas,
            every_error_status_keeps_the_providers_message,
            the_key_is_nowhere_to_be_read,
            limits_and_ids_of_the_head_are_kept,
            two_calls_with_one_id,
            the_id_of_a_former_turn,
            deltas_after_the_end,
            counts_that_cannot_be,
            half_a_character,
            lists_with_nothing_in_them,
            a_call_of_a_tool_that_nobody_declared,
            arguments_that_are_no_object,
            arguments_that_are_encoded_twice,
            arguments_of_ten_thousand_levels,
            a_field_of_ten_thousand_levels,
            a_stream_that_failed_begins_again_if_it_may,
            a_stream_that_failed_is_not_tried_again_unasked,
            a_stream_that_is_cut_off_anywhere_is_an_error,
            a_connection_that_breaks_is_an_error,
            a_connection_that_breaks_leaves_what_was_received,
            a_stream_split_anywhere,
            an_event_of_five_megabytes,
            ten_thousand_events,
            the_other_form_is_read,
            each_body_begins_with_the_bytes_of_the_one_before,
            no_body_has_the_ids_of_messages,
            what_the_protocol_lacks_is_an_error_before_anything_is_sent,
            every_setting_is_sent_or_refused,
            the_usage_is_kept_as_it_is_stated_if_it_was_to_be,
        );
    };
    ($name:ident, $column:ty; $($scenario:ident),+ $(,)?) => {
        mod $name {
            $(
                #[tokio::test]
                async fn $scenario() {
                    use crate::column::Column;
                    let lacks = <$column>::LACKS.iter();
                    if lacks.clone().all(|(scenario, _)| *scenario != stringify!($scenario)) {
                        crate::scenarios::$scenario::<$column>().await;
                    }
                }
            )+

            #[test]
            fn listed_lacks_are_scenarios() {
                use crate::column::Column;
                let all = [$(stringify!($scenario)),+];
                for (scenario, _) in <$column>::LACKS {
                    assert!(all.contains(scenario), "{scenario}");
                }
            }
        }
    };
}

column!(anthropic, crate::columns::anthropic::AnthropicColumn);
column!(chat, crate::columns::chat::ChatColumn);
column!(cohere, crate::columns::cohere::CohereColumn);
column!(converse, crate::columns::converse::ConverseColumn);
column!(gemini, crate::columns::gemini::GeminiColumn);
column!(
    interactions,
    crate::columns::interactions::InteractionsColumn
);
column!(ollama, crate::columns::ollama::OllamaColumn);
column!(responses, crate::columns::responses::ResponsesColumn);
