"""The MCP server: standing queries and their matches as tools and resources of an assistant."""
