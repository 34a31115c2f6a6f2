# SPDX-License-Identifier: BSD-3-Clause
"""Arrays of every kind, and one problem that tests give to all of them."""

from typing import ClassVar

import numpy as np
import pytest

import oracle
import particlemesh as pm
from devices import Device

MESH = pm.Mesh((6, 5, 7), (1.0, 2.0, 3.0))
WINDOW = pm.bspline(3)
RNG = np.random.default_rng(1)
X = RNG.random((40, 3)) * MESH.box.lengths
Q = RNG.normal(size=40)
V = RNG.normal(size=(40, 3))
FIELD = oracle.spread(MESH, WINDOW, X, Q)
VALUES = oracle.interpolate(MESH, WINDOW, X, FIELD)
SLOPES = oracle.gradient(MESH, WINDOW, X, FIELD)


class NumPy:
    home: ClassVar[str] = "cpu"
    writes: ClassVar[bool] = True  # whether arrays can be out=

    def make(self, host):
        return np.array(host)

    def host(self, array):
        return np.array(array)

    def place(self, array):
        return type(array), str(array.dtype)


class PyOpenCL(NumPy):
    home = "opencl"

    def make(self, host):
        return Device.of("opencl").array(host)

    def host(self, array):
        return Device.of("opencl").host(array)

    def place(self, array):
        return type(array), str(array.dtype), array.queue


class CuPy(NumPy):
    home = "cuda"

    def make(self, host):
        return Device.of("cuda").cupy.asarray(host)

    def host(self, array):
        return Device.of("cuda").cupy.asnumpy(array)

    def place(self, array):
        return type(array), str(array.dtype), array.device.id


class Torch(NumPy):
    device = "cpu"

    def make(self, host):
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        return torch.from_numpy(np.array(host)).to(self.device)

    def host(self, array):
        return array.cpu().numpy()

    def place(self, array):
        return type(array), array.dtype, array.device


class TorchCuda(Torch):
    home, device = "cuda", "cuda"

    def make(self, host):
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        if not torch.cuda.is_available():
            pytest.skip("this PyTorch has no CUDA device")
        return super().make(host)


class Jax(NumPy):
    writes = False
    platform = "cpu"

    def make(self, host):
        jax = pytest.importorskip("jax", reason="JAX is not installed")
        try:
            device = jax.devices(self.platform)[0]
        except RuntimeError as error:
            pytest.skip(f"this JAX has no {self.platform} device: {error}")
        with jax.enable_x64(True):
            return jax.device_put(np.asarray(host), device)

    def place(self, array):
        return type(array), str(array.dtype), array.devices()


class JaxCuda(Jax):
    home, platform = "cuda", "cuda"


KINDS = {
    "numpy": NumPy(), "pyopencl": PyOpenCL(), "cupy": CuPy(), "torch-cpu": Torch(), "torch-cuda": TorchCuda(),
    "jax-cpu": Jax(), "jax-cuda": JaxCuda(),
}  # fmt: skip
