-- Versions are never used twice, so that a conversation that was deleted and created again is another.
CREATE TABLE tower_agent_conversation_versions (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    last INTEGER NOT NULL
);
INSERT INTO tower_agent_conversation_versions VALUES (1, 0);

-- Times are in milliseconds since 1970.
CREATE TABLE tower_agent_conversations (
    row_id INTEGER PRIMARY KEY,
    app TEXT NOT NULL,
    owner TEXT NOT NULL,
    id TEXT NOT NULL,
    -- What reads it: `session` or `thread`.
    kind TEXT NOT NULL,
    version INTEGER NOT NULL,
    head TEXT NOT NULL,
    -- It has open interrupts.
    is_waiting INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    expires_at INTEGER,
    UNIQUE (app, owner, id)
);
CREATE INDEX tower_agent_conversations_expiry ON tower_agent_conversations (expires_at)
    WHERE expires_at IS NOT NULL;
-- For lists, which are in the order of time.
CREATE INDEX tower_agent_conversations_latest ON tower_agent_conversations (updated_at);
CREATE INDEX tower_agent_conversations_of_owner ON tower_agent_conversations (owner, updated_at);
CREATE INDEX tower_agent_conversations_waiting ON tower_agent_conversations (updated_at) WHERE is_waiting = 1;

-- Entries are never changed, but for `replaced_in`: the version since which an entry is no longer
-- part of the conversation. With a row id, since SQLite gives each longer row of a table without one a page of
-- its own.
CREATE TABLE tower_agent_conversation_entries (
    conversation INTEGER NOT NULL REFERENCES tower_agent_conversations (row_id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    version INTEGER NOT NULL,
    replaced_in INTEGER,
    entry TEXT NOT NULL,
    PRIMARY KEY (conversation, position, version)
);
