# SPDX-License-Identifier: BSD-3-Clause
"""Which of many like tests run where each compiles kernels with PoCL."""

import bisect
import collections
import zlib


def thinned(items):
    """Return what runs and what does not of tests with many cases, where PoCL compiles each.

    From 2 cases on one of two runs, from 4 on of three, from 8 on of four, from 16 on of five: for each method one of
    every so many that follow each other, so that no method is left out by chance. Of a method with twice as many cases
    half as many run. Tests that thin themselves are `whole`. Tests marked `turns(n)` also compile, or start processes:
    of their cases, on whatever backend, one of every n runs.
    """
    many = collections.Counter((item.path, item.originalname) for item in items if on_opencl(item))
    of_method = collections.Counter(
        (item.path, item.originalname, method_of(item)) for item in items if on_opencl(item)
    )
    before, kept, left = collections.Counter(), [], []
    for item in items:
        test, turns = (item.path, item.originalname), item.get_closest_marker("turns")
        share, method = 1, ""
        if turns is not None:
            (share,) = turns.args
        elif on_opencl(item) and not item.get_closest_marker("whole"):
            method = method_of(item)
            share = 1 + bisect.bisect((2, 4, 8, 16), many[test])
            share *= 1 + (method != "" and of_method[*test, method] >= 2 * share)
        turn, place = divmod(before[test, method], share)
        runs = place == zlib.crc32(f"{item.originalname} {method} {turn}".encode()) % share
        before[test, method] += 1
        (kept if runs else left).append(item)
    return kept, left


def method_of(item):
    parameters = item.callspec.params
    return str(parameters.get("law") or getattr(parameters.get("row"), "method", ""))


def on_opencl(item):
    return hasattr(item, "callspec") and item.callspec.params.get("backend") == "opencl"
