"""Builds the image and runs it as its users do; run with podman's cgroups in a mount namespace of its own.

container_inside.py FOLDER PORT COMPOSE: FOLDER/root is the root of a Debian with Python, FOLDER/image the context,
COMPOSE the program docker-compose, or nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from seeing import Checks

# Of the command line; empty where only the names of the checks are asked for.
FOLDER, PORT, COMPOSE = Path(*sys.argv[1:2]), "".join(sys.argv[2:3]), "".join(sys.argv[3:4])
COMPOSE_FILE = Path(__file__).parents[2] / "deploy/container/compose.yaml"
# As `HERE`; the image has been built, and its name is podman's.
COMPOSE_HERE = """
services:
  lionstate: {network_mode: host, image: "localhost/lionstate:latest", healthcheck: {disable: true}}
  app: {network_mode: host, image: "localhost/lionstate:latest", environment: {PAUSE_SECONDS: "0.01"}}
"""
# Not what the image is about: what this machine's kernel and cgroups allow.
HERE = ["--network=host", "--cgroups=disabled", "--ulimit=nofile=4096:4096", "--ulimit=nproc=1000:1000"]
CLOSED = ["--no-healthcheck", "--read-only", "--tmpfs=/tmp", "--cap-drop=all", "--security-opt=no-new-privileges"]
SOCKET = "--volume=socket:/run/lionstate"
PYTHON = "/opt/lionstate/bin/python3"
HEALTH = ("/opt/lionstate/bin/lionstate", "health")
SHARE = "/opt/lionstate/share/lionstate/deploy/container"
_LIST = """
import asyncio
from lionstate import StateClient
async def main():
    async with StateClient("unix:/run/lionstate/lionstated.sock") as client:
        print("\\n".join(await client.get_progression("example")))
asyncio.run(main())
"""

check = Checks()


def run(*command: str, code: int | None = 0) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert code is None or code == done.returncode, (command, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout.strip()


def wait_for(what: str, condition: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.1)


def healthy() -> bool:
    done = subprocess.run(["podman", "exec", "lionstate", *HEALTH], capture_output=True, check=False)
    return done.returncode == 0


def acknowledged() -> list[str]:
    lines = run("podman", "logs", "app").splitlines()
    return [line.removeprefix("acknowledged ") for line in lines if line.startswith("acknowledged ")]


@check
def built() -> str:
    with subprocess.Popen(["tar", "-C", str(FOLDER / "root"), "-c", "."], stdout=subprocess.PIPE) as tar:
        subprocess.run(["podman", "import", "-q", "-", "localhost/base"], stdin=tar.stdout, check=True)
    began = time.monotonic()
    build = ("buildah", "build", "--isolation=chroot", "--format=docker", "--build-arg=BASE=localhost/base")
    run(*build, "--tag=localhost/lionstate:latest", str(FOLDER / "image"))
    took = time.monotonic() - began
    size = run("podman", "image", "inspect", "--format={{.Size}} {{.User}}", "localhost/lionstate:latest")
    return f"{took:.1f} s, size and user {size}"


@check
def ready() -> str:
    began = time.monotonic()
    environment = f"--env=LIONSTATE_LISTEN__OPS=127.0.0.1:{PORT}"
    run("podman", "run", "--detach", "--name=lionstate", *HERE, *CLOSED, SOCKET, environment,
        "--volume=state:/var/lib/lionstate", "localhost/lionstate:latest")  # fmt: skip
    wait_for("healthy", healthy)
    return f"healthy after {time.monotonic() - began:.1f} s"


@check
def closed() -> str:
    status = run("podman", "exec", "lionstate", "grep", "-E", "^(Uid|CapEff|CapBnd|NoNewPrivs)", "/proc/1/status")
    found = {line.split(":")[0]: line.split()[1] for line in status.splitlines()}
    none = "0000000000000000"
    assert {"Uid": "10001", "CapEff": none, "CapBnd": none, "NoNewPrivs": "1"} == found, found
    for path in ("/x", "/etc/x", "/opt/lionstate/x"):
        run("podman", "exec", "lionstate", "touch", path, code=1)
    return f"{found}; /, /etc and /opt are read-only"


@check
def app_writes() -> str:
    run("podman", "run", "--detach", "--name=app", *HERE, *CLOSED, SOCKET, "--env=PAUSE_SECONDS=0.001",
        f"--entrypoint={PYTHON}", "localhost/lionstate:latest", f"{SHARE}/example_app.py")  # fmt: skip
    wait_for("messages", lambda: len(acknowledged()) > 100)
    return f"{len(acknowledged())} acknowledged through the shared socket"


@check
def stop_drains() -> str:
    before = len(acknowledged())
    began = time.monotonic()
    run("podman", "stop", "--time=30", "lionstate")
    took = time.monotonic() - began
    assert "0" == run("podman", "inspect", "--format={{.State.ExitCode}}", "lionstate")
    run("podman", "exec", "app", *HEALTH, code=1)
    wait_for("the app to notice", lambda: "not acknowledged" in run("podman", "logs", "app"))
    assert before > 0
    return f"{took:.1f} s, exit 0, and the health check of a stopped daemon fails"


@check
def nothing_is_lost() -> str:
    run("podman", "start", "lionstate")
    wait_for("healthy", healthy)
    then = len(acknowledged())
    wait_for("the app to go on", lambda: len(acknowledged()) > then + 50)
    run("podman", "stop", "--time=2", "app")
    said = acknowledged()
    there = run("podman", "exec", "lionstate", PYTHON, "-c", _LIST).splitlines()
    assert set() == set(said) - set(there)
    assert len(there) == len(set(there))
    return f"{len(said)} acknowledged over a restart, {len(there)} there, 0 lost"


@check
def composed() -> str:
    """The default profile of the compose file, by the real Compose on podman's API."""
    assert COMPOSE, "docker-compose is not installed"
    run("podman", "rm", "--all", "--force", "--time=0")
    api = FOLDER / "podman.sock"
    (FOLDER / "here.yaml").write_text(COMPOSE_HERE)
    os.environ |= {"DOCKER_HOST": f"unix://{api}", "LIONSTATE_OPS": f"127.0.0.1:{PORT}"}
    compose = (COMPOSE, "--file", str(COMPOSE_FILE), "--file", str(FOLDER / "here.yaml"))
    with subprocess.Popen(["podman", "system", "service", "--time=0", f"unix://{api}"]) as service:
        try:
            wait_for("podman's API", api.exists)
            run(*compose, "up", "--detach", "--no-build", "--pull=never")

            def said() -> int:
                return run(*compose, "logs", "app").count("| acknowledged ")

            wait_for("messages", lambda: said() > 50)
            up = sorted(run(*compose, "ps", "--services", "--status=running").split())
            assert ["app", "lionstate"] == up, up
            count = said()
            began = time.monotonic()
            run(*compose, "down", "--volumes")
            return f"{', '.join(up)} up, {count} acknowledged; down in {time.monotonic() - began:.1f} s"
        finally:
            service.terminate()


def main() -> None:
    """Everything in a storage of its own."""
    (FOLDER / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{FOLDER}/graph"\nrunroot = "{FOLDER}/run"\n'
    )
    (FOLDER / "containers.conf").write_text(
        '[containers]\ncgroups = "disabled"\ndefault_ulimits = ["nofile=4096:4096", "nproc=1000:1000"]\n'
        f'[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nvolume_path = "{FOLDER}/volumes"\n'
    )
    os.environ["CONTAINERS_STORAGE_CONF"] = str(FOLDER / "storage.conf")
    os.environ["CONTAINERS_CONF"] = str(FOLDER / "containers.conf")
    try:
        check.run(FOLDER / "seen.json")
    finally:
        run("podman", "rm", "--all", "--force", "--time=0", code=None)


if __name__ == "__main__":
    main()
