-- Versions are never used twice, so that a session that was deleted and created again is another.
CREATE TABLE tower_agent_session_versions (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    last INTEGER NOT NULL
);
INSERT INTO tower_agent_session_versions VALUES (1, 0);

CREATE TABLE tower_agent_sessions (
    id INTEGER PRIMARY KEY,
    app TEXT NOT NULL,
    user TEXT NOT NULL,
    session TEXT NOT NULL,
    version INTEGER NOT NULL,
    -- Everything but the messages, the state and the times, as JSON.
    head TEXT NOT NULL,
    state TEXT NOT NULL,
    -- In milliseconds since 1970.
    updated_at INTEGER NOT NULL,
    expires_at INTEGER,
    UNIQUE (app, user, session)
);
CREATE INDEX tower_agent_sessions_expiry ON tower_agent_sessions (expires_at)
    WHERE expires_at IS NOT NULL;

-- Nothing is changed in it but `replaced_in`: the version since which a message is no longer part
-- of the conversation.
CREATE TABLE tower_agent_session_messages (
    session INTEGER NOT NULL REFERENCES tower_agent_sessions (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    version INTEGER NOT NULL,
    replaced_in INTEGER,
    message TEXT NOT NULL,
    PRIMARY KEY (session, position, version)
) WITHOUT ROWID;
