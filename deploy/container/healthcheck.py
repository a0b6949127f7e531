"""Exit 0 if lionstated answers on its Unix socket, else 1 with a line that says why."""

from __future__ import annotations

import http.client
import os
import socket
import sys

_SECONDS = 4.0


class _Unix(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_SECONDS)
        self.sock.connect(os.path.join(os.environ.get("RUNTIME_DIRECTORY", "/run/lionstate"), "lionstated.sock"))


def main() -> int:
    """Ask for the description of the API, which is answered from memory."""
    connection = _Unix("lionstate")
    try:
        connection.request("GET", "/openapi.json")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as exc:
        sys.stderr.write(f"lionstated does not answer: {exc}\n")
        return 1
    finally:
        connection.close()
    if status != 200:
        sys.stderr.write(f"lionstated answers {status}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
