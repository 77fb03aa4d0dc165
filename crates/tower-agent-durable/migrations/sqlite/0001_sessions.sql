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
    version INTEGER NOT NULL,
    head TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    expires_at INTEGER,
    UNIQUE (app, owner, session)
);
CREATE INDEX tower_agent_sessions_expiry ON tower_agent_sessions (expires_at)
    WHERE expires_at IS NOT NULL;

-- Entries are never changed, but for `replaced_in`: the version since which an entry is no longer
-- part of the session.
CREATE TABLE tower_agent_session_entries (
    session INTEGER NOT NULL REFERENCES tower_agent_sessions (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    version INTEGER NOT NULL,
    replaced_in INTEGER,
    entry TEXT NOT NULL,
    PRIMARY KEY (session, position, version)
) WITHOUT ROWID;
