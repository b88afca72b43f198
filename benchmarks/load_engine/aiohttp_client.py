"""aiohttp and uvloop alone: `URL USERS REQUESTS TOKENS PROMPT_TOKENS` streams completions and counts events; `URL
USERS SECONDS` requests the address repeatedly and prints the rate."""

import asyncio
import sys
import time

import aiohttp
import uvloop


async def get(url: str, users: int, seconds: float) -> None:
    """Request an address for some seconds; print requests/s."""
    done = 0
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=users)) as session:
        end_s = time.monotonic() + seconds

        async def user() -> None:
            nonlocal done
            while time.monotonic() < end_s:
                async with session.get(url) as reply:
                    await reply.read()
                done += 1

        await asyncio.gather(*(user() for _ in range(users)))
    print(done / seconds)


async def stream(url: str, users: int, requests: int, tokens: int, prompt_tokens: int) -> None:
    """Request that many streams; print the number of events."""
    body = {
        "model": "known",
        "prompt": list(range(1000, 1000 + prompt_tokens)),
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    left, events = requests, 0
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=users)) as session:

        async def user() -> None:
            nonlocal left, events
            while left > 0:
                left -= 1
                async with session.post(url, json=body) as reply:
                    async for data in reply.content.iter_any():
                        events += data.count(b"\n\n")

        await asyncio.gather(*(user() for _ in range(users)))
    print(events)


if __name__ == "__main__":
    words = sys.argv[1:]
    if len(words) == 3:
        uvloop.run(get(words[0], int(words[1]), float(words[2])))
    else:
        uvloop.run(stream(words[0], *map(int, words[1:])))
