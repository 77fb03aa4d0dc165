-- Versions are never used twice, so that a session that was deleted and created again is another.
CREATE SEQUENCE tower_agent_session_versions;

-- Keys are compared and sorted by their bytes, as in the program and in SQLite. Times are in milliseconds since 1970.
CREATE TABLE tower_agent_sessions (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    app TEXT COLLATE "C" NOT NULL,
    owner TEXT COLLATE "C" NOT NULL,
    session TEXT COLLATE "C" NOT NULL,
    -- What reads it: `session` or `thread`.
    kind TEXT NOT NULL,
    version BIGINT NOT NULL,
    head TEXT NOT NULL,
    -- It has open interrupts.
    is_waiting BOOLEAN NOT NULL,
    updated_at BIGINT NOT NULL,
    expires_at BIGINT,
    UNIQUE (app, owner, session)
);
CREATE INDEX tower_agent_sessions_expiry ON tower_agent_sessions (expires_at)
    WHERE expires_at IS NOT NULL;
-- For lists, which are in the order of time.
CREATE INDEX tower_agent_sessions_latest ON tower_agent_sessions (updated_at);
CREATE INDEX tower_agent_sessions_of_owner ON tower_agent_sessions (owner, updated_at);
CREATE INDEX tower_agent_sessions_waiting ON tower_agent_sessions (updated_at) WHERE is_waiting;

-- Entries are never changed, but for `replaced_in`: the version since which an entry is no longer
-- part of the session.
CREATE TABLE tower_agent_session_entries (
    session BIGINT NOT NULL REFERENCES tower_agent_sessions (id) ON DELETE CASCADE,
    position BIGINT NOT NULL,
    version BIGINT NOT NULL,
    replaced_in BIGINT,
    entry TEXT NOT NULL,
    PRIMARY KEY (session, position, version)
);
