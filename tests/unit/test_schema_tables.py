"""The 28 tables: inventory, and equality with a store that LionAGI 0.36.0 wrote."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import IntegrityError

from lionstate.schema import OWN_TABLES, RECORD_TABLES, metadata

FIXTURE = Path(__file__).parents[1] / "fixtures" / "lionagi-0.36.0-small.db"

COLUMNS: dict[str, str] = {
    "message_types": "type_id lion_class",
    "messages": "id created_at node_metadata content embedding sender recipient channel role lion_class",
    "progressions": "id created_at collection",
    "sessions": (
        "id cc_session_id run_id created_at node_metadata name user_label user progression_id "
        "first_msg_id last_msg_id updated_at playbook_name agent_name invocation_kind show_topic "
        "show_play_name artifacts_path source_kind status started_at ended_at ended_at_is_approximate "
        "last_message_at current_phase invocation_id model provider effort agent_hash project "
        "project_source status_reason_code status_reason_summary status_evidence_refs "
        "artifact_contract_json artifact_verification_json input_tokens output_tokens total_cost_usd "
        "num_turns duration_ms"
    ),
    "branches": (
        "id created_at node_metadata user name session_id progression_id system_msg_id model provider "
        "agent_name status started_at ended_at"
    ),
    "invocations": (
        "id skill plugin prompt started_at ended_at status session_count created_at updated_at "
        "node_metadata status_reason_code status_reason_summary status_evidence_refs"
    ),
    "shows": (
        "id topic goal repo base_branch integration_branch status show_dir status_source created_at "
        "updated_at status_reason_code status_reason_summary status_evidence_refs"
    ),
    "plays": (
        "id show_id name playbook effort status attempt session_id started_at ended_at exit_code "
        "worktree branch merge_sha merged_at gate_passed gate_feedback depends_on sort_order created_at "
        "updated_at status_reason_code status_reason_summary status_evidence_refs"
    ),
    "teams": (
        "id name created_at updated_at member_count members node_metadata status status_reason_code "
        "status_reason_summary status_evidence_refs"
    ),
    "team_messages": "id team_id created_at sender recipient content summary read_by session_id",
    "schedules": (
        "id name description enabled trigger_type cron_expr interval_sec github_repo github_filter "
        "github_cursor poll_interval_sec action_kind action_model action_prompt action_agent "
        "action_playbook action_flow_yaml action_project action_cwd action_extra_args action_command "
        "action_command_args on_success on_fail last_fired_at next_fire_at missed_fire_policy "
        "overlap_policy max_runs budget_usd budget_tokens rate_limit project threshold_config "
        "last_alert_at last_evaluated_at last_healthy_poll_at poller_consecutive_401 "
        "predispatch_refusal_event predispatch_refusal_count spec_version managed_by owner_key "
        "authored_spec resolved_target resolved_digest resolved_timezone effective_timezone "
        "effective_timezone_source notify_on notify_command created_at updated_at"
    ),
    "schedule_runs": (
        "id schedule_id invocation_id trigger_context action_kind action_args status exit_code "
        "chain_parent_id chain_depth fired_at ended_at error_detail created_at updated_at "
        "status_reason_code status_reason_summary status_evidence_refs queued_at leased_by "
        "lease_expires_at concurrency_key lease_attempts required_capabilities execution_target "
        "library_ref library_content_hash dispatched_at resume_packet"
    ),
    "workers": "worker_id advertised_capabilities execution_targets last_heartbeat_at leased_run_id",
    "definitions": "id kind name path content version created_at message",
    "engine_defs": "id name kind model max_depth max_agents options description created_at updated_at",
    "workflow_defs": "id name description spec_json created_at updated_at",
    "schema_meta": "key value",
    "projects": "name source path github description created_at updated_at last_seen_at",
    "session_signals": "id session_id seq kind op_id ts payload",
    "engine_runs": (
        "id kind spec_json status started_at ended_at session_id invocation_id signal_session_id "
        "parent_session_id outcome_json export_dir error"
    ),
    "session_controls": "id session_id verb payload created_at applied_at claimed_at result",
    "run_tags": "session_id tag created_at",
    "approvals": "id action_kind params_hash session_id status proposed_at granted_at consumed_at expires_at",
    "approval_evidence": (
        "id sequence event_type approval_id action_kind status_from status_to params_hash "
        "justification_class justification_reason created_at content_hash previous_hash chain_hash "
        "hmac_sig"
    ),
    "artifacts": "id invocation_id session_id created_at updated_at kind name content file_path",
    "status_transitions": (
        "id entity_type entity_id previous_status status reason_code reason_summary evidence_refs source "
        "actor created_at metadata"
    ),
    "admin_events": "id created_at action target_id details actor",
    "dispatch_outbox": (
        "id kind deliver_to payload dedup_key status attempt max_attempts next_attempt_at ack_required "
        "ack_token session_id schedule_run_id last_error created_at expires_at updated_at"
    ),
}

OWN_COLUMNS = {
    "progression_items": "progression_id ordinal message_id",
    "progression_storage_state": (
        "progression_id phase source_count backfill_next next_ordinal frozen_count source_digest "
        "items_digest blocked_reason updated_at cutover_at authority generation compat_read replacing "
        "text_bytes text_sha256 last_xact held_reason held_detail verify_misses shadow_rows"
    ),
    "progression_sizes": "progression_id bytes items measured_at",
    "progression_activity": "progression_id appends updated_at",
    "progression_orders": "progression_id kind actor reason updated_at expires_at",
    "progression_proofs": "progression_id generation item_count proved_at",
    "migration_control": "key value actor reason updated_at expires_at",
    "migration_lease": "name owner epoch expires_at acquired_at",
    "request_receipts": "caller key params_hash outcome created_at",
    "writer_batches": "writer batch updated_at",
}


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Connection]:
    copy = tmp_path / "real.db"
    shutil.copyfile(FIXTURE, copy)
    engine = create_engine(f"sqlite:///{copy}")
    with engine.begin() as conn:
        yield conn
    engine.dispose()


@pytest.fixture
def fresh() -> Iterator[Connection]:
    engine = create_engine("sqlite://")
    with engine.begin() as conn:
        metadata.create_all(conn, tables=RECORD_TABLES)
        yield conn
    engine.dispose()


def objects(conn: Connection) -> list[Any]:
    rows = conn.execute(text("SELECT type, name, tbl_name, rootpage, sql FROM sqlite_master ORDER BY type, name"))
    return [tuple(row) for row in rows]


def pragma(conn: Connection, name: str, table: str) -> list[Any]:
    return [tuple(row) for row in conn.exec_driver_sql(f"PRAGMA {name}('{table}')")]


def indexes(conn: Connection, table: str) -> dict[str, Any]:
    """Name → unique, origin, partial, keys with direction, and the predicate as spelled."""
    found = {}
    for _, name, unique, origin, partial in pragma(conn, "index_list", table):
        keys = [(column, desc) for _, _, column, desc, _, key in pragma(conn, "index_xinfo", name) if key]
        sql = conn.execute(text("SELECT sql FROM sqlite_master WHERE name = :name"), {"name": name}).scalar()
        found[name] = (unique, origin, partial, keys, sql.partition(" WHERE ")[2] if sql else "")
    return found


def foreign_keys(conn: Connection, table: str) -> list[Any]:
    return sorted(row[2:] for row in pragma(conn, "foreign_key_list", table))


def clauses(create: str) -> list[str]:
    return sorted(line.strip().rstrip(", ") for line in create.splitlines())


def test_columns_of_the_28_tables() -> None:
    assert COLUMNS == {table.name: " ".join(table.columns.keys()) for table in RECORD_TABLES}


def test_columns_of_the_own_tables() -> None:
    assert OWN_COLUMNS == {table.name: " ".join(table.columns.keys()) for table in OWN_TABLES}


def test_every_table_is_in_one_group() -> None:
    assert set(metadata.tables) == {table.name for table in (*RECORD_TABLES, *OWN_TABLES)}


def test_create_all_changes_nothing_in_a_real_store(real: Connection) -> None:
    before = objects(real)
    metadata.create_all(real, tables=RECORD_TABLES)
    assert before == objects(real)


@pytest.mark.parametrize("table", COLUMNS)
def test_columns_equal_a_real_store(real: Connection, fresh: Connection, table: str) -> None:
    assert pragma(real, "table_xinfo", table) == pragma(fresh, "table_xinfo", table)


@pytest.mark.parametrize("table", COLUMNS)
def test_indexes_equal_a_real_store(real: Connection, fresh: Connection, table: str) -> None:
    assert indexes(real, table) == indexes(fresh, table)


@pytest.mark.parametrize("table", COLUMNS)
def test_foreign_keys_equal_a_real_store(real: Connection, fresh: Connection, table: str) -> None:
    assert foreign_keys(real, table) == foreign_keys(fresh, table)


@pytest.mark.parametrize("table", COLUMNS)
def test_create_text_equals_a_real_store(real: Connection, fresh: Connection, table: str) -> None:
    """CHECKs included, the order of constraints aside; definitions have two kinds here (ADR-0055 D2)."""
    query = text("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = :name")
    expected, actual = (conn.execute(query, {"name": table}).scalar_one() for conn in (real, fresh))
    if table == "definitions":
        expected = expected.replace("('agent','playbook','skill')", "('agent','playbook')")
    assert clauses(expected) == clauses(actual)


def test_definitions_take_two_kinds(fresh: Connection) -> None:
    insert = "INSERT INTO definitions VALUES (?, ?, 'n', 'p', 'c', 1, 0.0, NULL)"
    fresh.exec_driver_sql(insert, ("a", "agent"))
    fresh.exec_driver_sql(insert, ("b", "playbook"))
    with pytest.raises(IntegrityError, match="ck_definitions_kind"):
        fresh.exec_driver_sql(insert, ("c", "skill"))


def test_own_tables() -> None:
    engine = create_engine("sqlite://")
    with engine.begin() as conn:
        metadata.create_all(conn)
        listed = {row[1]: row for row in conn.exec_driver_sql("PRAGMA table_list")}
        assert 1 == listed["progression_items"][4]  # WITHOUT ROWID
        # The primary key completes an index of a WITHOUT ROWID table, so only the first two keys are ours.
        items = indexes(conn, "progression_items")["idx_progression_items_message"]
        assert [("progression_id", 0), ("message_id", 0)] == items[3][:2]
        state = indexes(conn, "progression_storage_state")["idx_progression_storage_state_phase"]
        assert [("phase", 0), ("updated_at", 0)] == state[3]
        for table in OWN_TABLES:
            kinds = {row[2] for row in pragma(conn, "table_info", table.name)}
            assert kinds <= {"TEXT", "BIGINT", "INTEGER", "REAL"}
    engine.dispose()
