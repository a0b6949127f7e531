"""Operations on shows and plays."""

from __future__ import annotations

from lionstate.operations.table import Operation, operation, touching
from lionstate.records import shows

__all__ = ["TABLE"]

TABLE: tuple[Operation, ...] = (
    operation(shows.create_show, writes=True, keys=touching("show:show.id")),
    operation(shows.update_show, writes=True, idempotent=False, keys=touching("show:show_id")),
    operation(shows.get_show),
    operation(shows.get_show_by_topic),
    operation(shows.list_shows),
    operation(shows.create_play, writes=True, keys=touching("play:play.id", "show:play.show_id", "s:play.session_id")),
    operation(shows.update_play, writes=True, idempotent=False, keys=touching("play:play_id", "s:session_id")),
    operation(shows.get_play),
    operation(shows.list_plays),
)
