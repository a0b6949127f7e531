"""Calls methods of LionAGI's own StateDB. Runs in LionAGI's environment, in a process of its own.

    python -I lionagi_driver.py

A request is a line of JSON on standard input: ``["open", url]``, or ``[method, args, kwargs]``; so is each answer on
standard output: ``{"result": ...}`` or ``{"error": name, "says": text}``. Nothing of lionstate is imported here.
"""

from __future__ import annotations

import asyncio
import functools
import json
import sys
import warnings
from typing import Any

from lionagi.dispatch import outbox
from lionagi.state import StateDB


def _argument(value: Any) -> Any:
    """A set has no form in JSON."""
    return set(value["set"]) if isinstance(value, dict) and value.keys() == {"set"} else value


async def _answer(dbs: dict[str, StateDB], request: list[Any]) -> Any:
    method, *rest = request
    if method == "open":
        # The last one is the one that calls go to.
        db = dbs.pop(rest[0], None) or StateDB(url=rest[0])
        await db.open()
        dbs[rest[0]] = db
        return None
    args, kwargs = rest
    db = list(dbs.values())[-1]
    # The outbox has functions of a StateDB.
    call = getattr(db, method, None) or functools.partial(getattr(outbox, method), db)
    return await call(*args, **{name: _argument(value) for name, value in kwargs.items()})


async def main() -> None:
    """Answer until standard input ends."""
    warnings.simplefilter("ignore")
    answers, sys.stdout = sys.stdout, sys.stderr
    dbs: dict[str, StateDB] = {}
    while line := await asyncio.to_thread(sys.stdin.readline):
        try:
            answer = {"result": await _answer(dbs, json.loads(line))}
        except Exception as error:
            answer = {"error": type(error).__name__, "says": str(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    for db in dbs.values():
        await db.close()


if __name__ == "__main__":
    asyncio.run(main())
