//! A database whose clock a test sets.

use std::time::Duration;

use tower_agent_durable::Postgres;

use crate::support::server::Server;

/// A database with functions of its own in the place of PostgreSQL's clock.
pub(super) struct Clock<'a> {
    pub(super) server: &'a Server,
    pub(super) database: &'static str,
}

impl<'a> Clock<'a> {
    pub(super) fn new(server: &'a Server, database: &'static str) -> Self {
        server.create(database);
        let clock = Self { server, database };
        clock.query(
            "CREATE TABLE test_clock (at TIMESTAMPTZ NOT NULL); \
             INSERT INTO test_clock VALUES ('2030-01-01'); \
             CREATE FUNCTION public.clock_timestamp() RETURNS TIMESTAMPTZ LANGUAGE sql VOLATILE \
             AS 'SELECT at FROM public.test_clock'; \
             CREATE FUNCTION public.now() RETURNS TIMESTAMPTZ LANGUAGE sql STABLE \
             AS 'SELECT at FROM public.test_clock'",
        );
        clock.query(&format!(
            "ALTER DATABASE {database} SET search_path = public, pg_catalog"
        ));
        clock
    }

    pub(super) fn advance(&self, time: Duration) {
        let micros = time.as_micros();
        self.query(&format!(
            "UPDATE test_clock SET at = at + INTERVAL '{micros} microseconds'"
        ));
    }

    /// Opens the database, as a process does.
    pub(super) async fn open(&self) -> Postgres {
        self.server.connect_to(self.database).await
    }

    pub(super) fn query(&self, sql: &str) -> String {
        self.server.query_in(self.database, sql)
    }

    pub(super) fn rows(&self) -> u32 {
        let rows = self.query("SELECT count(*) FROM tower_agent_rates");
        rows.parse().unwrap()
    }
}
