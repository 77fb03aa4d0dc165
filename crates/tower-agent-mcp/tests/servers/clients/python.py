"""The official Python SDK, which chooses the lifecycle unless it is told to."""

import asyncio
import json
import sys

from mcp import Client
from mcp.types import ElicitResult


async def main(url: str, mode: str) -> None:
    content = None

    async def elicit(context, params):
        if content is None:
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content=content)

    def text(result):
        return "".join(block.text for block in result.content)

    async with Client(url, mode=mode, elicitation_callback=elicit) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        progress = []

        async def on_progress(value, total, message):
            progress.append(message)

        asked = await client.call_tool(
            "helper", {"request": "Hello."}, progress_callback=on_progress
        )
        failed = await client.call_tool("fails", {})
        content = {"approved": True}
        paid = await client.call_tool("clerk", {"request": "Pay."})
        content = None
        declined = await client.call_tool("clerk", {"request": "Pay."})
        calls = (client.call_tool("same", {"value": n}) for n in range(50))
        many = await asyncio.gather(*calls)
        try:
            unknown = (await client.call_tool("nothing", {})).is_error
        except Exception:
            unknown = True
        print(
            json.dumps(
                {
                    "tools": tools,
                    "asked": text(asked),
                    "progress": "".join(progress),
                    "failed": [failed.is_error, text(failed)],
                    "paid": text(paid),
                    "declined": text(declined),
                    "many": [text(one) for one in many],
                    "unknown": unknown,
                }
            )
        )


asyncio.run(main(sys.argv[1], sys.argv[2]))
