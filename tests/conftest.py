# SPDX-License-Identifier: BSD-3-Clause
"""Which backends a run tests, and how its tests are shared out among workers."""

import gc
import os

import hypothesis
import pytest

import mpi
from cases import rows
from devices import Device, laws
from particlemesh import backends
from particlemesh.command import self_test
from particlemesh.grid.builders import METHODS as BUILDERS
from pocl_processor import name_processors
from thinning import thinned

# JAX would take most of a GPU's memory in every worker.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
hypothesis.settings.register_profile(
    "particlemesh", derandomize=True, database=None, deadline=None, max_examples=15, print_blob=False,
    suppress_health_check=list(hypothesis.HealthCheck),
)  # fmt: skip
hypothesis.settings.load_profile("particlemesh")


def pytest_addoption(parser):
    parser.addoption(
        "--backend", action="append", choices=(*backends.NAMES, "all"),
        help="backends to test, by default those that work here; one that does not is skipped with its reason",
    )  # fmt: skip
    parser.addoption("--thorough", action="store_true", help="every combination and row, also on PoCL")
    parser.addoption("--optimised", action="store_true", help="let PoCL optimise kernels as it does for users")
    parser.addoption("--many-processes", type=int, default=2, help="processes that start with cold caches at once")


def pytest_configure(config):
    config.addinivalue_line("markers", "backends(*names): the backends that a test with `backend` is for")
    config.addinivalue_line("markers", "direction(name): the methods that a test with `law` is for")
    config.addinivalue_line("markers", "whole: all cases run on PoCL, too")
    config.addinivalue_line("markers", "in_processes: files of other programs are read in processes, not in forks")
    config.addinivalue_line("markers", "turns(n): one of n cases that follow each other runs where PoCL is thinned")
    config.addinivalue_line("markers", "opencl: uses OpenCL without the `backend` fixture")
    name_processors()
    # Compiling is most of what tests do, and PoCL does it twice as fast without optimising.
    slow = reason("opencl") is None and self_test.emulated(backends.current("opencl"))
    if slow:
        backends.module("opencl").OPTIONS.append("-Werror")  # PoCL counts warnings on the user's terminal
    if slow and not config.getoption("--optimised"):
        backends.module("opencl").OPTIONS.append(self_test.UNOPTIMISED)
        os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # XLA, too
    config.thins = slow and not config.getoption("--thorough")


def reason(name):
    return backends.module(name).available()


def chosen(config):
    """Names of the backends that this run tests."""
    named = config.getoption("--backend") or [n for n in backends.NAMES if reason(n) is None]
    return list(backends.NAMES) if "all" in named else [n for n in backends.NAMES if n in named]


def pytest_report_header(config):
    lines = []
    for name in backends.NAMES:
        why = reason(name)
        if why is not None:
            lines.append(f"{name}: not here: {why}")
        elif name in chosen(config):
            backend = backends.current(name)
            platform = getattr(backend, "platform", "")
            lines.append(f"{name}: {backend.device}{', ' + platform if platform else ''}")
        else:
            lines.append(f"{name}: works, not tested in this run")
    return lines


def _parameter(name, *values, id=None):
    why = reason(name)
    marks = [] if why is None else [pytest.mark.skip(reason=f"{name} does not work here: {why}")]
    return pytest.param(name, *values, marks=marks, id=id or name)


def pytest_generate_tests(metafunc):
    """``backend`` runs on each backend; ``law`` and ``builder`` on each method, with each backend that it runs on."""
    names = chosen(metafunc.config)
    only = metafunc.definition.get_closest_marker("backends")
    if only is not None:
        names = [n for n in names if n in only.args]
        if not names and "backend" in metafunc.fixturenames:
            why = f"this test is for {' and '.join(only.args)}, which this run does not test"
            none = pytest.param(None, marks=pytest.mark.skip(reason=why), id="nowhere")
            second = [n for n in ("law", "builder") if n in metafunc.fixturenames]
            metafunc.parametrize(
                ("backend", *second), [pytest.param(None, None, marks=none.marks, id="nowhere")] if second else [none]
            )
            return
    if "row" in metafunc.fixturenames:  # of the covering array, on each backend of its method
        by_name = {str(law): law.method for law in laws()}
        cases = [
            _parameter(name, row, id=f"{n}-{row.method}-{row.window}-{name}")
            for n, row in enumerate(rows(), 2)
            for name in names
            if name in by_name[row.method].backends
        ]
        metafunc.parametrize(("backend", "row"), cases, indirect=["backend"], scope="session")
    elif "law" in metafunc.fixturenames:
        expected = metafunc.definition.get_closest_marker("direction")
        cases = [
            _parameter(name, law, id=f"{law}-{name}")
            for law in laws()
            for name in names
            if name in law.method.backends and (expected is None or law.direction in expected.args)
        ]
        metafunc.parametrize(("backend", "law"), cases, indirect=["backend"], scope="session")
    elif "builder" in metafunc.fixturenames:  # of grids
        cases = [
            _parameter(name, builder, id=f"{builder.name}-{name}")
            for builder in BUILDERS
            for name in names
            if name in builder.backends
        ]
        metafunc.parametrize(("backend", "builder"), cases, indirect=["backend"], scope="session")
    elif "backend" in metafunc.fixturenames:
        metafunc.parametrize("backend", [_parameter(n) for n in names], indirect=True, scope="session")


@pytest.fixture(scope="session")
def backend(request) -> Device:
    return Device.of(request.param)


@pytest.fixture
def reports(request):
    """How the tests of this run went on the ranks of MPI; see support/mpi.py."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed", exc_type=ImportError)
    items = [item for item in request.session.items if "reports" in item.fixturenames]
    return mpi.reports_of(tuple(sorted({item.path for item in items})), frozenset(map(mpi.key_of, items)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    """Take off a backend what monkeypatch leaves: the method that it restores would hide a later patch of the class."""
    done = yield
    library = getattr(item.funcargs.get("backend"), "library", None)
    for name, value in [*getattr(library, "__dict__", {}).items()]:
        if getattr(value, "__self__", None) is library and hasattr(type(library), name):
            delattr(library, name)
    return done


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    if config.thins:
        items[:], left = thinned(items)
        config.hook.pytest_deselected(items=left)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from sharing import FromBothEnds

    return FromBothEnds(config, log)


def pytest_collection_finish():
    # Compilers leave much to collect: a tenth of their time. The tests themselves are never garbage.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 50)
