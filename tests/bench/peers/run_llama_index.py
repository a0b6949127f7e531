"""llama-index: ``SQLAlchemyChatStore``."""

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore
from protocol import TEXT, Subject, same_durability, serve


class Llama(Subject):
    async def open(self, target, synchronous):
        same_durability(synchronous)
        url = target if "://" in target else f"sqlite+aiosqlite:///{target}"
        self.store = SQLAlchemyChatStore(table_name="chat", async_database_uri=url)
        self.number = 0

    async def fill(self, count):
        for start in range(0, count, 1_000):
            numbers = range(start, min(count, start + 1_000))
            messages = [ChatMessage(role="assistant", content=f"{n} {TEXT}") for n in numbers]
            await self.store.add_messages("a", messages)
        self.number = count

    async def append(self, number):
        await self.store.add_message("a", ChatMessage(role="assistant", content=f"{number} {TEXT}"))
        self.number += 1

    async def tail(self, number):
        return len(await self.store.get_messages("a", limit=200, offset=max(0, self.number - 200)))

    async def count(self, number):
        return await self.store.count_messages("a")

    async def full(self, number):
        return len(await self.store.get_messages("a"))


serve(Llama())
