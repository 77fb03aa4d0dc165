-- Runs that a console has watched.
CREATE TABLE tower_agent_console_runs (
    row_id INTEGER PRIMARY KEY,
    -- The console, another one in each process, and the number of the run in it.
    console TEXT NOT NULL,
    number INTEGER NOT NULL,
    -- The id that the console shows, which other consoles may show as well.
    id TEXT NOT NULL,
    -- The path of the agent, and its last part.
    agent TEXT NOT NULL,
    name TEXT NOT NULL,
    status TEXT NOT NULL,
    -- The user whom the run belongs to; empty for nobody.
    owner TEXT NOT NULL,
    -- In microseconds since 1970.
    begun INTEGER NOT NULL,
    -- The end, or when it was written last.
    heard INTEGER NOT NULL,
    -- What it takes, as the console estimates it.
    bytes INTEGER NOT NULL,
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
    run INTEGER NOT NULL REFERENCES tower_agent_console_runs (row_id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    -- The id of the call of a tool that it is; NULL for others.
    call TEXT,
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
    at INTEGER NOT NULL,
    -- The console, and the number of the row in it.
    console TEXT NOT NULL,
    number INTEGER NOT NULL,
    operator TEXT NOT NULL,
    action TEXT NOT NULL,
    about TEXT NOT NULL,
    -- The HTTP status of the response.
    status INTEGER NOT NULL,
    PRIMARY KEY (at, console, number)
);
