# SPDX-License-Identifier: BSD-3-Clause
"""Attributes are obeyed or refused: nothing that a user sets on an object is ignored."""

import copy
import importlib
import inspect
import pickle

import numpy as np
import pytest

import particlemesh as pm
import public_calls
from particlemesh import distributed, fourier
from particlemesh.adapters.ase import NeighborList, PrimitiveNeighborList
from particlemesh.adapters.scipy import KDTree
from particlemesh.adapters.sklearn import NearestNeighbors
from particlemesh.apps import brownian, dem, files, pme
from particlemesh.apps.mri import OffResonance
from particlemesh.grid.builders import METHODS as BUILDERS
from particlemesh.kernels import Fixed, backend

MESH = pm.Mesh((8, 6), (1.0, 2.0))
X = np.random.default_rng(0).random((20, 2))
WORLD = distributed.World()
CUBE, INSIDE = (8.0, 8.0, 8.0), 8 * np.random.default_rng(1).random((6, 3))
FLOOR = dem.Plane((0, 0, 0), (0, 0, 1))
PACKAGES = (
    "particlemesh", "particlemesh.fourier", "particlemesh.distributed",
    "particlemesh.apps.nufft", "particlemesh.apps.mri", "particlemesh.apps.pme", "particlemesh.apps.brownian",
    "particlemesh.apps.dem", "particlemesh.apps.files",
)  # fmt: skip


def brownian_dynamics(**changes):
    given = dict(positions=INSIDE, mobility=brownian.Drag(), temperature=1.0, time_step=0.1, seed=1)
    return brownian.BrownianDynamics(**given | changes)


def granular(**changes):
    rng = np.random.default_rng(2)
    given = dict(
        positions=np.array([[1.0, 1.0, 0.99], [2.95, 1.0, 1.0], [4.9, 1.0, 1.0]]), radii=1.0, density=1.0,
        velocities=0.01 * rng.normal(size=(3, 3)), spins=0.1 * rng.normal(size=(3, 3)), walls=[FLOOR], gravity=1.0,
        contact=dem.Hertz(1e4, restitution=0.5, friction=0.4), time_step=1e-3, deterministic=True,
    )  # fmt: skip
    return dem.Simulation(**given | changes)


OBJECTS = {name.removeprefix("apps."): make for name, make in public_calls.OBJECTS.items()} | {
    "Plan, sorted": lambda: pm.Plan(MESH, order="sorted", options={"tiles": {}}).set_positions(X),
    "Window": lambda: pm.bspline(3),
    "Pairs": lambda: pm.UniformGrid((1.0, 2.0), cell_size=0.25).build(X).pairs(0.1),
    "Status": lambda: pm.Plan(MESH).set_positions(X).status,
    "PairFunction": lambda: pm.PairFunction("sum[0] += r2;", None, 1),
    "distributed.Domain": lambda: distributed.Domain(MESH, 1),
    "distributed.Part": lambda: distributed.Domain(MESH, 1).parts(0)[0],
    "distributed.Route": lambda: distributed.Route(WORLD, np.array([0, 0])),
    "distributed.World": lambda: WORLD,
    "distributed.Remap": lambda: distributed.Remap(distributed.Domain(MESH, 1), distributed.Domain(MESH, 1), WORLD),
    "Correlation": lambda: fourier.correlation_function(INSIDE, np.ones(6), pm.Mesh((8, 8, 8), CUBE)),
    "Spectrum": lambda: fourier.power_spectrum(INSIDE, np.ones(6), pm.Mesh((8, 8, 8), CUBE)),
    "ProlateGreen": lambda: fourier.ProlateGreen(12.0, 1.0),
    "Bands": lambda: fourier.Bands(backend("cpu"), (8,), (3,), None, "float64"),
    "FreeRPY": lambda: brownian.FreeRPY(np.ones(6)),
    "Drag": lambda: brownian.Drag(np.ones(6)),
    "WCA": lambda: brownian.WCA(CUBE, sigma=np.ones(6)),
    "HarmonicBonds": lambda: brownian.HarmonicBonds([[0, 1], [1, 2]], np.array([1.0, 2.0])),
    "Sum": lambda: brownian.Sum(brownian.WCA(CUBE)),
    "Contacts": lambda: granular().contacts,
    "Energy": lambda: granular().energy,
    "Hertz": lambda: dem.Hertz(1e3),
    "LinearSpring": lambda: dem.LinearSpring(1e3),
    "Plane": lambda: FLOOR,
    "Rectangle": lambda: dem.Rectangle((0, 0, 0), (1, 0, 0), (0, 1, 0)),
    "Disc": lambda: dem.Disc((0, 0, 0), (0, 0, 1), 1.0, hole=0.1),
    "Cylinder": lambda: dem.Cylinder((0, 0, 0), (0, 0, 1), 1.0, 1.0),
    "Cone": lambda: dem.Cone((0, 0, 0), (0, 0, 1), 1.0, 0.5, 1.0),
    "WallForces": lambda: granular().wall_forces,
    "KDTree": lambda: KDTree(X, boxsize=20.0),
    "NearestNeighbors": lambda: NearestNeighbors().fit(X),
    "NeighborList": lambda: NeighborList(np.ones(6)),
    "PrimitiveNeighborList": lambda: PrimitiveNeighborList(np.ones(6)),
    "mri.OffResonance": lambda: OffResonance(np.zeros((3, 1)), (2,), np.zeros(2), np.zeros(3)),
}
RESULTS = ("Pairs", "Status", "Contacts", "Energy", "WallForces", "Spectrum", "Correlation")  # the caller's own
# Plain records: functions read them when they are called, and nothing else does.
RECORDS = {
    pme.Result, pme.DipoleResult, pme.MultipoleResult, pme.InducedResult, pme.EquilibrationResult, files.Account,
    files.Chunk, files.Configuration, files.Field, files.Particles,
    files.Table,
}  # fmt: skip
# What can be set: the next call is that of an object constructed with the new value.
OBEYED = {
    "brownian.BrownianDynamics": (brownian_dynamics, {
        "temperature": 4.0, "time_step": 0.3, "seed": 7, "shear_rate": 0.5,
        "forces": [brownian.HarmonicBonds([[0, 1]], 2.0)],
    }),
    "dem.Simulation": (granular, {
        "gravity": (0.0, 1.0, -3.0), "time_step": 2e-3, "contact": dem.LinearSpring(2e4, restitution=0.9),
        "positions": np.array([[1.0, 1.0, 1.5], [2.9, 1.0, 0.98], [7.0, 1.0, 1.0]]),
        "velocities": np.full((3, 3), 0.02), "spins": np.full((3, 3), 0.5),
        "walls": [dem.Plane((0, 0, 0), (0, 0, 1), velocity=(0.3, 0, 0))],
    }),
}  # fmt: skip
# Obeyed by the next update: tests/adapters/test_ase.py.
OBEYED_LATER = {"PrimitiveNeighborList": {"bothways", "self_interaction"}}
APART = "distributed.Route", "distributed.World"  # other ranks know them, or they own memory

# The base class of mri-nufft has its attributes: their law is in tests/apps/mri/test_operator.py.
OTHERS = {"mri.MRIParticlemesh"}
each_object = pytest.mark.parametrize("name", [name for name in OBJECTS if name not in OTHERS])


def as_it_is(value):
    return value


def pickled(value):
    return pickle.loads(pickle.dumps(value))


WAYS = [as_it_is, copy.copy, copy.deepcopy, pickled]


def public(value):
    parameters = () if type(value).__init__ is object.__init__ else inspect.signature(type(value)).parameters
    return sorted({n for n in (*dir(value), *parameters) if n[0] != "_"})


def test_every_public_class_is_here():
    here = RECORDS | {type(make()) for make in OBJECTS.values()}
    missing = set()
    for name in PACKAGES:
        package = importlib.import_module(name)
        for member in package.__all__:
            cls = getattr(package, member)
            if inspect.isclass(cls) and not issubclass(cls, BaseException) and cls not in here:
                missing.add(f"{name}.{member}")
    assert not missing


def running(value):
    """Make three steps and return the state."""
    value.run(3)
    return [np.array(getattr(value, x)) for x in ("positions", "velocities", "spins", "time") if hasattr(value, x)]


@pytest.mark.parametrize(("name", "attribute"), [(name, x) for name, (_, new) in OBEYED.items() for x in new])
def test_what_is_set_is_obeyed_and_kept(name, attribute, tmp_path):
    make, changes = OBEYED[name]
    new = changes[attribute]
    anew, value, before = make(**{attribute: new}), make(), running(make())
    setattr(value, attribute, new)
    value.save(tmp_path / "state.h5")
    loaded, copied = type(value).load(tmp_path / "state.h5"), copy.deepcopy(value)
    expected = running(anew)
    assert any((was != now).any() for was, now in zip(before, expected, strict=True))
    for other in (value, loaded, copied):
        for actual, right in zip(running(other), expected, strict=True):
            np.testing.assert_array_equal(actual, right)


@each_object
def test_no_public_attribute_can_be_set_and_ignored(name):
    value = OBJECTS[name]()
    settable = {n for n in public(value) if getattr(getattr(type(value), n, None), "fset", None)}
    one = name.replace("Distributed", "")  # over ranks the same can be set
    assert settable == set(OBEYED.get(one, (None, ()))[1]) | OBEYED_LATER.get(name, set())
    for attribute in {*public(value), "no_such_attribute"} - settable:
        with pytest.raises((AttributeError, TypeError)):  # also TypeError: frozen classes with slots, Python 3.11
            setattr(value, attribute, 1)


@pytest.mark.parametrize("name", [name for name in OBJECTS if name not in {*OTHERS, *RESULTS}])
def test_what_attributes_hold_cannot_be_changed_in_place(name):
    """Results, which belong to the caller, can."""
    for way in WAYS:
        check_attributes(name, way)


def check_attributes(name, way):
    value = OBJECTS[name]()
    if name in APART or (hasattr(value, "busy") and type(value).__reduce__ is object.__reduce__):
        if way is not as_it_is:
            with pytest.raises(TypeError, match=f"{type(value).__name__} cannot be copied .*: make another"):
                way(value)
            return
    elif name == "distributed.Remap" and way in (copy.deepcopy, pickled):
        with pytest.raises(TypeError, match="a World cannot be copied or pickled"):
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


class Own(pm.Plan):
    """A user's class: it counts what it did."""

    calls = 0

    def __init__(self, mesh):
        super().__init__(mesh, "cic")
        self.label = "a"

    def count(self):
        self.calls += 1
        self.label += "b"


def test_a_subclass_has_attributes_of_its_own():
    plan = Own(pm.Mesh(4, 1.0))
    plan.count()
    plan.later = 1
    assert (plan.calls, plan.label, plan.later) == (1, "ab", 1)
    for name in ("mesh", "threads", "spread"):
        with pytest.raises(AttributeError, match=rf"Own\.{name} is read-only"):
            setattr(plan, name, None)


@pytest.mark.parametrize("kind", [pm.Plan, Own])
def test_an_attribute_is_not_deleted(kind):
    plan = kind(pm.Mesh(4, 1.0))
    with pytest.raises(AttributeError, match=r"mesh is read-only"):
        del plan.mesh
    assert plan.mesh.shape == (4,)


# ---- memory that the library reads as indices is shown and not lent: written, it would end the process ----

MANY, UNIT = np.random.default_rng(5).random((300, 3)), (1.0, 1.0, 1.0)


def test_the_order_of_a_plan_cannot_be_written():
    mesh = pm.Mesh((8, 8, 8), UNIT)
    with pm.Plan(mesh, "bspline4", order="sorted") as plan:
        for count in (300, 200, 0, 300):
            x = MANY[:count]
            plan.set_positions(x)
            order = plan.order
            assert not order.flags.writeable
            with pytest.raises(ValueError, match="read-only"):
                order[...] = -(2**30)
            np.testing.assert_array_equal(np.sort(order), np.arange(count))
            field = plan.spread(np.ones(count)[order])
            np.testing.assert_allclose(field, pm.spread(x, np.ones(count), mesh), atol=1e-13)
        plan.reserve(1000)
        assert not plan.order.flags.writeable
        plan.set_positions(MANY[::-1])
        assert not plan.order.flags.writeable


@pytest.mark.parametrize("method", [m.name for m in BUILDERS if "cpu" in m.backends])
def test_the_storage_of_a_grid_cannot_be_written(method):
    radii = np.full(300, 0.02) if method == "linked_list_tight" else None
    with pm.UniformGrid(UNIT, shape=(8, 8, 8), method=method) as grid:
        grid.build(MANY, radii)
        expected = grid.pairs(0.1).j, grid.count(0.1)
        arrays = [a for a in grid.storage if isinstance(a, np.ndarray)]
        assert arrays
        for array in arrays:
            assert not array.flags.writeable
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
        for name in ("cell_start", "order", "rank", "positions"):  # read-only, or copies
            shown = getattr(grid, name)
            if shown.flags.writeable:
                shown[...] = -(2**30)
        np.testing.assert_array_equal(grid.pairs(0.1).j, expected[0])
        np.testing.assert_array_equal(grid.count(0.1), expected[1])
        assert np.array_equal(np.sort(grid.order), np.arange(300))
        grid.build(MANY[::-1].copy(), radii)  # whose memory may be that of the storage
        np.testing.assert_array_equal(grid.count(0.1), expected[1][::-1])


def test_tensors_of_an_order_and_a_storage_are_copies():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    mesh = pm.Mesh((8, 8, 8), UNIT)
    with pm.Plan(mesh, "bspline4", order="sorted") as plan:
        plan.set_positions(torch.tensor(MANY))
        field = plan.spread(torch.ones(300, dtype=torch.float64))
        plan.order[:] = -(2**30)
        np.testing.assert_array_equal(plan.spread(torch.ones(300, dtype=torch.float64)), field)
    with pm.UniformGrid(UNIT, shape=(8, 8, 8), method="scan") as grid:
        grid.build(torch.tensor(MANY))
        expected = grid.count(0.1)
        for array in grid.storage:
            if isinstance(array, torch.Tensor):
                array[...] = -(2**30)
        assert torch.equal(grid.count(0.1), expected)
