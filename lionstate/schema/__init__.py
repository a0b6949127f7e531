"""Tables, column types, triggers and opening rules of a store; runs no queries beyond its own rows."""

from lionstate.schema.base import metadata
from lionstate.schema.opening import (
    OWN_SCHEMA_VERSION,
    StoreKind,
    inspect_store,
    own_tables_exist,
    read_own_version,
)
from lionstate.schema.steps import (
    OpenReport,
    apply_schema,
    normalized_default,
    record_normalized_default,
    require_fit,
    schema_complete,
)
from lionstate.schema.tables import OWN_TABLES, RECORD_TABLES
from lionstate.schema.triggers import (
    delete_trigger_exists,
    fence_exists,
    install_delete_trigger,
    install_fence,
    remove_delete_trigger,
    remove_fence,
)
from lionstate.schema.types import Json, Seconds, decode_json, encode_json

__all__ = [
    "OWN_SCHEMA_VERSION",
    "OWN_TABLES",
    "RECORD_TABLES",
    "Json",
    "OpenReport",
    "Seconds",
    "StoreKind",
    "apply_schema",
    "decode_json",
    "delete_trigger_exists",
    "encode_json",
    "fence_exists",
    "inspect_store",
    "install_delete_trigger",
    "install_fence",
    "metadata",
    "normalized_default",
    "own_tables_exist",
    "read_own_version",
    "record_normalized_default",
    "remove_delete_trigger",
    "remove_fence",
    "require_fit",
    "schema_complete",
]
