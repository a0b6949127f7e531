"""The progression methods, as a caller's type checker sees them."""

from __future__ import annotations

from typing import assert_type

from lionstate import StateDB


async def page_backwards(state: StateDB, progression_id: str) -> list[str]:
    """Read a progression newest first, page by page, and notice a replacement."""
    generation = await state.get_progression_generation(progression_id)
    assert_type(generation, int | None)
    found: list[str] = []
    before: int | None = None
    while page := await state.list_progression_items(
        progression_id, before_ordinal=before, limit=200, newest_first=True, generation=generation
    ):
        assert_type(page, list[tuple[int, str]])
        before = page[-1][0]
        found += [message_id for _, message_id in page]
    return found


async def whole(state: StateDB) -> None:
    """Create, replace, append, read, count, delete."""
    await state.create_progression("p")
    await state.create_progression("p", ("a", "b"))
    await state.set_progression("p", ["a"])
    await state.set_progression("p", None)
    await state.append_to_progression("p", "b")
    assert_type(await state.get_progression("p"), list[str])
    assert_type(await state.count_progression_items("p"), int)
    assert_type(await state.delete_progression("p"), bool)
