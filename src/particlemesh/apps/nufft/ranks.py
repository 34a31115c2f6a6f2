# SPDX-License-Identifier: BSD-3-Clause
"""Non-uniform Fourier transforms over many ranks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import particlemesh as pm
from particlemesh import distributed as pmd
from particlemesh.apps.nufft.nonuniform import NonUniform
from particlemesh.apps.nufft.plan import Plan
from particlemesh.apps.nufft.shapes import ArgumentError
from particlemesh.apps.nufft.sizes import Sizes, choose, window_for
from particlemesh.apps.nufft.uniform import of_modes
from particlemesh.fourier import mode_numbers
from particlemesh.kernels import alone, checks

_PARTS = "slabs", "blocks", "pencils", "bisection", "balanced"


class DistributedPlan(Plan):
    r""":class:`Plan` for points, modes and frequencies on many ranks; all methods are collective.

    Each rank gives points, any number of all, and for type 3 frequencies. They travel to the owners of their cells on
    the fine mesh, and values at points and frequencies belong to the rank that gave these. Each rank has some modes:
    see `part`. Errors are those of :class:`Plan`, which chooses window and fine mesh for the points of all ranks.

    Parameters
    ----------
    world : particlemesh.distributed.World
        The ranks.
    nufft_type : {1, 2, 3}
    n_modes_or_dim, n_trans, eps, isign, dtype, **opts
        As for :class:`Plan`, and the same on every rank, except ``spreadinterponly``. With ``real=True`` values at
        points are real; the transform takes as long as that of complex values.
    parts : {"slabs", "blocks", "pencils", "bisection", "balanced"}
        How the fine mesh is cut: see :class:`particlemesh.distributed.Domain`. Slabs of uniform points need the fewest
        messages. "balanced" cuts anew at each `setpts`, so that each rank has nearly as many points.

    Raises
    ------
    RuntimeError, TypeError
        As for :class:`Plan`.
    particlemesh.distributed.RankError
        If another rank raised.

    Examples
    --------
    >>> import numpy as np
    >>> from particlemesh import distributed as pmd
    >>> from particlemesh.apps import nufft
    >>> world, rng = pmd.World(), np.random.default_rng(1)
    >>> x, y = rng.uniform(-np.pi, np.pi, (2, 1000))
    >>> strengths = rng.normal(size=1000) + 1j * rng.normal(size=1000)
    >>> plan = nufft.DistributedPlan(world, 1, (20, 30), eps=1e-9)
    >>> plan.setpts(x, y)
    >>> modes = plan.gather(plan.execute(strengths))
    >>> exact = world.allreduce((strengths * np.exp(1j * (3 * x - 7 * y))).sum())
    >>> abs(modes[10 + 3, 15 - 7] / exact - 1).round(6)
    np.float64(0.0)
    """

    def __init__(
        self, world: pmd.World, nufft_type: int, n_modes_or_dim: Any, n_trans: Any = 1, eps: float = 1e-6,
        isign: int | None = None, dtype: Any = "complex128", *, parts: str = "slabs", **opts: Any,
    ) -> None:  # fmt: skip
        self.world = world
        said = f"{nufft_type}, {n_modes_or_dim}, {n_trans}, {eps}, {isign}, {dtype}, {parts=}, {sorted(opts.items())}"
        if world.rank:
            opts["allow_eps_too_small"] = True  # one rank warns
        with world.agreement(f"DistributedPlan({said})"):
            super().__init__(nufft_type, n_modes_or_dim, n_trans, eps, isign, dtype, **opts)
            if self._options.spreadinterponly:
                raise ArgumentError("spreadinterponly over ranks is particlemesh.distributed.Plan: use that.")
            self.parts = checks.one_of(parts, "parts", _PARTS)

    __reduce__: Any = object.__reduce__  # a plan that talks to other ranks is not copied

    @property
    def part(self) -> tuple[tuple[int, int], ...]:
        """Range of the modes, in their order, that this rank has along each axis; known once points are set."""
        self._with_modes()
        return self._core.part

    def _with_modes(self) -> None:
        self._with_points()
        if self._type == 3:
            raise ArgumentError("a transform of type 3 has no modes: each rank has the frequencies that it gave.")

    @alone
    def gather(self, modes: Any) -> Any:
        r"""Return all modes (n_trans, \*n_modes) on every rank, which needs memory for them, from each rank's."""
        with self._agreement("gather"):
            self._with_modes()
        return self._core.transforms[1].gather(modes)

    def _agreement(self, call: str) -> Any:
        return self.world.agreement(f"{call} of a DistributedPlan")

    def _held_modes(self, core: Any) -> tuple[int, ...]:
        return self._n_modes if self._type == 3 else core.shape

    def _check_device(self, backend: Any) -> None:
        super()._check_device(backend)
        if backend.name == "opencl":
            raise ArgumentError("coordinates are arrays of PyOpenCL; over ranks give NumPy, CuPy, PyTorch or JAX.")

    def _nonuniform(self, backend: Any) -> Any:
        if self._core is not None and backend is self._core.backend:
            return self._core
        return RankNonUniform(
            self.world, self.parts, backend, self._eps, self._law, self._options.upsampfac, self._real_dtype,
            self._options.real, self._options.of_plans(backend),
        )  # fmt: skip

    def _uniform(self, backend: Any, count: int) -> Any:
        total = int(self.world.allreduce(count))
        about = 1 << max(0, total - 1).bit_length()
        sizes = choose(
            self._n_modes, self._eps, self._law, about, 2, self._real_dtype, backend.name == "cpu",
            self._options.upsampfac,
        )  # fmt: skip
        core, order = self._core, ("centred", "fft")[self._options.modeord]
        if core is not None and core.backend is backend and core.sizes == sizes and self.parts != "balanced":
            return core
        options = self._options.of_plans(backend)
        return Ranks(
            self.world,
            backend,
            self._n_modes,
            sizes,
            self._eps,
            self._real_dtype,
            order=order,
            real=self._options.real,
            parts=self.parts,
            options=options,
        )


class Ranks:
    """Sums between points and modes on many ranks: the distributed `Uniform`, whose arguments it has.

    Attributes
    ----------
    part : tuple of (int, int)
        Range of the modes of this rank along each axis.
    shape : tuple of int
        Their number.
    transforms : dict of int to particlemesh.distributed.FFT
        By the sign of the numbers of modes: 1 or -1.
    """

    def __init__(
        self, world: pmd.World, backend: Any, modes: tuple[int, ...], sizes: Sizes, eps: float, dtype: np.dtype, *,
        order: str, real: bool, parts: str, options: dict[str, Any], lengths: Any = None, origin: Any = None,
    ) -> None:  # fmt: skip
        self.world, self.backend, self.modes, self.sizes, self.order = world, backend, modes, sizes, order
        self._dtype, self._real, self._balanced, self._options = dtype, real, parts == "balanced", options
        self.window = window_for(sizes, eps)
        mesh = pm.Mesh(sizes.nodes, (2 * math.pi,) * len(modes) if lengths is None else tuple(lengths), origin=origin)
        self._cut(pmd.Domain(mesh, world.size, "bisection" if self._balanced else parts))

    def _cut(self, domain: pmd.Domain) -> None:
        """Make the plan and the transforms of a domain."""
        components = 1 if self._real else 2
        self.plan = pmd.Plan(
            domain, self.world, self.window, dtype=self._dtype.name, components=components, **self._options
        )
        numbers = [mode_numbers(m, self.order) for m in self.modes]
        self.transforms = {
            sign: pmd.FFT(
                domain, self.world, False, numbers=[sign * n for n in numbers], threads=self._options.get("threads")
            )
            for sign in (1, -1)
        }
        self.part, self.shape = self.transforms[1].part, self.transforms[1].spectrum_shape
        self._factors = []
        for axis, (nodes, modes, (start, stop)) in enumerate(zip(self.sizes.nodes, self.modes, self.part, strict=True)):
            along = of_modes(self.window, nodes, modes, self.order, False)[start:stop].astype(self._dtype)
            self._factors.append(self.backend.upload(along.reshape([-1] + [1] * (len(self.modes) - 1 - axis))))

    @property
    def field_bytes(self) -> int:
        """Bytes of a rank's share of the fine mesh."""
        return math.prod(self.sizes.nodes) * self._dtype.itemsize * 2 // self.world.size

    def set_points(self, points: tuple[Any, ...]) -> None:
        """Set native coordinates (N,) per axis."""
        if self._balanced and (domain := self.plan.balanced(points)) != self.plan.domain:
            self._cut(domain)
        self.plan.set_positions(points)

    def to_modes(self, values: Any, sign: int, out: Any = None) -> Any:
        """Return ``sum_j values[j] exp(sign i k x_j)``, shape (b, *shape), for native values (b, N)."""
        modes = self.transforms[-sign].forward(self.plan.spread(values))
        for factor in self._factors:
            modes *= factor
        return modes if out is None else self.backend.copy(out, modes)

    def to_points(self, modes: Any, sign: int, out: Any = None) -> Any:
        """Return ``sum_k modes[k] exp(sign i k x_j)``, shape (b, N), or its real part."""
        values = self.plan.interpolate(self._nodes(modes, sign))
        return values if out is None else self.backend.copy(out, values)

    def to_points_and_slopes(self, modes: Any, sign: int) -> tuple[Any, Any]:
        """Return the sums and their gradients by the points, shapes (b, N) and (b, N, d)."""
        values, slopes = self.plan.value_and_gradient(self._nodes(modes, sign))
        return values, slopes

    def _nodes(self, modes: Any, sign: int) -> Any:
        """Return the field of modes."""
        with self.world.agreement("modes of a DistributedPlan"):
            modes = modes * self._factors[0]
            for factor in self._factors[1:]:
                modes *= factor
        field = self.transforms[sign].inverse(modes, norm="forward")
        return field.real.copy() if self._real else field


class RankNonUniform(NonUniform):
    """Sums between points and frequencies of many ranks: the arguments after ``parts`` are those of `NonUniform`.

    The nodes of the mesh around the points are the modes of the inner transform, which has them in other parts.
    """

    def __init__(self, world: pmd.World, parts: str, *given: Any) -> None:
        super().__init__(*given)
        self.world, self._parts = world, parts

    def set_points(self, points: tuple[Any, ...], frequencies: tuple[Any, ...]) -> None:
        self._points = points
        super().set_points(points, frequencies)
        del self._points
        here = self.outer.domain.parts(self.world.rank)[0], pmd.Part(*zip(*self.inner.part, strict=True))
        outer, inner = zip(*self.world.allgather(here), strict=True)
        with self._agreement("nodes"):
            self._inwards, self._outwards = (pmd.Remap(*way, self.world) for way in ((outer, inner), (inner, outer)))

    def _agreement(self, call: str) -> Any:
        return self.world.agreement(f"{call} of a DistributedPlan")

    def _layout_for(self, points: Any, frequencies: Any) -> Any:
        world, counts = self.world, [int(side[0].shape[0]) for side in (points, frequencies)]
        with self._agreement("bounds"):
            sides = zip((points, frequencies), ("xyz", "stu"), counts, strict=True)
            none = [(np.inf, -np.inf)] * len(points)  # which any other bounds replace
            reached = np.array([self._phases.bounds(side, names) if count else none for side, names, count in sides])
        low, high = world.allreduce(reached[..., 0], "min"), world.allreduce(reached[..., 1], "max")
        some = low <= high
        boxes, bands = np.stack([np.where(some, low, 0.0), np.where(some, high, 0.0)], -1).tolist()
        total = world.allreduce(sum(counts))
        with self._agreement("meshes"):
            return self._laid_out(boxes, bands, total, world.size)

    def _replays(self, outer: Any, inner: Any) -> Any:
        return _Once()

    def _outer(self, mesh: pm.Mesh, *given: Any, **options: Any) -> Any:
        domain = pmd.Domain(mesh, self.world.size, "bisection" if self._parts == "balanced" else self._parts)
        plan = pmd.Plan(domain, self.world, *given, **options)
        if self._parts != "balanced":
            return plan
        return pmd.Plan(plan.balanced(self._points), self.world, *given, **options)

    def _inner(self, *given: Any, **options: Any) -> Any:
        return Ranks(self.world, *given, parts=self._parts, **options)

    def _to_inner(self, nodes: Any) -> Any:
        return self._inwards(nodes)

    def _to_outer(self, modes: Any) -> Any:
        return self._outwards(modes)


class _Once:
    """Calls that travel between ranks are not repeated."""

    def __call__(self, key: Any, arrays: Any, call: Any) -> None:
        call()

    def clear(self) -> None:
        """Forget nothing."""
