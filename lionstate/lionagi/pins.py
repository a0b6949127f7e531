"""Sources of LionAGI as the bridge knows them: SHA-256 by module and function (see `fingerprints`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["PINS", "VERSION"]

VERSION: Final = "0.36.0"

PINS: Final[Mapping[str, Mapping[str, str]]] = {
    "lionagi.state.db": {
        "StateDB._close": "aeab120997f9f4cc4cd7ea641e4c2f55450671353f41d4cca76331332aa0172d",
        "StateDB._tx": "f88a8f68b26494ad0dc63c9dd98d8cff4e4f60c5a8e7f159a4e2b7cbfc3f974e",
        "StateDB.read_snapshot": "a36f0ca4a6d055c7b510197c8b4df8fbf8fd145219b178ae0566ba525d18ca4f",
        "StateDB.create_progression": "469997f45c6989f8d56118ce23516fbb61f24dae9943c626506131a6c4379a73",
        "StateDB.set_progression": "d6e2a7821f725d6a277f1511bb553af7bf7be344dae03dc78e3bae26cefa7b82",
        "StateDB.get_progression": "98b99b82c7af565a60e7f0ae753f2a3c53d1ef7644747188ef5a908441e875c5",
        "StateDB.append_to_progression": "8a24efd2814b6565a5dd0d06d0992ff09545b1275a3f7e734f7d511abc181d7b",
        "StateDB._append_to_progression_in_tx": "f3f165533f126709d562411f90beb0e688f1c7da2c4cbca2a94cb7a42034926b",
        "StateDB.insert_messages": "6e001b2d8d61dba22bd3504f18714f09461b3eed812936e1267e177c75c5b223",
        "StateDB._insert_message_in_tx": "d84ffa7c1057a83c283548af356db90cee610875834da18c8300a0926ebec5f4",
        "StateDB._extend_progression_in_tx": "6ae7887faaec65f07dfd4788d2a3221ae24d1830140d07c1ed11d3544678b97b",
        "StateDB.create_session": "f99f4070e0ea6dfed60a3f57f6d4dce10b4c0f2ab5c6503372b1150269f61e97",
        "StateDB.delete_imported_session": "1268988c656e35f006f9d2de0310049323bf9eaac05c87f6305f299d7621c1cc",
        "StateDB._touch_session_activity_in_tx": "e6e8333984b150d61c7bc6d962d863dbee0a5a6537d3fae289e3849ecf401d75",
        "StateDB._persist_live_message": "786df4fc1321945c86e0e48c07c296249003ae66eb0e0a68411593e920e3be51",
        "StateDB.get_branch_messages": "791da3a5b7801143c27cc3e6d722f28ade227c3193339ddaef3dd10225004145",
    },
    "lionagi.state._mirror_common": {
        "reconcile_status": "4e0278b0b6e89ada99de8459dce997356befeffaf11d8ec429038feb7af72161",
        "write_mirrored_messages": "eb2ee46128640489107b7f219f92dacc59e8c41d35404cecbd486c193326eb58",
    },
    "lionagi.cli._context_from": {
        "_candidate_from_branch": "6c266fef48ab88ecd0c04faf885dd8ddd8d45f2f53d7ca707d604121644c44dc",
    },
    "lionagi.cli._runs": {
        "_teardown_common": "215a1407a0f18975e977bb39ec294457deb8427eaf61130b033528d441a16d97",
        "setup_agent_persist": "74a53765a4ebdcd1c557fd994f32b3211ffe13f9342fbc547c5f09e6bcfb19be",
    },
    "lionagi.cli.state": {
        "_collect_sessions": "e30838a3c3efe8c07f51cb8f9b5aac9b1f96f9585818759394ed31f68a619352",
        "_prune": "92bb419839e1fd738a81f4ad45080d678c0b19d258cba2efa2f0688d71bf5391",
        "add_state_subparser": "61daafa903231d062a76f6c8c63174bcd2c43f03bcc34ae5a2feaf0d2e8cc772",
        "run_state": "5b84cd540347da7b2f41e593e62a0b4ac82db08fd61cd2e0f67f9e16c4441ffc",
    },
    "lionagi.studio.scheduler.coordination": {
        "_worker_file_sets": "44a4ae818fa7533d064d86bd9f1b40469837beb108269eea8e2e2e6697b3509e",
    },
    "lionagi.studio.services._db": {
        "open_db": "c55c1b21fb7d6136f9c3b58a18f2c49f5eed2ad6e5eb88d33feeb9880e17c7e0",
    },
    "lionagi.studio.services.admin": {
        "health_report": "c3b19272b5bf225dae7395d7cc5733849fb43d3c1c08714754f91e4570d1627c",
    },
    "lionagi.studio.services.db_maintenance": {
        "_fetch_chunked": "7006488f86d931e9ab69f3605da8c77f7416d4365cca96611682e763908b40a8",
        "_prune_session_chunk": "cec46713b14a03a0774e6bca07413f38ca209946a10d3e4dad2a67d1519d6f13",
    },
    "lionagi.studio.services.sessions": {
        "get_session": "5c2ebdc04386353928f9d4d3a9e89ecf4daa9c143b9298f929b34547abb08cf4",
        "get_session_messages_after": "57b50079ca927accacec9f03a49ac5137c67636ede2018e572dd642759a0f97d",
        "list_sessions": "a0803d392af0db5450502d0849ddc6329ff6f6beda2a439271af00b52e3eab99",
    },
}
