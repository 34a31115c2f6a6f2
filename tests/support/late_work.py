# SPDX-License-Identifier: BSD-3-Clause
"""A plan and arrays that belong to a stream or queue of their own."""

import numpy as np

import oracle
import particlemesh as pm

MESH = pm.Mesh((8, 9, 10), (1.0, 1.0, 1.0))
X = np.random.default_rng(1).random((200, 3))
Q = np.random.default_rng(2).normal(size=(2, 200))
FIELDS = oracle.spread(MESH, pm.bspline(3), X, Q)


def plan_on(backend, stream, method="auto"):
    """A plan whose positions were set on ``stream``."""
    plan = pm.Plan(MESH, "bspline3", method=method)
    with backend.on(stream):
        plan.set_positions(here(backend, X, stream))
    return plan


def here(backend, host, stream):
    """An array that belongs to ``stream``."""
    with backend.on(stream):
        array = backend.array(host)
        backend.wait()
    return array.with_queue(stream) if backend.name == "opencl" else array


def wait(backend, *streams):
    for stream in streams:
        stream.finish() if backend.name == "opencl" else stream.synchronize()
