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
    """What both directions share: the operator as it was."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        data, _, ctx.nufft = inputs
        ctx.save_for_backward(data)
        ctx.state = ctx.nufft.state


class _Forward(_Function):
    """From images to samples."""

    @staticmethod
    def forward(data: Any, trajectory: Any, nufft: Any) -> Any:
        return nufft.op(data.detach())

    @staticmethod
    def backward(ctx: Any, by_samples: Any) -> Any:
        (images,) = ctx.saved_tensors
        by_images = by_trajectory = None
        with _as_it_was(ctx.nufft, ctx.state):
            if ctx.needs_input_grad[0]:
                by_images = _transposed(ctx.nufft, by_samples).reshape(images.shape)
            if ctx.needs_input_grad[1]:
                by_trajectory = _along_trajectory(ctx.nufft, images, by_samples)
        return by_images, by_trajectory, None


class _Adjoint(_Function):
    """From samples to images."""

    @staticmethod
    def forward(data: Any, trajectory: Any, nufft: Any) -> Any:
        return nufft.adj_op(data.detach())

    @staticmethod
    def backward(ctx: Any, by_images: Any) -> Any:
        (samples,) = ctx.saved_tensors
        by_samples = by_trajectory = None
        with _as_it_was(ctx.nufft, ctx.state):
            if ctx.needs_input_grad[0]:
                by_samples = _forward(ctx.nufft, by_images).reshape(samples.shape)
            if ctx.needs_input_grad[1]:
                by_trajectory = _along_trajectory(ctx.nufft, by_images, _weighted(ctx.nufft, samples))
        return by_samples, by_trajectory, None


class Differentiable(MRINufftAutoGrad):
    """mri-nufft's module around an operator, with gradients that take one pass.

    They are exact, also with weights. Batches with their own maps or trajectories have gradients by theirs.
    """

    def op(self, x: Any, smaps: Any = None, samples: Any = None, field_map: Any = None) -> Any:
        """Return the samples of images; arguments are mri-nufft's."""
        return self._applied(_Forward, x, smaps, samples, field_map)

    def adj_op(self, kspace: Any, smaps: Any = None, samples: Any = None, field_map: Any = None) -> Any:
        """Return the images of samples; arguments are mri-nufft's."""
        return self._applied(_Adjoint, kspace, smaps, samples, field_map)

    def _applied(self, function: Any, data: Any, smaps: Any, samples: Any, field_map: Any) -> Any:
        if field_map is not None:
            raise ValueError("this operator has no field map: call with_off_resonance_correction first.")
        if not self.paired_batch:
            return function.apply(data, self.samples, self.nufft_op)
        what = {"imgs" if function is _Forward else "kspace": data}
        self._check_input_shape(smaps=smaps, samples=samples, **what)
        results: list[Any] = []
        for i, item in enumerate(data):
            if smaps is not None:
                self.nufft_op.smaps = smaps[i]
            if samples is not None:
                self.update_samples(samples[i])
            results.append(function.apply(item, self.samples, self.nufft_op))
        return torch.stack(results)
