CREATE TABLE tower_agent_runs (
    run TEXT PRIMARY KEY,
    agent TEXT NOT NULL,
    -- The user of the run's session or thread, if it has one.
    owner TEXT,
    -- Raised by every process that takes the run over: what an earlier one writes is refused.
    epoch INTEGER NOT NULL,
    -- The number of the current input.
    input INTEGER NOT NULL,
    -- The number of the input that began the conversation.
    conversation INTEGER NOT NULL,
    status TEXT NOT NULL,
    -- What the run waits for, has ended with and goes on from, as JSON.
    ended TEXT,
    -- In milliseconds since 1970.
    started_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX tower_agent_runs_of_owner ON tower_agent_runs (owner) WHERE owner IS NOT NULL;

-- The requests of a run: the first, and those that resumed it.
CREATE TABLE tower_agent_run_inputs (
    run TEXT NOT NULL REFERENCES tower_agent_runs (run) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    fingerprint TEXT NOT NULL,
    request TEXT NOT NULL,
    PRIMARY KEY (run, number)
) WITHOUT ROWID;

CREATE TABLE tower_agent_run_steps (
    position INTEGER PRIMARY KEY,
    run TEXT NOT NULL REFERENCES tower_agent_runs (run) ON DELETE CASCADE,
    step TEXT NOT NULL,
    -- The step and its intent, as JSON.
    id TEXT NOT NULL,
    intent TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    -- What the step has returned, as JSON; NULL while it is unfinished.
    record TEXT,
    begun_at INTEGER NOT NULL,
    ended_at INTEGER,
    UNIQUE (run, step)
);
