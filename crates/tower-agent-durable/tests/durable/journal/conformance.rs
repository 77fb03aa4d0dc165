//! The contract of every database as a journal.

use crate::support::conformance::{keeps_runs, programs, runs};
use crate::support::place::{Database, InFile, OnServer, Place};
use crate::support::server::Server;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_conforms() {
    conforms(InFile::new).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_conforms() {
    let Some(server) = Server::start("journal-conformance") else {
        return;
    };
    conforms(|| OnServer::new(&server)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_behind_a_pooler_conforms() {
    let Some(server) = Server::start_pooled("journal-conformance-pooled") else {
        return;
    };
    conforms(|| OnServer::new(&server)).await;
}

async fn conforms<P: Place<Journal: Database>>(new: impl Fn() -> P) {
    keeps_runs(async || new()).await;
    runs::a_run_is_seen_with_its_steps_and_what_it_waits_for_and_goes_on(new()).await;
    runs::a_run_that_has_failed_goes_on_with_the_call_that_failed(new()).await;
    runs::a_run_that_was_cancelled_or_deleted_stops_before_its_next_step(new()).await;
    runs::a_run_that_has_completed_is_not_cancelled(new()).await;
    runs::a_request_that_comes_late_does_not_begin_the_run_again(new()).await;
    runs::a_second_answer_does_not_begin_the_run_again(new()).await;
    runs::a_late_answer_is_refused_and_the_next_request_has_the_outcome(new()).await;
    runs::an_answer_to_a_question_that_has_changed_is_refused(new()).await;
    runs::an_answer_that_does_not_count_leaves_the_question_open(new()).await;
    runs::runs_that_have_ended_are_deleted_when_they_are_old(new()).await;
    runs::runs_are_listed_the_latest_first(new()).await;
    runs::a_list_of_runs_has_pages_and_filters(new()).await;
    runs::a_run_whose_key_cannot_be_kept_is_refused_in_words(new()).await;
    programs::two_users_may_choose_one_run_id(new()).await;
}
