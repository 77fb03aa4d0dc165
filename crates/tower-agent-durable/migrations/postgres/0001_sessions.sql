-- Versions are never used twice, so that a session that was deleted and created again is another.
CREATE SEQUENCE tower_agent_session_versions;

-- Times are in milliseconds since 1970.
CREATE TABLE tower_agent_sessions (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    app TEXT NOT NULL,
    owner TEXT NOT NULL,
    session TEXT NOT NULL,
    version BIGINT NOT NULL,
    head TEXT NOT NULL,
    updated_at BIGINT NOT NULL,
    expires_at BIGINT,
    UNIQUE (app, owner, session)
);
CREATE INDEX tower_agent_sessions_expiry ON tower_agent_sessions (expires_at)
    WHERE expires_at IS NOT NULL;

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
