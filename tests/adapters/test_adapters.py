# SPDX-License-Identifier: BSD-3-Clause
"""Objects of pandas, xarray, ASE and MDAnalysis: what comes in, what goes out, what is refused."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import particlemesh as pm
from particlemesh import adapters
from particlemesh.adapters import ase as of_ase
from particlemesh.adapters import mdanalysis as of_mdanalysis
from particlemesh.adapters import pandas as of_pandas
from particlemesh.adapters import xarray as of_xarray

TRICLINIC = np.array([[4.0, 0.0, 0.0], [1.0, 4.0, 0.0], [0.5, -0.5, 5.0]])


def needed(name):
    return pytest.importorskip(name, reason=f"{name} is not installed")


def test_no_library_is_imported_before_it_is_used():
    names = [file.stem for file in Path(adapters.__file__).parent.glob("[!_]*.py")]
    libraries = {"ase", "MDAnalysis", "pandas", "xarray", "torch", "jax", "sklearn", "torch_sim", "jax_md"}
    libraries |= {"matscipy", "vesin", "pymatgen", "freud"}
    modules = ", ".join(f"particlemesh.adapters.{name}" for name in names)
    code = f"import sys, {modules}; sys.exit(bool({libraries} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_missing_library_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(ImportError, match="a DataArray needs xarray: pip install xarray"):
        of_xarray.to_xarray(pm.Mesh(4, 1.0), np.zeros(4))


# ---- xarray -------------------------------------------------------------------------------------------------

MESHES = [
    pm.Mesh(5, 2.0, origin=-1.0),
    pm.Mesh((3, 4), (1.5, 2.0), periodic=(False, True), offset=(0, 0.25)),
    pm.Mesh((2, 3, 4), pm.Box(TRICLINIC, origin=(1.0, 2.0, 3.0), periodic=(True, False, True)), offset=(0, 0.5, 0)),
]


@pytest.mark.parametrize("mesh", MESHES, ids=lambda mesh: f"{mesh.ndim}d")
def test_a_field_and_its_mesh_come_back_from_xarray(mesh):
    xarray = needed("xarray")
    field = np.random.default_rng(1).normal(size=(2, *mesh.shape))
    array = of_xarray.to_xarray(mesh, field, name="rho", units="e/nm³", length_units="nm", dims=["species"])
    assert array.name == "rho" and array.attrs["units"] == "e/nm³" and array.dims[0] == "species"
    for axis, dim in enumerate(array.dims[1:]):
        np.testing.assert_array_equal(array[dim], mesh.nodes(axis))
        assert array[dim].attrs == {"units": "nm", "periodic": int(mesh.periodic[axis])}
    assert np.shares_memory(array.data, field)
    assert array.identical(
        pm.Plan(mesh).to_xarray(field, name="rho", units="e/nm³", length_units="nm", dims=["species"])
    )
    turned = array.transpose(*reversed(array.dims)).transpose("species", ...)
    for given in (array, turned, xarray.DataArray.from_dict(turned.to_dict())):
        again, back = of_xarray.from_xarray(given)
        assert again == mesh
        np.testing.assert_array_equal(back, field)


def test_ghosts_and_parts_have_the_coordinates_of_their_nodes():
    needed("xarray")
    mesh = pm.Mesh(4, 1.0, ghosts=1)
    array = of_xarray.to_xarray(mesh, np.zeros(6))
    np.testing.assert_array_equal(array.x, mesh.nodes(0, ghosts=True))
    assert "mesh_box" not in array.attrs and "mesh_box" in of_xarray.to_xarray(mesh, np.zeros(4)).attrs
    part = pm.Mesh(8, 2.0).part(2, 5)
    np.testing.assert_array_equal(of_xarray.to_xarray(part, np.zeros(3)).x, part.nodes(0))


def test_coordinates_of_other_programs_make_an_open_mesh():
    xarray = needed("xarray")
    x, y = np.linspace(0.5, 3.5, 4), np.array([1.0, 1.5, 2.0])
    mesh, field = of_xarray.from_xarray(xarray.DataArray(np.arange(12.0).reshape(3, 4), {"y": y, "x": x}))
    assert mesh.shape == (4, 3) and mesh.periodic == (False, False) and field.shape == (4, 3)
    np.testing.assert_allclose(mesh.nodes(0), x)
    np.testing.assert_allclose(mesh.nodes(1), y)
    uneven = xarray.DataArray(np.zeros(3), {"x": [0.0, 1.0, 3.0]})
    with pytest.raises(ValueError, match="coordinate 'x' is not .* ascend in equal steps"):
        of_xarray.from_xarray(uneven)
    with pytest.raises(ValueError, match="one to three axes with coordinates"):
        of_xarray.from_xarray(xarray.DataArray(np.zeros(3)))
    with pytest.raises(ValueError, match="coordinate 'y' is not"):
        of_xarray.from_xarray(xarray.DataArray(np.zeros((2, 3)), {"x": [0.0, 1.0]}, ("x", "y")))


def test_coordinates_in_single_precision_are_even_to_their_rounding():
    xarray = needed("xarray")
    x = (1000 + 0.1 * np.arange(50)).astype(np.float32)  # steps differ by 6e-4 of a step
    mesh, _ = of_xarray.from_xarray(xarray.DataArray(np.zeros(50), {"x": x}))
    assert mesh.nodes(0).dtype == np.float64
    np.testing.assert_allclose(mesh.nodes(0), x, rtol=0, atol=2e-4)
    np.testing.assert_allclose(mesh.spacing, 0.1, rtol=1e-4)
    shifted = pm.Mesh(7, 0.7, origin=-0.3)  # node 3 is near 0
    array = of_xarray.to_xarray(shifted, np.zeros(7))
    again, _ = of_xarray.from_xarray(array.assign_coords(x=array.x.values.astype(np.float32)))
    assert again == shifted  # the attributes are exact
    with pytest.raises(ValueError, match="not those of the mesh in the attributes"):
        of_xarray.from_xarray(array.assign_coords(x=array.x.values + 1e-6))
    with pytest.raises(ValueError, match="coordinate 'x' is not of two or more numbers"):
        of_xarray.from_xarray(xarray.DataArray(np.zeros(3), {"x": np.float32([0, 1, 1.001])}))


def test_a_dataset_has_one_variable_or_its_variables_are_named():
    xarray = needed("xarray")
    mesh = pm.Mesh((3, 4), (1.0, 2.0))
    rho = of_xarray.to_xarray(mesh, np.arange(12.0).reshape(3, 4), name="rho")
    again, field = of_xarray.from_xarray(rho.to_dataset())
    assert again == mesh and field[2, 3] == 11
    with pytest.raises(
        ValueError, match=r"the Dataset has 2 variables \('rho', 'phi'\): give one of them, dataset\[name\]"
    ):
        of_xarray.from_xarray(xarray.Dataset({"rho": rho, "phi": 2 * rho}))
    with pytest.raises(ValueError, match=r"has 0 variables \(none\)"):
        of_xarray.from_xarray(xarray.Dataset())
    with pytest.raises(TypeError, match="the argument is of type ndarray; an xarray.DataArray or Dataset is needed"):
        of_xarray.from_xarray(np.zeros(3))


def test_what_does_not_fit_a_mesh_is_refused():
    needed("xarray")
    mesh = pm.Mesh((3, 4), (1.0, 1.0))
    with pytest.raises(ValueError, match=r"field has shape \(4, 3\); its last axes must be \(3, 4\)"):
        of_xarray.to_xarray(mesh, np.zeros((4, 3)))
    for dims in ([], ["x"], ["a", "b"]):
        if dims:
            with pytest.raises(ValueError, match="give 1 names of batch axes"):
                of_xarray.to_xarray(mesh, np.zeros((2, 3, 4)), dims=dims)
    array = of_xarray.to_xarray(mesh, np.zeros((3, 4)))
    with pytest.raises(ValueError, match="not those of the mesh in the attributes"):
        of_xarray.from_xarray(array.assign_coords(x=[0.0, 1.0, 2.0]))
    with pytest.raises(ValueError, match=r"the attributes describe a mesh \[3, 4\], not \(1, 4\)"):
        of_xarray.from_xarray(array.isel(x=[0]))  # a layer of nodes is no mesh of one
    array.attrs["mesh_offset"] = [0.0]
    with pytest.raises(ValueError, match="not those of a 2-D mesh"):
        of_xarray.from_xarray(array)


# ---- pandas -------------------------------------------------------------------------------------------------


def test_results_for_particles_have_the_index_of_their_frame():
    pandas = needed("pandas")
    x = np.random.default_rng(2).random((30, 3))
    frame = pandas.DataFrame(x, columns=["z", "x", "y"], index=[f"atom{n}" for n in range(30)])
    frame["element"] = "O"
    mesh = pm.Mesh((6, 5, 4), (1.0, 1.0, 1.0))
    field = np.random.default_rng(3).normal(size=mesh.shape)
    place = x[:, [1, 2, 0]]
    values = of_pandas.interpolate(field, frame, mesh, name="phi", window="tsc")
    assert values.name == "phi" and values.index.equals(frame.index)
    np.testing.assert_array_equal(values, pm.interpolate(field, place, mesh, window="tsc"))
    slopes = of_pandas.gradient(field, frame, mesh, window="tsc")
    assert list(slopes.columns) == ["x", "y", "z"] and slopes.index.equals(frame.index)
    np.testing.assert_array_equal(slopes, pm.gradient(field, place, mesh, window="tsc"))
    pairs = of_pandas.neighbour_list(frame, (1.0, 1.0, 1.0), 0.3, half=True)
    i, j, d = pm.neighbour_list("ijd", place, (1.0, 1.0, 1.0), 0.3, half=True)
    assert len(pairs) and list(pairs.i) == [f"atom{n}" for n in i] and list(pairs.j) == [f"atom{n}" for n in j]
    np.testing.assert_array_equal(pairs.d, d)
    np.testing.assert_array_equal(of_pandas.positions(frame, ["z", "x"]), x[:, :2])


@pytest.mark.parametrize("dtypes", ["Float64", "Float32", "Int64", "double[pyarrow]", "float[pyarrow]", "mixed"])
def test_columns_of_pandas_own_types_and_of_arrow(dtypes):
    pandas = needed("pandas")
    if "pyarrow" in dtypes:
        needed("pyarrow")
    numbers = np.array([[0, 2], [1, 3], [2, 0]])
    frame = pandas.DataFrame(numbers, columns=["x", "y"])
    frame = frame.astype({"x": "Float32", "y": float}) if dtypes == "mixed" else frame.astype(dtypes)
    real = {"Float32": np.float32, "float[pyarrow]": np.float32, "Int64": np.int64}.get(dtypes, np.float64)
    result = of_pandas.positions(frame)
    assert result.dtype == real
    np.testing.assert_array_equal(result, numbers)
    if dtypes != "Int64":  # values are reals
        mesh = pm.Mesh((4, 4), (4.0, 4.0))
        expected = pm.spread(numbers.astype(result.dtype), numbers[:, 0].astype(result.dtype), mesh)
        np.testing.assert_allclose(pm.spread(frame, frame.x, mesh), expected, atol=1e-6)


def test_missing_numbers_of_pandas_are_not_finite():
    pandas = needed("pandas")
    frame = pandas.DataFrame({"x": pandas.array([1, None, 2], dtype="Int64"), "y": [0.5, 0.5, 0.5]})
    result = of_pandas.positions(frame)
    assert result.dtype == np.float64 and np.isnan(result[1, 0]) and np.isfinite(result).sum() == 5
    with pytest.raises(ValueError, match="not finite of 3; the first is particle 1"):
        of_pandas.interpolate(np.zeros((4, 4)), frame, pm.Mesh((4, 4), (4.0, 4.0)))
    with pytest.raises(ValueError, match="not finite of 3; the first is particle 1"):
        pm.spread(frame.x, np.ones(3), pm.Mesh(4, 4.0))


def test_wrong_columns_are_named():
    pandas = needed("pandas")
    frame = pandas.DataFrame({"x": [0.5], "q": [1.0], "name": ["ion"]})
    with pytest.raises(ValueError, match="has no column 'y'"):
        of_pandas.positions(frame, ["x", "y"])
    with pytest.raises(ValueError, match="gives 0 columns of positions"):
        of_pandas.positions(frame[["q"]])
    with pytest.raises(TypeError, match="give real numbers"):
        of_pandas.positions(frame, ["x", "name"])
    with pytest.raises(ValueError, match="the frame has the column 'x' twice: rename one"):
        of_pandas.positions(pandas.concat([frame, frame], axis=1))
    for wrong in (frame.x, {"x": [0.5]}):
        with pytest.raises(TypeError, match=f"of type {type(wrong).__name__}; a pandas.DataFrame is needed"):
            of_pandas.positions(wrong)
    with pytest.raises(ValueError, match=r"a column needs one field \(4,\)"):
        of_pandas.interpolate(np.zeros((2, 4)), frame, pm.Mesh(4, 1.0))


# ---- ASE ----------------------------------------------------------------------------------------------------


def same_pairs(ours, theirs):
    """Compare lists of ASE's letters "ijdDS", whatever the order within a row."""
    assert [len(a) for a in ours] == [len(a) for a in theirs] and (np.diff(ours[0]) >= 0).all()
    keys = [np.lexsort((*np.asarray(S).T, j, i)) for i, j, _, _, S in (ours, theirs)]
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a[keys[0]], b[keys[1]], atol=1e-12)


@pytest.mark.parametrize("self_interaction", [False, True])
@pytest.mark.parametrize("cutoff", ["number", "radii", "elements", "numbers"])
def test_the_neighbour_list_is_ases(cutoff, self_interaction):
    ase, reference = needed("ase"), needed("ase.neighborlist").neighbor_list
    random = np.random.default_rng(4)
    atoms = ase.Atoms("OHHNaCl" * 4, random.random((20, 3)) @ TRICLINIC, cell=TRICLINIC, pbc=(True, False, True))
    atoms.positions[3] += 3 * TRICLINIC[0]  # an atom outside of its cell
    given = {
        "number": 1.7,
        "radii": random.uniform(0.3, 1.1, 20),
        "elements": {("O", "H"): 1.9, ("Na", "Cl"): 2.5, ("H", "H"): 0.7},
        "numbers": {(1, 8): 1.9, (17, 17): 4.2},
    }[cutoff]
    ours = of_ase.neighbor_list("ijdDS", atoms, given, self_interaction)
    same_pairs(ours, reference("ijdDS", atoms, given, self_interaction))
    assert len(ours[0]) > 20
    np.testing.assert_array_equal(of_ase.neighbour_list("j", atoms, given, self_interaction), ours[1])
    theirs = reference("ijdDS", atoms, given, self_interaction)
    assert [array.dtype for array in ours] == [array.dtype for array in theirs]  # i * n + j holds


def test_a_molecule_without_a_cell():
    ase = needed("ase")
    water = ase.Atoms("OHH", [[0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]])
    with pytest.raises(TypeError, match=r"of type ndarray; an ase\.Atoms is needed"):
        of_ase.particles(water.positions)
    positions, box = of_ase.particles(water)
    assert not any(box.periodic) and not np.shares_memory(positions, water.positions)
    assert of_ase.neighbor_list("i", water, 1.2).tolist() == [0, 0, 1, 2]
    water.pbc = (False, True, False)
    with pytest.raises(ValueError, match="lattice vector 1 is zero"):
        of_ase.particles(water)


@pytest.mark.parametrize(
    ("cutoff", "said"), [({"OH": 1.0}, "pairs of elements"), ({("O", "Q"): 1.0}, "'Q'"), ({("O", "H"): -1.0}, "radius")]
)
def test_wrong_cutoffs_of_elements(cutoff, said):
    atoms = needed("ase").Atoms("OH", [[0, 0, 0], [1, 0, 0]])
    with pytest.raises(ValueError, match=said):
        of_ase.neighbor_list("ij", atoms, cutoff)


# ---- MDAnalysis ---------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")  # of MDAnalysis's own imports
@pytest.mark.parametrize("angles", [(90, 90, 90), (80, 95, 70)])
def test_a_frame_of_mdanalysis(angles):
    mda = needed("MDAnalysis")
    universe = mda.Universe.empty(40, trajectory=True)
    universe.dimensions = [12.0, 13.0, 14.0, *angles]
    rows = mda.lib.mdamath.triclinic_vectors(universe.dimensions)
    universe.atoms.positions = np.random.default_rng(5).random((40, 3)) @ rows
    group = universe.atoms[::2]
    positions, box = of_mdanalysis.particles(group, unit="nm")
    assert box.orthorhombic == (angles == (90, 90, 90)) and positions.dtype == np.float32
    np.testing.assert_allclose(positions * 10, group.positions, rtol=1e-6)
    d = pm.neighbour_list("d", positions, box, 0.5, half=True)
    pairs, distances = mda.lib.distances.self_capped_distance(group.positions, 5.0, box=universe.dimensions)
    assert len(d) == len(pairs) > 5
    np.testing.assert_allclose(np.sort(d) * 10, np.sort(distances), rtol=1e-5)
    assert of_mdanalysis.particles(universe, periodic=(True, True, False)).box.periodic == (True, True, False)
    with pytest.raises(TypeError, match="of type ndarray; an AtomGroup or a Universe of MDAnalysis is needed"):
        of_mdanalysis.particles(group.positions)
    with pytest.raises(ValueError, match="unit is 'mm'"):
        of_mdanalysis.particles(group, unit="mm")
    universe.dimensions = None
    with pytest.raises(ValueError, match="this frame has no box"):
        of_mdanalysis.particles(group)


def test_particles_are_a_pair():
    positions, box = adapters.PositionsInBox(np.zeros((1, 2)), pm.Box((1.0, 1.0)))
    assert pm.neighbour_list("i", positions, box, 0.1).size == 0
