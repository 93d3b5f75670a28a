"""A local network on one machine: hosts in network namespaces of their own, on one switch.

Nothing of it is outside its processes: when they end, it is gone. Where the system does not allow
namespaces, `lan` skips the test with what it said.
"""

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from processes import RUMORMILL, Program

_WAIT = "echo ready; exec sleep infinity"
_NEEDED = ("unshare", "nsenter", "ip")


class Lan:
    """A switch, and hosts 10.1.0.1, 10.1.0.2, ... that are plugged into it."""

    def __init__(self, switch: Program, running: contextlib.ExitStack) -> None:
        self._switch = switch
        self._running = running
        self._hosts: list[Program] = []

    def _inside(self, program: Program, *what: str) -> list[str]:
        pid = str(program.process.pid)
        return ["nsenter", "-t", pid, "-U", "-n", "--preserve-credentials", *what]

    def _do(self, program: Program, command: str) -> None:
        done = subprocess.run(
            self._inside(program, "sh", "-ec", command),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"no local network can be made here: {done.stderr.strip()}")

    def set_up(self) -> None:
        """Make the switch."""
        self._do(self._switch, "ip link add switch type bridge; ip link set switch up")

    def host(self) -> int:
        """Plug in another host; return its number, which is the last part of its address."""
        program = self._running.enter_context(
            Program(self._inside(self._switch, "unshare", "-n", "sh", "-c", _WAIT))
        )
        program.prints()
        self._hosts.append(program)
        number, pid = len(self._hosts), program.process.pid
        self._do(
            self._switch,
            f"ip link add port{number} type veth peer name eth0 netns {pid};"
            f"ip link set port{number} master switch; ip link set port{number} up",
        )
        self._do(
            program,
            f"ip link set lo up; ip address add 10.1.0.{number}/24 dev eth0; ip link set eth0 up",
        )
        return number

    def program(self, host: int, *command: str) -> Program:
        """Run a program on a host, as long as the test lasts."""
        return self._running.enter_context(
            Program(self._inside(self._hosts[host - 1], *command), stdin=subprocess.PIPE)
        )

    def rumormill(self, host: int, *arguments: object) -> Program:
        """Run `rumormill` on a host."""
        return self.program(host, *RUMORMILL, *map(str, arguments))

    def python(self, host: int, script: str, *arguments: object) -> Program:
        """Run a script on a host."""
        return self.program(host, sys.executable, "-c", script, *map(str, arguments))


@contextlib.contextmanager
def lan() -> Iterator[Lan]:
    """A local network without hosts yet."""
    missing = [name for name in _NEEDED if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no local network can be made here: {missing[0]} is not installed")
    with contextlib.ExitStack() as running:
        switch = running.enter_context(Program(["unshare", "-rn", "sh", "-c", _WAIT]))
        switch.wait_for(lambda: switch.output or switch.errors, "the switch")
        if not switch.output:
            pytest.skip(f"no network namespaces here: {switch.errors[0]}")
        made = Lan(switch, running)
        made.set_up()
        yield made
