# SPDX-License-Identifier: BSD-3-Clause
"""Tests on the ranks of MPI: one ``mpiexec`` for all tests of a file, and a report of each.

A test file marks functions of a world by ``@on_ranks(1, 2, 3, 4)``. Its first test starts this file on as many
processes as any test needs. They run all tests, each on a communicator of its size, and write down how each went. A
rank that raises ends all of them; so does a deadlock, after 60 seconds.
"""

import functools
import importlib.util
import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

PATIENCE = 60  # seconds for one test
COMPILING = 300  # seconds for one on a single rank, which also compiles
PASSED = "passed"
# There are more ranks than cores, and by default a rank that waits turns round and round.
_YIELDING = {
    "MPIR_CVAR_POLLS_BEFORE_YIELD": "1", "MPIR_CVAR_POSIX_POLL_FREQUENCY": "1", "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
}  # fmt: skip


def on_ranks(*sizes, each=(None,)):
    """Mark a test ``f(world)``, or ``f(world, item)`` for each of several items, to run on so many ranks."""
    import pytest

    def mark(function):
        @functools.wraps(function)
        def test(size, number, reports):
            outcome = reports.get(f"{function.__name__} {number} {size}", reports["end"])
            assert outcome == PASSED, outcome

        test.__signature__ = inspect.Signature(
            [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in ("size", "number", "reports")]
        )
        del test.__wrapped__
        test.test_on_ranks = function, sizes, each
        names = [
            str(n) if item is None or not isinstance(item, tuple) else f"{n}-{item[0]}" for n, item in enumerate(each)
        ]
        test = pytest.mark.parametrize("number", range(len(each)), ids=names)(test)
        return pytest.mark.parametrize("size", sizes, ids=lambda n: f"{n}ranks")(test)

    return mark


@functools.cache
def reports_of(path):
    """Run the tests of a file, and return the outcome of each by its name, item and number of ranks."""
    ranks = max(size for _, sizes, _ in _marked(_module(path)) for size in sizes)
    launcher = Path(sys.executable).with_name("mpiexec")
    with tempfile.TemporaryDirectory() as folder:
        report, output = Path(folder) / "report", Path(folder) / "output"
        report.touch()
        command = [str(launcher) if launcher.exists() else "mpiexec", "-n", str(ranks)]
        command += [sys.executable, "-W", "error", "-m", "mpi4py", __file__, str(path), str(report)]
        paths = [str(Path(__file__).parent), *filter(None, sys.path)]
        settings = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"} | _YIELDING
        with output.open("wb") as stream:
            process = subprocess.Popen(
                command, stdout=stream, stderr=subprocess.STDOUT, env=settings, start_new_session=True
            )
            end = _watch(process, report)
        lines = [json.loads(line) for line in report.read_text(encoding="utf-8").splitlines()]
        outcomes = {f"{line['test']} {line['number']} {line['size']}": line["outcome"] for line in lines}
        said = output.read_text(encoding="utf-8", errors="replace")[-6000:]
        outcomes["end"] = f"not run: {end} after {list(outcomes)[-1:]}\n{said}"
        return outcomes


def _watch(process, report):
    """Wait for the processes; end them if no test is done in time."""
    known, since = "", time.monotonic()
    while process.poll() is None:
        time.sleep(0.05)
        text = report.read_text(encoding="utf-8")
        if text != known:
            known, since = text, time.monotonic()
        alone = not known or '"size": 1,' in known.splitlines()[-1]
        if time.monotonic() - since > (COMPILING if alone else PATIENCE):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return "a deadlock"
    return f"mpiexec ended with {process.returncode}"


def _module(path):
    held = (m for m in list(sys.modules.values()) if vars(m).get("__file__") == str(path))
    known = next(held, None)
    if known is not None:
        return known
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _marked(module):
    return [thing.test_on_ranks for thing in vars(module).values() if hasattr(thing, "test_on_ranks")]


def _run(path, report):
    from mpi4py import MPI

    everyone = MPI.COMM_WORLD
    rank = everyone.Get_rank()
    tests = _marked(_module(path))
    # Tests on one rank come first: it compiles what the others then read from the cache.
    for size in sorted({size for _, sizes, _ in tests for size in sizes}):
        part = everyone.Split(0 if rank < size else 1, rank)
        for function, sizes, each in tests:
            for number, item in enumerate(each) if size in sizes else ():
                began = time.monotonic()
                if rank < size:
                    _call(function, item, part, everyone)
                _wait(everyone)
                if rank == 0:
                    line = {"test": function.__name__, "number": number, "size": size, "outcome": PASSED}
                    line["seconds"] = round(time.monotonic() - began, 2)  # for readers
                    with Path(report).open("a", encoding="utf-8") as stream:
                        stream.write(json.dumps(line) + "\n")


def _call(function, item, communicator, everyone):
    from particlemesh.distributed import World

    try:
        function(World(communicator), *(() if item is None else (item,)))
    except BaseException:
        where = f"rank {communicator.Get_rank()} of {communicator.Get_size()}, {function.__name__} of {item}:"
        sys.stderr.write(f"{where}\n{traceback.format_exc()}\n")
        everyone.Abort(1)


def _wait(communicator):
    """Wait for all ranks without turning round: the others need the cores."""
    done = communicator.Ibarrier()
    while not done.Test():
        time.sleep(0.002)


if __name__ == "__main__":
    _run(sys.argv[1], sys.argv[2])
