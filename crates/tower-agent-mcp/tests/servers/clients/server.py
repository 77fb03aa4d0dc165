"""A server of the official Python SDK, with something of everything."""

from mcp.server import MCPServer
from mcp.server.mcpserver import Context

server = MCPServer("notes")


@server.tool()
def word(of: str) -> str:
    return of


@server.tool()
def words() -> list[str]:
    return ["a", "b"]


@server.tool()
async def roots(ctx: Context) -> str:
    listed = await ctx.session.list_roots()
    return ", ".join(str(root.uri) for root in listed.roots)


@server.resource("notes://today")
def today() -> str:
    return "Buy milk."


@server.resource("notes://{day}/of")
def of(day: str) -> str:
    return f"Of {day}."


@server.prompt()
def praise(style: str) -> str:
    return f"Praise in {style}."


server.run()
