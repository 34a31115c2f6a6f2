# SPDX-License-Identifier: BSD-3-Clause
"""Which of many like tests run where each compiles kernels with PoCL.

    python tests/support/thinning.py junit.xml

writes how long a case of each test takes, from a report by ``pytest --junitxml``.
"""

import bisect
import collections
import csv
import math
import sys
import xml.etree.ElementTree
import zlib
from pathlib import Path

COSTS = Path(__file__).with_name("costs.csv")
SHORT, ENOUGH = 0.04, 0.5  # seconds: of a case not worth a row, and of all cases of a test
MOST = 6  # at least a sixth of the cases of a long test run


def thinned(items, costs=None):
    """Return what runs and what does not of tests with many cases, where PoCL compiles each.

    From 2 cases on one of two runs, from 4 on of three, from 8 on of four, from 16 on of five: for each method one of
    every so many that follow each other, so that no method is left out by chance. Of a method with twice as many cases
    half as many run. Tests that thin themselves are `whole`. Tests marked `turns(n)` also compile, or start processes:
    of their cases, on whatever backend, one of every n runs.

    Of what is left of a test whose cases take more than `ENOUGH` seconds together, by ``costs``, one of two to six
    runs: on each backend and by each library at least one of each method.
    """
    costs = read() if costs is None else costs
    many = collections.Counter(kind(item)[:2] for item in items if on_opencl(item))
    kinds = [kind(item) for item in items]
    of = collections.Counter([*kinds, *(k[:2] for k in kinds), *((*k[:2], k[4]) for k in kinds)])
    before, kept, left = collections.Counter(), [], []
    for item in items:
        group, turns, share = kind(item), item.get_closest_marker("turns"), 1
        test, method = group[:2], group[3]
        if turns is not None:
            (share,), group, method = turns.args, (*test, group[4]), ""
        if not item.get_closest_marker("whole"):
            if turns is None and on_opencl(item):
                share = 1 + bisect.bisect((2, 4, 8, 16), many[test])
                share *= 1 + (method != "" and of[group] >= 2 * share)
            seconds = costs.get((Path(test[0]).stem, test[1]), 0) * of[test] / share
            share = max(share, min(share * min(MOST, math.ceil(seconds / ENOUGH)), of[group]))
        turn, place = divmod(before[group], share)
        runs = place == zlib.crc32(f"{item.originalname} {method} {turn}".encode()) % share
        before[group] += 1
        (kept if runs else left).append(item)
    return kept, left


def kind(item):
    """Return the file and the name of a test, and the backend, the method and the library of one of its cases.

    A library that is not installed skips its cases, which are to leave out no other's.
    """
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    method = str(parameters.get("law") or getattr(parameters.get("row"), "method", ""))
    return item.path, item.originalname, str(parameters.get("backend")), method, str(parameters.get("library"))


def read():
    """Return the seconds of a case by the file's and the test's name."""
    with COSTS.open(encoding="utf-8") as file:
        return {(file_, test): float(seconds) for file_, test, seconds in list(csv.reader(file))[1:]}


def write(report):
    """Write `COSTS` from a report of pytest; tests of a single case are left out, since they cannot be thinned."""
    times = collections.defaultdict(list)
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        files = [part for part in case.get("classname").split(".") if part.startswith("test_")]
        if files and "[" in case.get("name"):
            times[files[-1], case.get("name").partition("[")[0]].append(float(case.get("time")))
    means = {test: sum(seconds) / len(seconds) for test, seconds in times.items()}
    with COSTS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("file", "test", "seconds"))
        writer.writerows((*test, f"{mean:.2g}") for test, mean in sorted(means.items()) if mean >= SHORT)


def on_opencl(item):
    return hasattr(item, "callspec") and item.callspec.params.get("backend") == "opencl"


if __name__ == "__main__":
    write(sys.argv[1])
