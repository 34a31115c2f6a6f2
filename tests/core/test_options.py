# SPDX-License-Identifier: BSD-3-Clause
"""What users choose: checked when a plan or grid is made, described in words, kept by copies."""

import pickle

import numpy as np
import pytest

import particlemesh as pm
from devices import METHODS, laws
from particlemesh import backends
from particlemesh.grid.builders import METHODS as BUILDERS
from particlemesh.methods.contract import Option

MESH = pm.Mesh((8, 8), (1.0, 1.0))


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (3, TypeError, "give a dict by method"),
        ({"line_mesh": 3}, TypeError, "give a dict by method"),
        ({"spam": {}}, ValueError, "'spam', which is unknown; methods are particle, "),
        ({"particle": {"spam": 1}}, ValueError, "'particle' has no option 'spam'; it has none"),
        ({"line_mesh": {"spam": 1}}, ValueError, "'line_mesh' has no option 'spam'; it has lanes_per_cell"),
        ({"line_mesh": {"lanes_per_cell": 3}}, ValueError, "is 3; give one of None, 1, 2, 4, 8, 16, 32"),
        ({"line_mesh": {"lanes_per_cell": True}}, ValueError, "is True; give one of"),
        ({"line_mesh": {"lanes_per_cell": 4.0}}, ValueError, "is 4.0; give one of"),
    ],
)
def test_what_is_not_allowed_is_reported(given, error, words):
    with pytest.raises(error, match=words):
        pm.Plan(MESH, "cic", options=given)


def test_options_are_copied_and_pickled():
    given = {"line_mesh": {"lanes_per_cell": 4}}
    plan = pm.Plan(MESH, "cic", options=given)
    given["line_mesh"]["lanes_per_cell"] = 5
    for one in (plan, pickle.loads(pickle.dumps(plan))):
        assert one.options == {"line_mesh": {"lanes_per_cell": 4}}


@pytest.mark.parametrize(
    ("option", "good", "bad"),
    [
        (Option(None, (1, 2), ""), [None, 1, 2], [0, 3, 1.0, True, "1"]),
        (Option("a", ("a", "b"), ""), ["a", "b"], ["c", None]),
        (Option(None, range(3, 10), ""), [None, 3, 9, np.int32(4)], [2, 10, 3.0, True, "3"]),
        (Option(None, tuple, ""), [None, (1,), (4, 4, 32)], [(), (0, 1), [1, 2], (1.0,), 3]),
    ],
)
def test_an_option_knows_what_suits(option, good, bad):
    assert all(option.suits(value) for value in good)
    assert not any(option.suits(value) for value in bad)


def test_every_option_has_words_and_suits_itself():
    described = 0
    for law in laws():
        for name, option in law.method.options.items():
            assert option.suits(option.default), (law, name)
            assert option.words, (law, name)
            assert not option.words.endswith("."), (law, name)
            assert option.allowed_words(), (law, name)
            described += 1
    assert described > 0
    # one name, one table: what a method of both directions has in both is the same
    by_name = {}
    for methods in METHODS.values():
        for method in methods:
            known = by_name.setdefault(method.name, {})
            assert all(known.setdefault(name, option) == option for name, option in method.options.items())


def test_options_reach_the_method(backend):
    if backend.name == "cpu":
        pytest.skip("line_mesh runs on GPUs")
    x = np.random.default_rng(5).random((20, 2))
    fields = []
    for lanes in (1, 32):
        plan = pm.Plan(MESH, "cic", method="line_mesh", options={"line_mesh": {"lanes_per_cell": lanes}})
        plan.set_positions(backend.array(x))
        fields.append(backend.host(plan.spread(backend.array(np.ones(20)))))
        assert plan.methods.known["spread"].lanes(plan.workspace) == lanes
    np.testing.assert_allclose(*fields, rtol=1e-14)


def test_numpy_integers_become_pythons():
    given = {"hybrid_mesh": {"width": np.uint8(200)}, "domain_copies": {"block": (np.int16(4), 4)}}
    chosen = pm.Plan(MESH, "cic", options={**given, "single_mesh": {"threads_per_row": np.int64(8)}}).options
    assert chosen == {**given, "single_mesh": {"threads_per_row": 8}}
    assert type(chosen["hybrid_mesh"]["width"]) is type(chosen["domain_copies"]["block"][0]) is int


KEYWORDS = {"spread": "method", "interpolate": "interpolation"}
AWAY = [(d, m, name) for d, ms in METHODS.items() for m in ms for name in backends.NAMES if name not in m.backends]


@pytest.mark.parametrize(("direction", "method", "name"), AWAY, ids=str)
def test_a_method_that_never_runs_on_the_named_backend_is_refused_at_once(direction, method, name):
    able = ", ".join(m.name for m in METHODS[direction] if name in m.backends)
    message = (
        f"{KEYWORDS[direction]} {method.name!r} runs on .+, not on backend {name!r}; choose 'auto' or one of {able}"
    )
    with pytest.raises(pm.MethodNotSuitable, match=message):  # whether or not there is such a device
        pm.Plan(MESH, "cic", backend=name, **{KEYWORDS[direction]: method.name})


@pytest.mark.parametrize("name", backends.NAMES)
def test_a_builder_that_never_runs_on_the_named_backend_is_refused_at_once(name):
    for builder in BUILDERS:
        if name not in builder.backends:
            with pytest.raises(
                pm.MethodNotSuitable, match=f"method {builder.name!r} runs on .+, not on backend {name!r}"
            ):
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
