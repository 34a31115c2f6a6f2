# SPDX-License-Identifier: BSD-3-Clause
"""Gradients of the operator in PyTorch: by images, samples and the trajectory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from mrinufft._array_compat import with_numpy_cupy
from mrinufft.operators.autodiff import MRINufftAutoGrad


@contextlib.contextmanager
def _as_it_was(nufft: Any, state: Any) -> Iterator[None]:
    """Give the operator the trajectory, maps and weights of the forward pass, and then those of today."""
    today = nufft.state
    nufft.restore(state)
    try:
        yield
    finally:
        nufft.restore(today)


@with_numpy_cupy
def _along_trajectory(nufft: Any, images: Any, samples: Any) -> Any:
    """Return ``Re sum_bc conj(samples) * d op(images) / d trajectory``, shape (N, d), in one pass."""
    _, slopes = nufft.op_and_gradient(images)
    samples = samples.reshape(slopes.shape[:-1])
    return (samples.conj()[..., None] * slopes).real.sum((0, 1))


@with_numpy_cupy
def _transposed(nufft: Any, samples: Any) -> Any:
    return nufft.to_images(samples, weighted=False)


@with_numpy_cupy
def _forward(nufft: Any, images: Any) -> Any:
    return nufft.weighted(nufft.to_samples(images))


@with_numpy_cupy
def _weighted(nufft: Any, samples: Any) -> Any:
    return nufft.weighted(samples)


class _Function(torch.autograd.Function):
    """From images to samples, or from samples to images."""

    @staticmethod
    def forward(data: Any, trajectory: Any, nufft: Any, adjoint: bool) -> Any:
        return (nufft.adj_op if adjoint else nufft.op)(data.detach())

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        data, _, ctx.nufft, ctx.adjoint = inputs
        ctx.save_for_backward(data)
        ctx.state = ctx.nufft.state

    @staticmethod
    def backward(ctx: Any, slope: Any) -> Any:
        (data,), nufft = ctx.saved_tensors, ctx.nufft
        by_data = by_trajectory = None
        with _as_it_was(nufft, ctx.state):
            if ctx.needs_input_grad[0]:
                by_data = (_forward if ctx.adjoint else _transposed)(nufft, slope).reshape(data.shape)
            if ctx.needs_input_grad[1]:
                pair = (slope, _weighted(nufft, data)) if ctx.adjoint else (data, slope)
                by_trajectory = _along_trajectory(nufft, *pair)
        return by_data, by_trajectory, None, None


class Differentiable(MRINufftAutoGrad):
    """mri-nufft's module around an operator, with gradients that take one pass.

    They are exact, also with weights. Batches with their own maps or trajectories have gradients by theirs.
    """

    def op(self, x: Any, smaps: Any = None, samples: Any = None, field_map: Any = None) -> Any:
        """Return the samples of images; arguments are mri-nufft's."""
        return self._applied(False, x, smaps, samples, field_map)

    def adj_op(self, kspace: Any, smaps: Any = None, samples: Any = None, field_map: Any = None) -> Any:
        """Return the images of samples; arguments are mri-nufft's."""
        return self._applied(True, kspace, smaps, samples, field_map)

    def _applied(self, adjoint: bool, data: Any, smaps: Any, samples: Any, field_map: Any) -> Any:
        if field_map is not None:
            raise ValueError("this operator has no field map: call with_off_resonance_correction first.")
        if not self.paired_batch:
            return _Function.apply(data, self.samples, self.nufft_op, adjoint)
        what = {"kspace" if adjoint else "imgs": data}
        self._check_input_shape(smaps=smaps, samples=samples, **what)
        results: list[Any] = []
        for i, item in enumerate(data):
            if smaps is not None:
                self.nufft_op.smaps = smaps[i]
            if samples is not None:
                self.update_samples(samples[i])
            results.append(_Function.apply(item, self.samples, self.nufft_op, adjoint))
        return torch.stack(results)
