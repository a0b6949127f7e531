"""The other container: writes a message a second through the shared socket and prints what was acknowledged."""

from __future__ import annotations

import asyncio
import os
import sys

from lionstate import StateClient
from lionstate.errors import StateError


async def main() -> None:
    """Append until the container is stopped; what is not acknowledged is said and tried again."""
    number = 0
    pause = float(os.environ.get("PAUSE_SECONDS", "1"))
    async with StateClient(os.environ.get("LIONSTATE_TARGET", "unix:/run/lionstate/lionstated.sock")) as client:
        while True:
            message = f"message-{os.getpid()}-{number}"
            try:
                await client.create_progression("example")
                await client.append_to_progression("example", message)
            except StateError as exc:
                sys.stdout.write(f"not acknowledged: {exc.code}\n")
                await asyncio.sleep(0.5)
            else:
                sys.stdout.write(f"acknowledged {message}\n")
                number += 1
            sys.stdout.flush()
            await asyncio.sleep(pause)


if __name__ == "__main__":
    asyncio.run(main())
