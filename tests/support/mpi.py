# SPDX-License-Identifier: BSD-3-Clause
"""Tests on the ranks of MPI: one ``mpiexec`` for all of a run, and a report of each.

A test file marks functions of a world by ``@on_ranks(1, 2, 3, 4)``. The first such test starts this file on as many
processes as any selected test needs. They run those tests, each on a communicator of its size, and write down which
passed. A rank that raises ends all of them; so does a deadlock, after 60 seconds. Then they start again with the rest.
"""

import functools
import importlib.util
import inspect
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
MOST_FAILURES = 5  # tests that end all ranks, before the rest is given up
PASSED = "passed"
# There are more ranks than cores, and by default a rank that waits turns round and round.
_YIELDING = {
    "MPIR_CVAR_POLLS_BEFORE_YIELD": "1", "MPIR_CVAR_POSIX_POLL_FREQUENCY": "1", "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1",
}  # fmt: skip


def on_ranks(*sizes, each=(None,)):
    """Mark a test ``f(world)``, or ``f(world, item)`` for each of several items, to run on so many ranks."""
    from ranks import for_ranks

    def mark(function):
        def call(size, number, reports):
            key = _key(inspect.getfile(function), function, number, size)
            outcome = reports.get(key, f"not run: {MOST_FAILURES} tests before it failed")
            assert outcome == PASSED, outcome

        return for_ranks(call, function, sizes, each, "ranks")

    return mark


def key_of(item):
    """Return the file, name, item and number of ranks of a test that pytest has collected."""
    parameters, (function, *_) = item.callspec.params, item.function.test_on_ranks
    return _key(inspect.getfile(function), function, parameters["number"], parameters["size"])


@functools.cache
def reports_of(paths, keys=None):
    """Run tests of some files, by default all, and return the outcome of each by its `key_of`.

    After a test that ends all ranks, others take over the rest.
    """
    outcomes, order = {}, [test for test in _in_order(paths) if keys is None or test[0] in keys]
    for _ in range(MOST_FAILURES):
        rest = {key: size for key, *_, size in order if key not in outcomes}
        if not rest:
            break
        passed, end = _launch(paths, rest)
        outcomes |= dict.fromkeys(passed, PASSED)
        culprit = next((key for key in rest if key not in outcomes), None)
        if culprit is not None:
            outcomes[culprit] = end
    return outcomes


def _launch(paths, tests):
    """Start the ranks; return which tests of {key: ranks} passed, and how the ranks ended."""
    ranks, alone = max(tests.values()), sum(size == 1 for size in tests.values())  # those on one rank come first
    launcher = Path(sys.executable).with_name("mpiexec")
    with tempfile.TemporaryDirectory() as folder:
        report, output, selected, failure = (Path(folder) / n for n in ("report", "output", "tests", "failure"))
        report.touch()
        failure.touch()
        selected.write_text("\n".join(tests), encoding="utf-8")
        command = [str(launcher) if launcher.exists() else "mpiexec", "-n", str(ranks)]
        command += [sys.executable, "-W", "error", "-m", "mpi4py", __file__, folder, *map(str, paths)]
        places = [str(Path(__file__).parent), *filter(None, sys.path)]
        settings = os.environ | {"PYTHONPATH": os.pathsep.join(places), "OMP_NUM_THREADS": "1"} | _YIELDING
        with output.open("wb") as stream:
            process = subprocess.Popen(
                command, stdout=stream, stderr=subprocess.STDOUT, env=settings, start_new_session=True
            )
            end = _watch(process, report, alone)
        said = "\n".join(f.read_text(encoding="utf-8", errors="replace")[-6000:] for f in (failure, output))
        return report.read_text(encoding="utf-8").splitlines()[1:], f"{end}\n{said}"


def _watch(process, report, single):
    """Wait for the processes; end them if no test is done in time."""
    known, since = "", time.monotonic()
    while process.poll() is None:
        time.sleep(0.05)
        text = report.read_text(encoding="utf-8")
        if text != known:
            known, since = text, time.monotonic()
        alone = len(known.splitlines()) <= single  # the first line says that the ranks have started
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


def _in_order(paths):
    """Return the key, the function, the item and the number of ranks of each test.

    Those on one rank come first: it compiles what the others then read from the cache.
    """
    tests = []
    for path in paths:
        for thing in list(vars(_module(path)).values()):
            function, sizes, each = getattr(thing, "test_on_ranks", (None, (), ()))
            for size in sizes:
                tests += [(_key(path, function, n, size), function, item, size) for n, item in enumerate(each)]
    return sorted(tests, key=lambda test: test[-1])


def _key(path, function, number, size):
    return f"{Path(path).stem} {function.__name__} {number} {size}"


def _run(folder, paths):
    from mpi4py import MPI

    import particlemesh.distributed  # noqa: F401 - takes a while, which no test is to count

    everyone = MPI.COMM_WORLD
    rank, parts = everyone.Get_rank(), {}
    selected = set((Path(folder) / "tests").read_text(encoding="utf-8").splitlines())
    tests = _in_order(paths)
    _wait(everyone)
    _say(folder, rank, "started")
    for key, function, item, size in tests:
        if key not in selected:
            continue
        if size not in parts:
            parts[size] = everyone.Split(0 if rank < size else 1, rank)
        if rank < size:
            _call(folder, function, item, parts[size], everyone)
        _wait(everyone)
        _say(folder, rank, key)


def _say(folder, rank, line):
    """Write a line of the report."""
    if rank == 0:
        with (Path(folder) / "report").open("a", encoding="utf-8") as stream:
            stream.write(f"{line}\n")


def _call(folder, function, item, communicator, everyone):
    from particlemesh.distributed import World

    try:
        function(World(communicator), *(() if item is None else (item,)))
    except BaseException:
        where = f"rank {communicator.Get_rank()} of {communicator.Get_size()}, {function.__name__} of {item}:"
        # A file, since the launcher may end before it passes on what its ranks wrote last.
        with (Path(folder) / "failure").open("a", encoding="utf-8") as stream:
            stream.write(f"{where}\n{traceback.format_exc()}\n")
        everyone.Abort(1)


def _wait(communicator):
    """Wait for all ranks without turning round: the others need the cores."""
    done = communicator.Ibarrier()
    while not done.Test():
        time.sleep(0.002)


if __name__ == "__main__":
    _run(sys.argv[1], sys.argv[2:])
