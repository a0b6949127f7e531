"""google-adk: ``DatabaseSessionService``; an append is ``append_event`` on the session at hand."""

import json
import time
import uuid

from google.adk.events import Event
from google.adk.sessions import DatabaseSessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types
from protocol import TEXT, Subject, same_durability, serve
from sqlalchemy import text


class Adk(Subject):
    async def open(self, target, synchronous):
        same_durability(synchronous)
        url = target if "://" in target else f"sqlite+aiosqlite:///{target}"
        self.service = DatabaseSessionService(url)
        self.names = {"app_name": "app", "user_id": "user", "session_id": "a"}
        self.session = await self.service.create_session(**self.names)

    def _event(self, number):
        content = types.Content(role="model", parts=[types.Part(text=f"{number} {TEXT}")])
        return Event(author="model", invocation_id=f"i{number}", content=content, timestamp=time.time())

    async def fill(self, count):
        if not count:
            return
        await self.service.append_event(self.session, self._event(0))
        async with self.service.db_engine.begin() as conn:
            row = dict((await conn.execute(text("SELECT * FROM events"))).mappings().one())
            plain = {k: json.dumps(v) if isinstance(v, (dict, list)) else v for k, v in row.items()}
            names = ", ".join(plain)
            binds = ", ".join(f"CAST(:{k} AS json)" if isinstance(row[k], (dict, list)) else f":{k}" for k in plain)
            if conn.dialect.name == "postgresql":
                binds = binds.replace("AS json", "AS jsonb")
            rows = [{**plain, "id": str(uuid.uuid4())} for _ in range(count - 1)]
            for start in range(0, len(rows), 2_000):
                await conn.execute(text(f"INSERT INTO events ({names}) VALUES ({binds})"), rows[start : start + 2_000])
        self.session = await self.service.get_session(**self.names, config=GetSessionConfig(num_recent_events=1))

    async def append(self, number):
        await self.service.append_event(self.session, self._event(number))

    async def tail(self, number):
        found = await self.service.get_session(**self.names, config=GetSessionConfig(num_recent_events=200))
        return len(found.events)

    async def count(self, number):
        return await self.full(number)

    async def full(self, number):
        return len((await self.service.get_session(**self.names)).events)

    async def close(self):
        await self.service.close()


serve(Adk())
