# SPDX-License-Identifier: BSD-3-Clause
"""Results of ``deterministic=True`` have the same bits in every run."""

import numpy as np
import pytest

from particlemesh.apps.pme import PME, PMEBatch
from pme_cases import TRICLINIC, random_charges

COARSE = dict(cutoff=1.4, splitting=2.0, shape=(12, 15, 16), window="bspline5")
PAIRS = [(0, 1), (5, 7), (9, 3)]
MU = np.sin(np.arange(180.0)).reshape(60, 3) * 0.3
THETA = np.sin(np.arange(540.0)).reshape(60, 3, 3) * 0.03
THETA += THETA.transpose(0, 2, 1)
OWNERS = (np.arange(60) % 3).astype(np.int32)
CALLS = {
    "charges": (PME, dict(exclusions=PAIRS), {}), "dipoles": (PME, dict(exclusions=PAIRS), {"dipoles": MU}),
    "quadrupoles": (PME, {}, {"dipoles": MU, "quadrupoles": THETA}),
    "batch": (PMEBatch, dict(systems=3), {"system": OWNERS, "exclusions": [(0, 3), (4, 7)]}),
}  # fmt: skip


@pytest.mark.backends("cpu", "opencl", "cuda")
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_calls_and_objects_give_the_same_bits(backend, name, dtype):
    x, q = (backend.array(a.astype(dtype)) for a in random_charges(60))
    kind, sizes, more = CALLS[name]
    more = {k: backend.array(v.astype(v.dtype if k == "system" else dtype)) if isinstance(v, np.ndarray) else v
            for k, v in more.items()}  # fmt: skip
    first = None
    for threads in (1, 2, 3):
        pme = kind(TRICLINIC, **sizes, **COARSE, deterministic=True, threads=threads)
        for _ in range(3):
            result = {k: np.copy(backend.host(v)) for k, v in vars(pme(x, q, **more)).items() if v is not None}
            first = first or result
            for part, numbers in result.items():
                np.testing.assert_array_equal(numbers, first[part], err_msg=part)
        assert pme._core.solver.plan.deterministic and pme._core.grid.deterministic
    others = vars(kind(TRICLINIC, **sizes, **COARSE)(x, q, **more))
    tolerance = 2e-5 if dtype == "float32" else 1e-11
    for part, numbers in first.items():
        np.testing.assert_allclose(
            backend.host(others[part]), numbers, rtol=0, atol=tolerance * abs(numbers).max(), err_msg=part
        )


def test_lists_with_a_skin_are_refused():
    with pytest.raises(ValueError, match="leave out skin, or deterministic"):
        PME(TRICLINIC, skin=0.1, deterministic=True)
    with pytest.raises(TypeError, match="deterministic"):
        PMEBatch(TRICLINIC, 2, deterministic=1)
