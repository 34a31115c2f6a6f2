# SPDX-License-Identifier: BSD-3-Clause
"""A flag is True or False: "no" is not taken for yes."""

import inspect

import numpy as np
import pytest

import particlemesh as pm

X = np.random.default_rng(2).random((20, 3))
BOX = (1.0, 1.0, 1.0)
MESH = pm.Mesh((4, 4, 4), BOX)
OUT = np.zeros(MESH.shape)


def plan():
    made = pm.Plan(MESH, "cic")
    made.set_positions(X)
    return made


def integers(**options):
    made, values = plan(), np.ones(20)
    return made.spread_integers(values, made.bounds(values), out=np.zeros(MESH.shape, np.int64), **options)


def grid(**options):
    return pm.UniformGrid(BOX, shape=(4, 4, 4), **options).build(X)


CALLS = {
    ("Plan", "deterministic"): lambda f: pm.Plan(MESH, "cic", deterministic=f),
    ("Plan.set_positions", "check"): lambda f: plan().set_positions(X, check=f),
    ("Plan.lost", "outside"): lambda f: plan().lost(np.ones(20), outside=f),
    ("Plan.spread", "accumulate"): lambda f: plan().spread(np.ones(20), out=OUT, accumulate=f),
    ("Plan.spread_gradient", "accumulate"): lambda f: plan().spread_gradient(X, out=OUT, accumulate=f),
    ("Plan.spread_hessian", "accumulate"): lambda f: plan().spread_hessian(np.ones((20, 3, 3)), out=OUT, accumulate=f),
    ("Plan.spread_integers", "accumulate"): lambda f: integers(accumulate=f),
    ("UniformGrid", "deterministic"): lambda f: grid(deterministic=f),
    ("UniformGrid", "queries"): lambda f: grid(queries=f),
    ("UniformGrid", "grow"): lambda f: grid(method="fixed", capacity=20, grow=f),
    ("UniformGrid.build", "check"): lambda f: grid().build(X, check=f),
    ("UniformGrid.build_keys", "check"): lambda f: grid().build_keys(np.arange(4), 4, check=f),
    ("UniformGrid.pairs", "half"): lambda f: grid().pairs(0.1, half=f),
    ("UniformGrid.pairs", "check"): lambda f: grid().pairs(0.1, check=f, capacity=4000),
    ("UniformGrid.count", "check"): lambda f: grid().count(0.1, check=f),
    ("neighbour_list", "half"): lambda f: pm.neighbour_list("ij", X, BOX, 0.1, half=f),
    ("Mesh.nodes", "ghosts"): lambda f: MESH.nodes(0, ghosts=f),
    ("Mesh.wavenumbers", "real"): lambda f: MESH.wavenumbers(real=f),
    ("Mesh.compensation", "real"): lambda f: MESH.compensation("cic", real=f),
    ("spread", "deterministic"): lambda f: pm.spread(X, np.ones(20), MESH, deterministic=f),
}


@pytest.mark.parametrize("call", CALLS, ids=".".join)
def test_what_is_neither_true_nor_false_is_refused(call):
    for bad in ("no", "yes", "", None, 0, 1, 1.0, [], [True], np.array([True]), np.int64(1)):
        with pytest.raises(TypeError, match=rf"{call[1]} is .*; give True or False"):
            CALLS[call](bad)
    for good in (True, False, np.True_, np.False_):
        CALLS[call](good)


def test_no_flag_of_a_public_call_is_forgotten():
    calls = {"neighbour_list": pm.neighbour_list, "spread": pm.spread}
    for kind in (pm.Plan, pm.UniformGrid, pm.Mesh, pm.Box):
        calls[kind.__name__] = kind
        calls |= {f"{kind.__name__}.{n}": f for n, f in inspect.getmembers(kind, callable) if not n.startswith("_")}
    flags = {
        (name, parameter.name)
        for name, call in calls.items()
        for parameter in inspect.signature(call).parameters.values()
        if parameter.annotation == "bool" and parameter.kind is parameter.KEYWORD_ONLY
    }
    assert len(flags) > 10
    assert flags <= set(CALLS), flags - set(CALLS)
