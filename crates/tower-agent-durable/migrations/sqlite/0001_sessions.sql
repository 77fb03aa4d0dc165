-- Versions are never used twice, so that a session that was deleted and created again is another.
CREATE TABLE tower_agent_session_versions (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    last INTEGER NOT NULL
);
INSERT INTO tower_agent_session_versions VALUES (1, 0);

-- Times are in milliseconds since 1970.
CREATE TABLE tower_agent_sessions (
    id INTEGER PRIMARY KEY,
    app TEXT NOT NULL,
    owner TEXT NOT NULL,
    session TEXT NOT NULL,
    -- What reads it: `session` or `thread`.
    kind TEXT NOT NULL,
    version INTEGER NOT NULL,
    head TEXT NOT NULL,
    -- It has open interrupts.
    is_waiting INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    expires_at INTEGER,
    UNIQUE (app, owner, session)
);
CREATE INDEX tower_agent_sessions_expiry ON tower_agent_sessions (expires_at)
    WHERE expires_at IS NOT NULL;
-- For lists, which are in the order of time.
CREATE INDEX tower_agent_sessions_latest ON tower_agent_sessions (updated_at);
CREATE INDEX tower_agent_sessions_of_owner ON tower_agent_sessions (owner, updated_at);
CREATE INDEX tower_agent_sessions_waiting ON tower_agent_sessions (updated_at) WHERE is_waiting;

-- Entries are never changed, but for `replaced_in`: the version since which an entry is no longer
-- part of the session. With a row id, since SQLite gives each longer row of a table without one a page of
-- its own.
CREATE TABLE tower_agent_session_entries (
    session INTEGER NOT NULL REFERENCES tower_agent_sessions (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    version INTEGER NOT NULL,
    replaced_in INTEGER,
    entry TEXT NOT NULL,
    PRIMARY KEY (session, position, version)
);
