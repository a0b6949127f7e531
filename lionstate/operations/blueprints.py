"""Operations on engine and workflow definitions."""

from __future__ import annotations

from lionstate.operations.table import Operation, operation, touching
from lionstate.records import blueprints

__all__ = ["TABLE"]

# Names are unique as well: two creations under one name are settled by the database.
_engine = touching("ed:def_id")
_workflow = touching("wd:def_id")

TABLE: tuple[Operation, ...] = (
    operation(
        blueprints.create_engine_def, writes=True, idempotent=False, keys=touching("ed:defn.id", "edn:defn.name")
    ),
    operation(blueprints.update_engine_def, writes=True, keys=_engine),
    operation(blueprints.delete_engine_def, writes=True, idempotent=False, keys=_engine),
    operation(blueprints.get_engine_def),
    operation(blueprints.get_engine_def_by_name),
    operation(blueprints.list_engine_defs),
    operation(
        blueprints.create_workflow_def, writes=True, idempotent=False, keys=touching("wd:defn.id", "wdn:defn.name")
    ),
    operation(blueprints.update_workflow_def, writes=True, keys=_workflow),
    operation(blueprints.delete_workflow_def, writes=True, idempotent=False, keys=_workflow),
    operation(blueprints.get_workflow_def),
    operation(blueprints.get_workflow_def_by_name),
    operation(blueprints.list_workflow_defs),
)
