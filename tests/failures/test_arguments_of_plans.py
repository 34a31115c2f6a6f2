# SPDX-License-Identifier: BSD-3-Clause
"""Errors that a plan or a grid can raise when it is made, and not at its first call."""

import pytest

import particlemesh as pm
from devices import METHODS
from particlemesh import backends
from particlemesh.choosing.candidates import MethodNotSuitable
from particlemesh.grid.builders import METHODS as BUILDERS

MESH = pm.Mesh((8, 8, 8), (1.0, 1.0, 1.0))
KEYWORDS = {"spread": "method", "interpolate": "interpolation"}
AWAY = [(d, m, name) for d, ms in METHODS.items() for m in ms for name in backends.NAMES if name not in m.backends]


@pytest.mark.parametrize(("direction", "method", "name"), AWAY, ids=str)
def test_a_method_that_never_runs_on_the_named_backend_is_refused_at_once(direction, method, name):
    able = ", ".join(m.name for m in METHODS[direction] if name in m.backends)
    message = (
        f"{KEYWORDS[direction]} {method.name!r} runs on .+, not on backend {name!r}; choose 'auto' or one of {able}"
    )
    with pytest.raises(MethodNotSuitable, match=message):  # whether or not there is such a device
        pm.Plan(MESH, "cic", backend=name, **{KEYWORDS[direction]: method.name})


@pytest.mark.parametrize("name", backends.NAMES)
def test_a_builder_that_never_runs_on_the_named_backend_is_refused_at_once(name):
    for builder in BUILDERS:
        if name not in builder.backends:
            with pytest.raises(MethodNotSuitable, match=f"method {builder.name!r} runs on .+, not on backend {name!r}"):
                pm.UniformGrid((1.0, 1.0, 1.0), shape=(4, 4, 4), method=builder.name, backend=name)


def test_a_backend_that_does_not_exist_is_named_before_the_method():
    with pytest.raises(ValueError, match="backend 'gpu' is unknown"):
        pm.Plan(MESH, "cic", backend="gpu", method="walk")


@pytest.mark.parametrize("keyword", ["thread", "Window", "reserve"])
def test_a_wrong_keyword_names_plan(keyword):
    with pytest.raises(TypeError, match=rf"^Plan\(\) got an unexpected keyword argument '{keyword}'"):
        pm.Plan(MESH, "cic", **{keyword: 1})


def test_a_missing_argument_names_plan():
    with pytest.raises(TypeError, match=r"^Plan\(\) missing 1 required positional argument: 'mesh'"):
        pm.Plan()
