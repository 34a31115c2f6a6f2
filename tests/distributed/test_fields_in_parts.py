# SPDX-License-Identifier: BSD-3-Clause
"""Fields that ranks write at the same time are one field, for any other program and any other number of ranks."""

import numpy as np
import pytest

import particlemesh as pm
from particlemesh.apps import files
from particlemesh.distributed import Domain, RankError
from ranks import on_threads

pytest.importorskip("h5py")
MESHES = {
    1: pm.Mesh(7, 2.0, periodic=False, offset=0.5),
    2: pm.Mesh((3, 5), ((1.0, 0.0), (0.3, 2.0))),  # with slabs some parts are empty
    3: pm.Mesh((4, 3, 5), pm.Box((1.0, 2.0, 3.0), origin=(1.0, 0.0, 0.0), periodic=(True, False, True))),
}


def parts_of(values, domain, rank):
    batch = values.shape[: -domain.mesh.ndim]
    mine = [values[(..., *map(slice, p.lower, p.upper))].reshape(*batch, *p.shape) for p in domain.parts(rank)]
    return mine[0] if len(mine) == 1 else tuple(mine)


@pytest.mark.parametrize(
    ("ndim", "size", "per_rank", "cut", "batch", "dtype"),
    [
        (1, 1, 1, "blocks", (), "f4"),
        (1, 4, 2, "slabs", (2, 3), "c16"),
        (2, 4, 1, "slabs", (2,), "f8"),
        (2, 3, 2, "bisection", (), "i4"),
        (3, 4, 2, "bisection", (2, 3), "f4"),
        (3, 3, 1, "blocks", (), "c16"),
    ],
)
def test_what_ranks_write_is_one_field_on_any_number_of_ranks(tmp_path, ndim, size, per_rank, cut, batch, dtype):
    mesh, path = MESHES[ndim], tmp_path / "density.h5"
    whole = np.random.default_rng(1).normal(size=(*batch, *mesh.shape, 2)) * 100
    whole = whole.view(complex)[..., 0].astype(dtype) if dtype == "c16" else whole[..., 0].astype(dtype)
    domain = Domain(mesh, size, cut, per_rank)

    def write(world):
        files.write_field_parts(path, parts_of(whole, domain, world.rank), domain, world, name="rho")

    on_threads(size, write)
    assert len(list(tmp_path.iterdir())) == 1 + size
    field = files.read_field(path)
    assert field.mesh == mesh and field.name == "rho" and field.values.dtype == whole.dtype
    np.testing.assert_array_equal(field.values, whole)
    others = Domain(mesh, 2, "slabs")
    halves = on_threads(2, lambda world: files.read_field_parts(path, others, world))
    for rank, half in enumerate(halves):
        assert half.dtype == whole.dtype
        np.testing.assert_array_equal(half, parts_of(whole, others, rank))


def test_a_field_of_one_process_is_read_in_parts(tmp_path):
    mesh = MESHES[3]
    whole = np.arange(3.0 * mesh.size).reshape(3, *mesh.shape)
    files.write_field(tmp_path / "one.h5", whole, mesh)
    domain = Domain(mesh, 3, per_rank=2)
    for rank, parts in enumerate(
        on_threads(3, lambda world: files.read_field_parts(tmp_path / "one.h5", domain, world))
    ):
        for ours, expected in zip(parts, parts_of(whole, domain, rank), strict=True):
            np.testing.assert_array_equal(ours, expected)


def test_errors_of_a_rank_are_those_of_all_and_leave_no_field(tmp_path):
    mesh = MESHES[2]
    domain, path = Domain(mesh, 2), tmp_path / "f.h5"

    def work(world):
        good = np.ones(domain.parts(world.rank)[0].shape)
        with pytest.raises((ValueError, RankError), match=r"field has shape \(1, 1\)"):
            files.write_field_parts(path, np.ones((1, 1)) if world.rank else good, domain, world)
        with pytest.raises(RankError, match="write_field_parts"):
            files.write_field_parts(path, good.astype("f4" if world.rank else "f8"), domain, world)
        with pytest.raises(ValueError, match=r"are in \.h5"):
            files.write_field_parts(tmp_path / "f.npz", good, domain, world)
        with pytest.raises(ValueError, match="does not exist"):
            files.read_field_parts(path, domain, world)
        files.write_field_parts(path, good, domain, world)
        with pytest.raises(ValueError, match="exists"):
            files.write_field_parts(path, good, domain, world)
        files.write_field_parts(path, 2 * good, domain, world, overwrite=True)
        assert (files.read_field_parts(path, domain, world) == 2).all()
        with pytest.raises(ValueError, match=r"it has nodes \(3, 5\); the domain has \(5, 3\)"):
            files.read_field_parts(path, Domain(pm.Mesh((5, 3), (1.0, 1.0)), 2), world)

    on_threads(2, work)
    (tmp_path / "f.1-of-2.h5").unlink()
    with pytest.raises(ValueError, match=r"is in f\.1-of-2\.h5, which is missing: put it beside this file"):
        files.read_field(path)
