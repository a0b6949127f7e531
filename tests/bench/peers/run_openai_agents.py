"""openai-agents: ``SQLiteSession`` (argument ``sqlite``) or ``SQLAlchemySession``."""

import sys

from agents import SQLiteSession
from agents.extensions.memory import SQLAlchemySession
from protocol import TEXT, Subject, same_durability, serve


class Agents(Subject):
    async def open(self, target, synchronous):
        same_durability(synchronous)
        if sys.argv[1] == "sqlite":
            self.session = SQLiteSession("a", target)
        else:
            url = target if "://" in target else f"sqlite+aiosqlite:///{target}"
            self.session = SQLAlchemySession.from_url("a", url=url, create_tables=True)

    async def fill(self, count):
        for start in range(0, count, 1_000):
            numbers = range(start, min(count, start + 1_000))
            await self.session.add_items([{"role": "assistant", "content": f"{n} {TEXT}"} for n in numbers])

    async def append(self, number):
        await self.session.add_items([{"role": "assistant", "content": f"{number} {TEXT}"}])

    async def tail(self, number):
        return len(await self.session.get_items(limit=200))

    async def count(self, number):
        return len(await self.session.get_items())

    async def full(self, number):
        return len(await self.session.get_items())


serve(Agents())
