-- The states of rate limits. One that says nothing any more is deleted.
CREATE TABLE tower_agent_rates (
    -- The SHA-256 of a limit's name and key, such as sha256('"openai"/ada'): keys come from clients, who may send
    -- any number of any bytes, and users are not named here.
    id BYTEA PRIMARY KEY,
    -- As JSON.
    state TEXT NOT NULL,
    -- In milliseconds since 1970: the minute in which everything of the limit has come back.
    unused_at BIGINT NOT NULL
) WITH (fillfactor = 50); -- Room for the next state of a row beside it, so that indexes do not change.
CREATE INDEX tower_agent_rates_unused ON tower_agent_rates (unused_at);
