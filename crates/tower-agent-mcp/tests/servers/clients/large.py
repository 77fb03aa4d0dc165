"""The official Python SDK, with its own limits, and results above them."""

import asyncio
import sys

from mcp import Client


async def main(url: str, mode: str) -> None:
    async with Client(url, mode=mode) as client:
        for size in (1 << 16, 1 << 20, 5 << 20):
            result = await client.call_tool("large", {"value": size})
            print(len(result.content[0].text))


asyncio.run(main(sys.argv[1], sys.argv[2]))
