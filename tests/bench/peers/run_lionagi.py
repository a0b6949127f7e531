"""LionAGI 0.36.0: the live message path, and appends of an id."""

import hashlib
import time

from lionagi.state.db import StateDB
from protocol import TEXT, Subject, serve

CLASS = "lionagi.protocols.messages.assistant_response.AssistantResponse"


class LionAGI(Subject):
    """Its durability is its own: WAL, ``synchronous=NORMAL``."""

    async def open(self, target, synchronous, name="a"):
        self.db = StateDB(url=target) if "://" in target else StateDB(target)
        await self.db.open()
        self.name = name

    async def fill(self, count):
        ids = [hashlib.md5(f"{self.name}/{number}".encode()).hexdigest() for number in range(count)]
        for kind in ("bp", "sp"):
            await self.db.create_progression(f"{kind}-{self.name}", ids)
        await self.db.create_session({"id": f"s-{self.name}", "progression_id": f"sp-{self.name}", "status": "running"})
        await self.db.create_branch(
            {
                "id": f"b-{self.name}",
                "created_at": time.time(),
                "session_id": f"s-{self.name}",
                "progression_id": f"bp-{self.name}",
            }
        )

    async def append(self, number):
        await self.db.append_to_progression(f"bp-{self.name}", f"i{self.name}{number:024d}")

    async def record(self, number):
        await self.db._persist_live_message(
            {
                "id": f"m{self.name}{number:024d}",
                "created_at": time.time(),
                "node_metadata": {"lion_class": CLASS},
                "content": {"assistant_response": TEXT, "n": number},
                "sender": "assistant",
                "recipient": "user",
                "channel": None,
                "role": "assistant",
            },
            session_id=f"s-{self.name}",
            branch_progression_id=f"bp-{self.name}",
            session_progression_id=f"sp-{self.name}",
        )

    async def tail(self, number):
        return (await self.db.get_progression(f"bp-{self.name}"))[-200:]

    async def count(self, number):
        return len(await self.db.get_progression(f"bp-{self.name}"))

    async def full(self, number):
        return await self.db.get_progression(f"bp-{self.name}")

    async def stored(self):
        """What is there at the end."""
        return {"ids": await self.full(0)}

    async def close(self):
        await self.db.close()


serve(LionAGI())
