# SPDX-License-Identifier: BSD-3-Clause
"""Attributes are obeyed or refused: nothing that a user sets on an object is ignored."""

import copy
import inspect
import pickle

import numpy as np
import pytest

import particlemesh as pm
from particlemesh import distributed
from particlemesh.kernels import Fixed

MESH = pm.Mesh((8, 6), (1.0, 2.0))
X = np.random.default_rng(0).random((20, 2))
WORLD = distributed.World()
OBJECTS = {
    "Plan": lambda: pm.Plan(MESH, "tsc", options={"tiles": {}}).set_positions(X),
    "Plan, sorted": lambda: pm.Plan(MESH, order="sorted").set_positions(X),
    "UniformGrid": lambda: pm.UniformGrid((1.0, 2.0), cell_size=0.25).build(X),
    "Mesh": lambda: MESH,
    "Box": lambda: MESH.box,
    "Window": lambda: pm.bspline(3),
    "Pairs": lambda: pm.UniformGrid((1.0, 2.0), cell_size=0.25).build(X).pairs(0.1),
    "Status": lambda: pm.Plan(MESH).set_positions(X).status,
    "PairFunction": lambda: pm.PairFunction("sum[0] += r2;", None, 1),
    "distributed.Plan": lambda: distributed.Plan(distributed.Domain(MESH, 1)).set_positions(X),
    "distributed.UniformGrid": lambda: distributed.UniformGrid(distributed.Domain(MESH, 1), WORLD, 0.1).build(X),
    "distributed.FFT": lambda: distributed.FFT(distributed.Domain(MESH, 1), WORLD),
    "distributed.Domain": lambda: distributed.Domain(MESH, 1),
    "distributed.Part": lambda: distributed.Domain(MESH, 1).parts(0)[0],
    "distributed.Route": lambda: distributed.Route(WORLD, np.array([0, 0])),
    "distributed.World": lambda: WORLD,
}
APART = "distributed.Route", "distributed.World"  # other ranks know them


def as_it_is(value):
    return value


def pickled(value):
    return pickle.loads(pickle.dumps(value))


WAYS = [as_it_is, copy.copy, copy.deepcopy, pickled]


def public(value):
    parameters = () if type(value).__init__ is object.__init__ else inspect.signature(type(value)).parameters
    return sorted({n for n in (*dir(value), *parameters) if n[0] != "_"})


@pytest.mark.parametrize("name", OBJECTS)
def test_no_public_attribute_can_be_set_and_ignored(name):
    value = OBJECTS[name]()
    for attribute in (*public(value), "no_such_attribute"):
        with pytest.raises((AttributeError, TypeError)):  # also TypeError: frozen classes with slots, Python 3.11
            setattr(value, attribute, 1)


@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.parametrize("way", WAYS)
def test_what_attributes_hold_cannot_be_changed_in_place(name, way):
    """Results, which belong to the caller, can."""
    if name in ("Pairs", "Status"):
        pytest.skip("the caller's own")
    value = OBJECTS[name]()
    if name in APART or (hasattr(value, "busy") and type(value).__reduce__ is object.__reduce__):
        if way is not as_it_is:
            with pytest.raises(TypeError, match=f"{type(value).__name__} cannot be copied .*: make another"):
                way(value)
            return
    else:
        value = way(value)
    for attribute in public(value):
        try:
            held = getattr(value, attribute)
        except (RuntimeError, ValueError, TypeError, AttributeError):
            continue  # it needs positions, or other arguments
        assert not (isinstance(held, np.ndarray) and held.flags.writeable and getattr(value, attribute) is held), (
            attribute
        )
        assert not isinstance(held, (list, dict, set)) or getattr(value, attribute) is not held, attribute


class Ramped(Fixed):
    def __init__(self, start, table):
        self.start, self.table, self._level = start, table, start

    @property
    def level(self):
        return self._level

    @level.setter
    def level(self, value):
        self._level = value


class Wider(Ramped):
    def __init__(self, width):
        super().__init__(0, np.zeros(2))
        self.width = width


@pytest.mark.parametrize("way", WAYS)
def test_setters_are_obeyed_and_the_message_names_them(way):
    for value in (way(Ramped(1, np.arange(3.0))), way(Wider(2))):
        value.level = 5
        assert value.level == 5
        with pytest.raises(AttributeError, match=r"start is read-only.*You can set level"):
            value.start = 2
        with pytest.raises(AttributeError, match="no attribute 'lvel'. You can set level"):
            value.lvel = 2
        with pytest.raises(ValueError, match="read-only"):
            value.table[0] = 1


def test_an_array_of_the_caller_stays_writable():
    table = np.zeros(3)
    Ramped(1, table)
    table[0] = 1
