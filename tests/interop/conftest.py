"""Fixtures of the interop tests: the foreign implementations, and coroutines as tests."""

import functools
import inspect
from collections.abc import Iterator
from pathlib import Path

import interop_install
import pytest
from interop_peer import Program

import chromium
from live_nodes import run

LONGEST = 120.0
"""Seconds after which a test that waits for what cannot come is ended."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function in an event loop."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    run(functools.partial(pyfuncitem.obj, **arguments), patience=LONGEST)
    return True


@pytest.fixture(scope="session")
def javascript() -> Program:
    """js-libp2p."""
    return interop_install.installed(interop_install.javascript)


@pytest.fixture(scope="session")
def golang() -> Program:
    """go-libp2p."""
    return interop_install.installed(interop_install.golang)


@pytest.fixture(scope="session")
def rust() -> Program:
    """rust-libp2p."""
    return interop_install.installed(interop_install.rust)


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


@pytest.fixture(scope="session")
def browser() -> str:
    """The browser's program; it comes from the system, not from what the tests can install."""
    found = chromium.find_chromium()
    if found is None:
        pytest.skip("chromium is not installed; the page of examples/browser runs in it")
    return found


@pytest.fixture(scope="session")
def page_address(browser: str) -> Iterator[str]:
    """Where the page of `examples/browser` is served."""
    folder: Path = interop_install.installed(interop_install.browser_page)
    with chromium.served(folder) as address:
        yield f"{address}/index.html"
