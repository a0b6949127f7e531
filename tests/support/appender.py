"""One client process that appends to a shared progression for a while, and reports.

    python -m tests.support.appender TARGET NAME SECONDS

Prints one JSON object: how many appends were acknowledged, the longest one, and errors by code.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter

from lionstate import StateClient
from lionstate.errors import StateError


async def _append(target: str, name: str, seconds: float) -> dict[str, object]:
    errors: Counter[str] = Counter()
    acknowledged, longest = 0, 0.0
    async with StateClient(target) as client:
        await client.create_progression("shared", [])
        end = time.monotonic() + seconds
        while (began := time.monotonic()) < end:
            try:
                await client.append_to_progression("shared", f"{name}-{acknowledged}-{sum(errors.values())}")
                acknowledged += 1
            except StateError as error:
                errors[error.code] += 1
            longest = max(longest, time.monotonic() - began)
    return {"acknowledged": acknowledged, "longest_seconds": longest, "errors": dict(errors)}


def main() -> None:
    """Append until the time is over."""
    target, name, seconds = sys.argv[1:]
    print(json.dumps(asyncio.run(_append(target, name, float(seconds)))))


if __name__ == "__main__":
    main()
