"""Fixtures of the interop tests: the foreign implementations, and coroutines as tests."""

import asyncio
import inspect

import interop_install
import pytest
from interop_peer import Program

LONGEST = 120.0
"""Seconds after which a test that waits for what cannot come is ended."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function in an event loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), LONGEST))
    return True


@pytest.fixture(scope="session")
def javascript() -> Program:
    """js-libp2p."""
    return interop_install.installed(interop_install.javascript)


@pytest.fixture(scope="session")
def python() -> Program:
    """py-libp2p."""
    return interop_install.installed(interop_install.python)


@pytest.fixture(scope="session")
def pulsarcast() -> Program:
    """The JavaScript original of Pulsarcast."""
    return interop_install.installed(interop_install.pulsarcast)


@pytest.fixture(scope="session")
def bridge() -> Program:
    """py-libp2p, which speaks the original's encryption."""
    return interop_install.installed(interop_install.pulsarcast_bridge)
