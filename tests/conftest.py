"""Fixtures and hooks shared by all tests."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from densecrf.native import core
from scribbling import CHROMIUM, FLAGS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA = Path(os.environ.get("DENSECRF_SHARED", ROOT.parent / "shared")) / "data"

# Without a GPU, Triton's kernels run in its interpreter. Triton asks when it is imported, which any
# test may do.
if not any(Path("/dev").glob("nvidia[0-9]*")):
    os.environ["TRITON_INTERPRET"] = "1"

# Processes of the tests share the cores; PyTorch would start a thread per core in each.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# No test depends on how fast the machine is.
settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--strict-skips",
        action="store_true",
        help="fail the run if a test was skipped that this machine should have been able to run",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--strict-skips"):
        config.pluginmanager.register(StrictSkips(), "strict-skips")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need what lies outside the project, whichever fixture brings it in."""
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "shared_data" in fixtures:
            item.add_marker("needs_shared")
        if "browser" in fixtures:
            item.add_marker("browser")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the reference data, which lies beside the checkout and is not part of it."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"no reference data at {SHARED_DATA} (set DENSECRF_SHARED to its parent)")
    return SHARED_DATA


@pytest.fixture
def restore_isa() -> Iterator[None]:
    """Bring back, after the test, the instruction set that is chosen before it."""
    chosen = core().isa()
    yield
    assert core().select_isa(chosen)


@pytest.fixture
def many_threads() -> Iterator[None]:
    """Let small problems be shared by as many threads as a call asks for, on any machine."""
    before = core().set_work_per_thread(1)
    core().set_default_threads(8)
    yield
    core().set_default_threads(0)
    core().set_work_per_thread(before)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let SIGINT interrupt: the background jobs of a shell, and what they start, ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def browser():
    """Return a headless Chromium of the system."""
    playwright = pytest.importorskip("playwright.sync_api", exc_type=ImportError)
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine: the page is not tested in a browser")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS, headless=True)
        yield running
        running.close()


class StrictSkips:
    """Turn skips into a failed run, so that continuous integration cannot lose tests silently.

    Allowed are tests marked ``gpu``, ``needs_shared`` where there is no reference data, and
    ``browser`` where there is no Chromium.
    """

    def __init__(self) -> None:
        self.refused: list[str] = []

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if not report.skipped or hasattr(report, "wasxfail"):
            return
        keywords = getattr(report, "keywords", {})  # a module skipped as a whole has none
        if "gpu" in keywords:
            return
        if "needs_shared" in keywords and not SHARED_DATA.is_dir():
            return
        if "browser" in keywords and CHROMIUM is None:
            return
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        self.refused.append(f"{report.nodeid}: {reason}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.refused and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.refused:
            terminalreporter.section("skips refused by --strict-skips", red=True)
            for line in self.refused:
                terminalreporter.line(line)
