-- Versions are never used twice, so that a session that was deleted and created again is another.
CREATE SEQUENCE tower_agent_session_versions;

CREATE TABLE tower_agent_sessions (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    app TEXT NOT NULL,
    "user" TEXT NOT NULL,
    session TEXT NOT NULL,
    version BIGINT NOT NULL,
    -- Everything but the messages, the state and the times, as JSON.
    head TEXT NOT NULL,
    state TEXT NOT NULL,
    -- In milliseconds since 1970.
    updated_at BIGINT NOT NULL,
    expires_at BIGINT,
    UNIQUE (app, "user", session)
);
CREATE INDEX tower_agent_sessions_expiry ON tower_agent_sessions (expires_at)
    WHERE expires_at IS NOT NULL;

-- Nothing is changed in it but `replaced_in`: the version since which a message is no longer part
-- of the conversation.
CREATE TABLE tower_agent_session_messages (
    session BIGINT NOT NULL REFERENCES tower_agent_sessions (id) ON DELETE CASCADE,
    position BIGINT NOT NULL,
    version BIGINT NOT NULL,
    replaced_in BIGINT,
    message TEXT NOT NULL,
    PRIMARY KEY (session, position, version)
);
