# SPDX-License-Identifier: BSD-3-Clause
"""Host arrays for a backend that was named, and device arrays of types that it cannot convert."""

import numpy as np
import pytest

import particlemesh as pm
from kinds import MESH, X
from particlemesh import backends


@pytest.mark.opencl
@pytest.mark.skipif(backends.module("opencl").available() is not None, reason="no OpenCL device")
def test_a_device_gets_host_arrays_of_types_that_it_may_not_know():
    whole = np.arange(40) % 3
    with pm.Plan(MESH, "cic", backend="opencl", dtype="float32") as plan, pm.Plan(MESH, "cic", dtype="float32") as host:
        for dtype in (">f8", "f4"):
            plan.set_positions(X.astype(dtype))
            host.set_positions(X.astype(dtype))
            for values in (whole.tolist(), whole == 1, whole.astype(">f4"), whole.astype("u8")):
                result, expected = plan.spread(values), host.spread(values)
                assert result.dtype == expected.dtype
                np.testing.assert_allclose(result, expected, atol=1e-5)
        with pytest.raises(TypeError, match="float32 does not hold all such integers"):
            plan.spread(whole + 2**30)
        flags = backends.current("opencl").upload(whole.astype("f4")).view(np.uint8)[:40].view(np.bool_)
        with pytest.raises(TypeError, match="which the device cannot convert: convert it yourself"):
            plan.spread(flags)
