//! MCP in both directions.
