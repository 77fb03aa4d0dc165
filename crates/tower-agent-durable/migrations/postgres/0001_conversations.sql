-- Versions are never used twice, so that a conversation that was deleted and created again is another.
CREATE SEQUENCE tower_agent_conversation_versions;

-- Keys are compared and sorted by their bytes, as in the program and in SQLite. Times are in milliseconds since 1970.
CREATE TABLE tower_agent_conversations (
    row_id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    app TEXT COLLATE "C" NOT NULL,
    owner TEXT COLLATE "C" NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    -- What reads it: `session` or `thread`.
    kind TEXT NOT NULL,
    version BIGINT NOT NULL,
    head TEXT NOT NULL,
    -- It has open interrupts.
    is_waiting BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    expires_at BIGINT,
    UNIQUE (app, owner, id)
);
CREATE INDEX tower_agent_conversations_expiry ON tower_agent_conversations (expires_at)
    WHERE expires_at IS NOT NULL;
-- For lists, which are in the order of time.
CREATE INDEX tower_agent_conversations_latest ON tower_agent_conversations (updated_at);
CREATE INDEX tower_agent_conversations_of_owner ON tower_agent_conversations (owner, updated_at);
CREATE INDEX tower_agent_conversations_waiting ON tower_agent_conversations (updated_at) WHERE is_waiting = 1;

-- Entries are never changed, but for `replaced_in`: the version since which an entry is no longer
-- part of the conversation.
CREATE TABLE tower_agent_conversation_entries (
    conversation BIGINT NOT NULL REFERENCES tower_agent_conversations (row_id) ON DELETE CASCADE,
    position BIGINT NOT NULL,
    version BIGINT NOT NULL,
    replaced_in BIGINT,
    entry TEXT NOT NULL,
    PRIMARY KEY (conversation, position, version)
);
