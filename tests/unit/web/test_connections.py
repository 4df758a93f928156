"""Connections that never speak are ended, and others are not."""

from __future__ import annotations

import asyncio

from aiohttp import web

from ps2stream.web.connections import ConnectionWatch

HEAD = b"GET / HTTP/1.1\r\nHost: here\r\n"


async def _answer(_: web.Request) -> web.Response:
    return web.Response(text="yes")


async def _try_connections() -> tuple[bytes, bytes, bytes]:
    """What comes back from a silent connection, from half a head, and from a whole one that asks
    again after the limit."""
    watch = ConnectionWatch(0.6, 0.05)
    app = web.Application(middlewares=[watch.note_request])
    app.router.add_get("/", _answer)
    runner = web.AppRunner(app)
    await runner.setup()
    assert runner.server is not None
    watching = asyncio.create_task(watch.end_silent(runner.server))
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    try:
        pairs = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        (silent, _), (half, half_writer), (whole, writer) = pairs
        half_writer.write(HEAD)
        writer.write(HEAD + b"\r\n")
        async with asyncio.timeout(30):
            ended = await silent.read(), await half.read()
            assert (await whole.readuntil(b"yes")).startswith(b"HTTP/1.1 200")
            writer.write(HEAD + b"\r\n")
            again = await whole.readuntil(b"yes")
        for _, each in pairs:
            each.close()
        return (*ended, again)
    finally:
        watching.cancel()
        await runner.cleanup()


def test_only_those_that_have_not_spoken_are_ended() -> None:
    silent, half, again = asyncio.run(_try_connections())
    assert (silent, half) == (b"", b"")
    assert again.startswith(b"HTTP/1.1 200")
