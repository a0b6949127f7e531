"""LangGraph checkpoint savers: a thread whose state is its list of messages, as ``add_messages`` keeps it.

An append puts the next checkpoint; the state is at hand, so nothing is read first.
"""

import sys
import uuid
from contextlib import AsyncExitStack
from datetime import UTC, datetime

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from protocol import TEXT, Subject, same_durability, serve


class Saver(Subject):
    async def open(self, target, synchronous):
        same_durability(synchronous)
        self.stack = AsyncExitStack()
        if sys.argv[1] == "sqlite":
            from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

            self.saver = await self.stack.enter_async_context(AsyncSqliteSaver.from_conn_string(target))
        else:
            from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

            url = target.replace("+asyncpg", "")
            self.saver = await self.stack.enter_async_context(AsyncPostgresSaver.from_conn_string(url))
        await self.saver.setup()
        self.config = {"configurable": {"thread_id": "a", "checkpoint_ns": ""}}
        self.messages = []
        self.version = None

    async def fill(self, count):
        self.messages += [self._message(number) for number in range(count)]
        await self._put()

    @staticmethod
    def _message(number):
        return {"id": str(uuid.uuid4()), "type": "ai", "content": f"{number} {TEXT}"}

    async def _put(self):
        version = self.saver.get_next_version(self.version, None)
        checkpoint = empty_checkpoint()
        checkpoint.update(
            id=str(uuid6(clock_seq=-2)),
            ts=datetime.now(UTC).isoformat(),
            channel_values={"messages": self.messages},
            channel_versions={"messages": version},
        )
        self.config = await self.saver.aput(
            self.config, checkpoint, {"source": "loop", "step": 1, "parents": {}}, {"messages": version}
        )
        self.version = version

    async def append(self, number):
        self.messages.append(self._message(number))
        await self._put()

    async def _read(self):
        found = await self.saver.aget_tuple({"configurable": {"thread_id": "a", "checkpoint_ns": ""}})
        return found.checkpoint["channel_values"]["messages"]

    async def tail(self, number):
        return len((await self._read())[-200:])

    async def count(self, number):
        return len(await self._read())

    async def full(self, number):
        return len(await self._read())

    async def close(self):
        await self.stack.aclose()


serve(Saver())
