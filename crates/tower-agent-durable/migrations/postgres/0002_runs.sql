-- Ids are compared and sorted by their bytes, as in the program and in SQLite.
CREATE TABLE tower_agent_runs (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The user whom the run belongs to; empty for nobody.
    owner TEXT COLLATE "C" NOT NULL,
    -- The run id of the requests, which two users may have chosen alike.
    run TEXT COLLATE "C" NOT NULL,
    agent TEXT NOT NULL,
    -- The version of the program that has started it last; empty for none.
    version TEXT NOT NULL,
    -- The stored conversation that the run is part of, and the policy that keeps it, as JSON; empty for
    -- none.
    kept_in TEXT NOT NULL,
    -- Raised by every process that takes the run over: what an earlier one writes is refused.
    epoch BIGINT NOT NULL,
    -- The number of the current input.
    input BIGINT NOT NULL,
    -- The number of the input that began the conversation.
    conversation BIGINT NOT NULL,
    status TEXT NOT NULL,
    -- What the run waits for or has failed with, and goes on from, as JSON. NULL for one that has completed,
    -- whose results are in its steps.
    ended TEXT,
    -- The number of messages of the latest request that come before those in `ended`.
    shared BIGINT,
    -- The open interrupts and the error of that, as JSON, for lists.
    summary TEXT,
    -- In milliseconds since 1970.
    started_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (owner, run)
);

-- For lists, the latest first.
CREATE INDEX tower_agent_runs_started ON tower_agent_runs (started_at, run, owner);
CREATE INDEX tower_agent_runs_started_of_owner ON tower_agent_runs (owner, started_at, run);

-- Those that are over when their conversation goes on with another run.
CREATE INDEX tower_agent_runs_waiting_of_owner ON tower_agent_runs (owner) WHERE status = 'waiting';

-- The requests of a run: the first, and those that resumed it.
CREATE TABLE tower_agent_run_inputs (
    run BIGINT NOT NULL REFERENCES tower_agent_runs (id) ON DELETE CASCADE,
    number BIGINT NOT NULL,
    fingerprint TEXT NOT NULL,
    -- As JSON, without its messages.
    request TEXT NOT NULL,
    -- Where its messages are, as JSON.
    messages TEXT NOT NULL,
    PRIMARY KEY (run, number)
);

-- The messages of the latest request that are in no session of this database.
CREATE TABLE tower_agent_run_messages (
    run BIGINT NOT NULL REFERENCES tower_agent_runs (id) ON DELETE CASCADE,
    position BIGINT NOT NULL,
    message TEXT NOT NULL,
    PRIMARY KEY (run, position)
);

CREATE TABLE tower_agent_run_steps (
    position BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run BIGINT NOT NULL REFERENCES tower_agent_runs (id) ON DELETE CASCADE,
    step TEXT COLLATE "C" NOT NULL,
    -- The step and the hashes of its request, as JSON.
    id TEXT NOT NULL,
    intent TEXT NOT NULL,
    -- The number of the request in which it was last written.
    input BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    -- What the step has returned, as JSON; NULL while it is unfinished.
    record TEXT,
    -- The hash of the record.
    digest TEXT,
    begun_at BIGINT NOT NULL,
    ended_at BIGINT,
    UNIQUE (run, step)
);
