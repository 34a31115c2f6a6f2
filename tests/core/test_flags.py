# SPDX-License-Identifier: BSD-3-Clause
"""A flag is True or False: "no" is not taken for yes."""

import numpy as np
import pytest

from public_calls import CALLS, bound, parameters_of

MODULES = ["", "fourier", "kernels", "distributed", *(f"apps.{n}" for n in ("brownian", "dem", "pme", "files", "mri"))]
# What some flags need beside the arguments of the call.
WITH = {("UniformGrid", "grow"): dict(method="fixed", capacity=20), ("UniformGrid.pairs", "check"): dict(capacity=4000)}
# Flags that come by other names.
MORE = {("UniformGrid", "grow"), ("spread", "deterministic")}
# Of mri-nufft, whose meaning these flags have, and of plans, which calls above make.
OTHERS = {
    ("kernels.coordinates", "upload"), ("kernels.Operand", "upload"), ("kernels.indices", "upload"),
    ("kernels.Backend.signature", "same"), ("kernels.Backend.submit_call", "on_device"),
    ("Status", "non_finite_values"), ("neighbor_list", "half"),
    ("Plan.locate", "check"), ("Plan.take", "check"), ("PairFunction.check_adds", "on_cpu"),
    ("fourier.Transform.spectra", "interlaced"),
    ("apps.mri.MRIParticlemesh.to_images", "weighted"),
    ("apps.mri.MRIParticlemesh.pipe", "normalize"), ("apps.mri.MRIParticlemesh.make_linops", "cupy"),
    *(("apps.mri.MRIParticlemesh.make_autograd", n) for n in ("wrt_data", "wrt_traj", "paired_batch")),
}  # fmt: skip


def flags_of(module):
    """Return the flags of a module's public calls and of the methods of its classes."""
    return (
        (name, parameter.name) for name, parameter in parameters_of(module) if parameter.annotation in {"bool", bool}
    )


@pytest.mark.parametrize("module", MODULES)
def test_what_is_neither_true_nor_false_is_refused(module, tmp_path):
    if module == "apps.mri":
        pytest.importorskip("mrinufft")
    flags = set(flags_of(module)) | {flag for flag in MORE if module == ""}
    assert flags
    for name, flag in sorted(flags - OTHERS):
        assert name in CALLS, f"{flag} of {name} is not tried"
        made, more = bound(name, tmp_path), WITH.get((name, flag), {})
        for bad in ("no", "yes", "", None, 0, 1, 1.0, [], [True], np.array([True]), np.int64(1)):
            with pytest.raises(TypeError, match=rf"{flag} is .*; give True or False"):
                made(**more, **{flag: bad})
                pytest.fail(f"{name} takes {flag}={bad!r}")
        for good in (True, np.False_):
            for path in tmp_path.iterdir():
                path.unlink()
            bound(name, tmp_path)(**more, **{flag: good})
