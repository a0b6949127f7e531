"""schemathesis against a daemon of its own: requests made from the document that it publishes.

What comes back must be an answer that the document names, in its content type and of its schema, and never a failure
of the server.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.demo.processes import DaemonProcess, free_port

__all__ = ["fuzz"]

_TOKEN = "a-token-for-this-run"
_CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
_COUNTS = re.compile(r'lionstate_operations_total{operation="(\w*)",outcome="(\w+)"} ([\d.e+]+)')
_COUNTED = re.compile(r"Test cases:\s*([\d,]+) generated")


def fuzz(start: Callable[..., DaemonProcess], folder: Path, *, cases: int, seed: int) -> str:
    """Send at least so many requests, spread over all operations; the summary of what was seen.

    Args:
        start: Starts a daemon with settings.
        folder: For the store and the token.
        cases: The least number of requests.
        seed: The same requests for the same document.
    """
    (folder / "token").write_text(_TOKEN, encoding="utf-8")
    (folder / "token").chmod(0o600)
    (folder / "token").chmod(0o600)
    address = f"127.0.0.1:{free_port()}"
    daemon = start(folder / "state.db", listen__http=address, auth__token_file=str(folder / "token"))
    # Some operations have fewer calls than this to try.
    document = _document(address)
    (folder / "openapi.json").write_text(json.dumps(document), encoding="utf-8")
    each = cases * 5 // 4 // len(document["paths"]) + 1
    command = [
        *(str(Path(sys.executable).with_name("st")), "run", "openapi.json"),
        *("--url", f"http://{address}"),
        # A deadline made up for the test would be missed, and rightly so.
        *("--header", "Lionstate-Deadline-Ms: 30000", "--header", f"Authorization: Bearer {_TOKEN}"),
        # They have a listener of their own.
        *("--exclude-path-regex", "^/(metrics|livez|readyz|status.json)?$"),
        *("--checks", _CHECKS, "--phases", "fuzzing"),
        *("--max-examples", str(each), "--seed", str(seed), "--generation-database", "none"),
        *("--suppress-health-check", "all", "--continue-on-failure", "--warnings", "off", "--no-color"),
        *("--request-timeout", "30", "--no-shrink"),
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]
    outcomes = _outcomes(daemon.ops)
    assert daemon.stop() == 0
    counted = _COUNTED.search(done.stdout)
    assert counted is not None, done.stdout
    assert cases <= int(counted[1].replace(",", "")), counted[0]
    ran = sum(counts.keys() & {"written", "read"} != set() for counts in outcomes.values())
    assert ran >= len(outcomes) * 3 // 4, "most operations refuse everything that their schema allows"
    totals = sum(outcomes.values(), Counter[str]())
    return f"{counted[0]}, all as documented; {ran} of {len(outcomes)} operations ran: {dict(totals)}"


def _outcomes(ops: str) -> dict[str, Counter[str]]:
    """How often each operation ended in which way, by its metric."""
    found: dict[str, Counter[str]] = {}
    with urllib.request.urlopen(f"http://{ops}/metrics", timeout=10) as answer:
        for name, outcome, count in _COUNTS.findall(answer.read().decode()):
            if name:
                found.setdefault(name, Counter())[outcome] += int(float(count))
    return found


def _document(address: str) -> dict[str, Any]:
    """What the daemon publishes, with pairs in words that schemathesis takes, and without long waits.

    It turns `prefixItems` into what is no schema.
    """
    request = urllib.request.Request(f"http://{address}/openapi.json", headers={"Authorization": f"Bearer {_TOKEN}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        found: dict[str, Any] = json.load(answer, object_hook=_plain_pair)
    return found


def _plain_pair(schema: dict[str, Any]) -> dict[str, Any]:
    if schema.get("name") == "wait_seconds":
        return {**schema, "schema": {**schema["schema"], "maximum": 0.01}}
    pair = "prefixItems" in schema
    return {key: value for key, value in schema.items() if not (pair and key in ("prefixItems", "items"))}
