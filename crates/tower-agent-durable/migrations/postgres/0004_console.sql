-- Names are compared and sorted by their bytes, as in the program and in SQLite.
-- Runs that a console has watched.
CREATE TABLE tower_agent_console_runs (
    row_id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- The console, another one in each process, and the number of the run in it.
    console TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    -- The id that the console shows, which other consoles may show as well.
    id TEXT COLLATE "C" NOT NULL,
    -- The path of the agent, and its last part.
    agent TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    status TEXT NOT NULL,
    -- The user whom the run belongs to; empty for nobody.
    owner TEXT COLLATE "C" NOT NULL,
    -- In microseconds since 1970.
    begun BIGINT NOT NULL,
    -- The end, or when it was written last.
    heard BIGINT NOT NULL,
    -- What it takes, as the console estimates it.
    bytes BIGINT NOT NULL,
    -- As JSON.
    summary TEXT NOT NULL,
    UNIQUE (console, number)
);
-- For lists, and for the bounds of the whole.
CREATE INDEX tower_agent_console_runs_latest ON tower_agent_console_runs (begun, console, number, bytes);
CREATE INDEX tower_agent_console_runs_of_id ON tower_agent_console_runs (id, begun);
CREATE INDEX tower_agent_console_runs_of_owner ON tower_agent_console_runs (owner, begun);
CREATE INDEX tower_agent_console_runs_heard ON tower_agent_console_runs (heard);

CREATE TABLE tower_agent_console_entries (
    run BIGINT NOT NULL REFERENCES tower_agent_console_runs (row_id) ON DELETE CASCADE,
    position BIGINT NOT NULL,
    -- The id of the call of a tool that it is; NULL for others.
    call TEXT COLLATE "C",
    -- As JSON, without content.
    entry TEXT NOT NULL,
    -- As JSON; NULL where none are recorded.
    texts TEXT,
    -- The call as a whole, as JSON; NULL where none is recorded.
    whole TEXT,
    PRIMARY KEY (run, position)
);
CREATE INDEX tower_agent_console_entries_of_call ON tower_agent_console_entries (call) WHERE call IS NOT NULL;

-- Who has written what from the page of a console.
CREATE TABLE tower_agent_console_audit (
    -- In microseconds since 1970.
    at BIGINT NOT NULL,
    -- The console, and the number of the row in it.
    console TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    operator TEXT NOT NULL,
    action TEXT NOT NULL,
    about TEXT NOT NULL,
    -- The HTTP status of the response.
    status BIGINT NOT NULL,
    PRIMARY KEY (at, console, number)
);
