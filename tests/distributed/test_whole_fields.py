# SPDX-License-Identifier: BSD-3-Clause
"""A field of all ranks on the first one is made of their parts."""

import numpy as np
import pytest

import particlemesh as pm
from particlemesh import distributed as pmd
from particlemesh.distributed import Domain, RankError, whole_field
from ranks import on_threads


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("batch", [(), (2, 3)])
@pytest.mark.parametrize("per_rank", [1, 2])
def test_a_whole_field_is_that_of_its_parts(size, batch, per_rank):
    mesh = pm.Mesh((3, 5), (1.0, 1.0))  # some parts are empty
    expected = np.random.default_rng(1).random((*batch, *mesh.shape)).astype("f4")

    def work(world):
        domain = Domain(mesh, size, parts="slabs", per_rank=per_rank)
        parts = domain.parts(world.rank)
        fields = tuple(
            expected[(..., *map(slice, part.lower, part.upper))].reshape(*batch, *part.shape) for part in parts
        )
        return whole_field(fields if per_rank > 1 else fields[0], domain, world)

    first, *others = on_threads(size, work)
    assert first.dtype == expected.dtype
    assert np.array_equal(first, expected)
    assert all(other is None for other in others)


def test_another_shape_on_a_rank_is_named_on_all():
    def work(world):
        domain = pmd.Domain(pm.Mesh((4, 4), (1.0, 1.0)), 2)
        shape = domain.parts(world.rank)[0].shape
        with pytest.raises((ValueError, RankError), match=r"field has shape \(2, 5\)"):
            whole_field(np.zeros((2, 5) if world.rank else shape), domain, world)
        with pytest.raises(RankError, match="calls whole_field of float"):
            whole_field(np.zeros(shape, "f8" if world.rank else "f4"), domain, world)

    on_threads(2, work)
