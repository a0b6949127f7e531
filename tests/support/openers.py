"""Eight processes that open one new store together, and each write a row."""

from __future__ import annotations

from typing import Final

from tests.support.children import output_of

__all__ = ["PROCESSES", "open_together"]

PROCESSES: Final = 8

# One process with everything imported forks the others, which therefore start within milliseconds of each other.
_CODE = """
import asyncio, os, sys, traceback
from lionstate import StateDB

async def main(target, name):
    async with StateDB(target) as state:
        await state.execute("INSERT INTO progressions (id, created_at, collection) VALUES (?, 1, '[]')", [name])

def forked(target, name, start):
    code = 1
    try:
        os.read(start, 1)
        asyncio.run(main(target, name))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)

for target in sys.argv[2:]:
    start, go = os.pipe()
    children = []
    for number in range(int(sys.argv[1])):
        pid = os.fork()
        if not pid:
            forked(target, f"p{number}", start)
        children.append(pid)
    os.write(go, b"." * int(sys.argv[1]))
    failed = [status for status in (os.waitpid(pid, 0)[1] for pid in children) if status]
    if failed:
        raise SystemExit(1)
"""


def open_together(*targets: object, timeout: float = 50.0) -> None:
    """For one target after another: start the processes, let them go at once, and see none fail."""
    output_of(_CODE, PROCESSES, *targets, timeout=timeout)
