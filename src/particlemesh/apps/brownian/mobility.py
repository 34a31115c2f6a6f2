# SPDX-License-Identifier: BSD-3-Clause
"""The mobility as an operator: parameters, positions, velocities."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from typing import Any, Self

import numpy as np

import particlemesh as pm
from particlemesh import kernels
from particlemesh.apps.brownian.far import Far
from particlemesh.apps.brownian.near import Near
from particlemesh.apps.brownian.parameters import Parameters, checked_radii, for_system
from particlemesh.apps.brownian.product import Product
from particlemesh.apps.brownian.square_root import RootInfo
from particlemesh.kernels import allocate, alone, checks


class Mobility(kernels.Fixed):
    """The operator of :class:`particlemesh.apps.brownian.RPY`, without its square root."""

    divergence_free = True  # of flows without sources: Brownian dynamics needs no drift

    def __init__(
        self, box: Any, radius: Any = 1.0, viscosity: float = 1 / (6 * math.pi), accuracy: float = 1e-6, *,
        splitting: float | None = None, cutoff: float | None = None, shape: Any = None,
        window: pm.Window | str | None = None, applications: int = 20, vectors: int = 1,
        backend: str | None = None, threads: int | None = None, **options: Any,
    ) -> None:  # fmt: skip
        self.box = box if isinstance(box, pm.Box) else pm.Box(box)
        if self.box.ndim != 3 or not all(self.box.periodic):
            raise ValueError(
                f"the box has {self.box.ndim} axes, periodic {self.box.periodic}; this mobility needs three periodic "
                "axes."
            )
        self.radii, self._many = checked_radii(radius), bool(np.ndim(radius))
        self.viscosity = checks.positive(viscosity, "viscosity")
        self.accuracy = checks.positive(accuracy, "accuracy")
        trial = pm.Plan(pm.Mesh((4, 4, 4) if shape is None else shape, self.box), "cic" if window is None else window)
        self._given: dict[str, Any] = {
            "splitting": None if splitting is None else checks.positive(splitting, "splitting"),
            "cutoff": None if cutoff is None else checks.positive(cutoff, "cutoff"),
            "shape": None if shape is None else trial.mesh.shape,
            "window": None if window is None else trial.window,
        }
        self._vectors = checks.integer(vectors, "vectors", 1, 2**31)
        named = {"threads": threads, "backend": backend}
        self._plan_options: dict[str, Any] = {
            "components": 3, "applications": checks.integer(applications, "applications", 1, 2**31), **options,
            **{key: value for key, value in named.items() if value is not None},
        }  # fmt: skip
        pm.Plan(trial.mesh, trial.window, **self._plan_options)  # options that are not allowed are errors now
        self._home = None if backend is None else kernels.backend(backend)
        self._uploads, self._threads = backend is not None, threads
        self._parameters: Parameters | None = None
        self._info: RootInfo | None = None
        self._count = 0
        self._near: Near | None = None
        self._far: Any = None
        self._product: Product | None = None  # on GPUs
        self._grid: Any = None
        self._chosen_for = 0
        self._in_order = kernels.InOrder()
        self.busy = threading.RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        # The arguments, never handles: the copy starts without positions.
        options = {**self._given, **self._plan_options, "vectors": self._vectors}
        del options["components"]
        arguments = self.box, self.radii if self._many else self.radii[0], self.viscosity, self.accuracy
        return functools.partial(type(self), *arguments, **options), ()

    def __repr__(self) -> str:
        known = "no parameters yet" if self.parameters is None else self.parameters
        return f"<{type(self).__name__}: {self.count:,} spheres, {known}>"

    @property
    def parameters(self) -> Parameters | None:
        """What was chosen: ``splitting``, ``cutoff``, ``shape``, ``window``, ``error``; None without positions."""
        return self._parameters

    @property
    def info(self) -> RootInfo | None:
        """Iterations and error estimate of the last square root, or None."""
        return self._info

    @property
    def count(self) -> int:
        """Number of spheres."""
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes of the near part's matrix, of vectors, and of the far part's plan, fields and tables."""
        if self._near is None:
            return 0
        return self._near.nbytes + self._far.nbytes + (0 if self._product is None else self._product.nbytes)

    def settings(self) -> dict[str, Any]:
        """Return the arguments that make an equal mobility, with the parameters that were chosen, for checkpoints."""
        chosen = dict(self._given)
        if self.parameters is not None:
            chosen = {key: getattr(self.parameters, key) for key in chosen}
        window = chosen["window"]
        with contextlib.suppress(ValueError):  # no window of the library has this name
            if window is not None and window == pm.window_of(window.name):
                chosen["window"] = window.name
        options = {key: value for key, value in self._plan_options.items() if key != "components"}
        radius = float(self.radii[0]) if len(self.radii) == 1 else self.radii
        return {
            "box": self.box, "radius": radius, "viscosity": self.viscosity, "accuracy": self.accuracy, **chosen,
            "vectors": self._vectors, **options,
        }  # fmt: skip

    # ---- positions ------------------------------------------------------------------------------------

    @alone
    def set_positions(self, positions: Any) -> Self:
        """Set the spheres' centres.

        Parameters
        ----------
        positions : array (N, 3)
            Anywhere: the box repeats. Spheres may overlap, and may lie on top of each other.

        Returns
        -------
        Mobility
            The mobility itself.

        Raises
        ------
        ValueError
            If a position is not finite, or there is not one radius per sphere. Earlier positions stay.
        MemoryError
            If the near part does not fit into memory.
        """
        x = kernels.take(positions, (None, 3), "positions", batch=False, backend=self._home, upload=self._uploads)
        backend, count = x.backend, x.shape[0]
        if len(self.radii) not in (1, count):
            raise ValueError(f"there are {count} positions and {len(self.radii)} radii: give one radius per sphere.")
        near, far, grid, chosen, product = self._near, self._far, self._grid, self.parameters, self._product
        with self._in_order(x):
            same = near is not None and near.backend is backend and near.dtype == x.dtype
            if not (same and self._chosen_for / 2 <= count <= self._chosen_for * 2):
                chosen = for_system(
                    self.box, self.radii, count, self.accuracy, x.dtype, backend, self._given,
                    self._plan_options["applications"], self._vectors,
                )  # fmt: skip
                near = Near(backend, x.dtype, self.radii, chosen.splitting, self.viscosity, self._threads)
                far = Far(
                    self.box, self.radii, chosen.splitting, self.viscosity, chosen.shape, chosen.window,
                    max(self.accuracy, chosen.error) / 10, self._plan_options,
                )  # fmt: skip
                grid = self._cells(chosen.cutoff)
                product = None if backend.name == "cpu" else Product(near, far)
            assert near is not None and chosen is not None
            grid.build(x.native)
            pairs = grid.pairs(chosen.cutoff, order="input" if product is None else "grid", quantities="jD")
            order, places = None, x.native
            if product is not None:
                product.forget()  # its graph has memory that may be replaced below
                order = allocate(backend, (count,), np.int32, "the order of spheres")
                backend.copy(order, grid.order)
                places = grid.positions
            blocks = near.blocks(count, pairs.start, pairs.j, pairs.vector, order)
            far.place(backend, x.dtype, places)
            near.place(count, blocks, order)
        if chosen is not self.parameters:
            self._chosen_for = max(count, 1)
        self._parameters, self._far, self._grid, self._near, self._count = chosen, far, grid, near, count
        self._product = product
        return self

    def _cells(self, cutoff: float) -> pm.UniformGrid:
        thinnest = float((1 / np.linalg.norm(self.box.inverse, axis=1)).min())
        reproducible = bool(self._plan_options.get("deterministic", False))
        return pm.UniformGrid(
            self.box, cell_size=min(cutoff / 2, thinnest), threads=self._threads, deterministic=reproducible
        )

    def _ready(self) -> Near:
        if self._near is None:
            raise RuntimeError("this mobility has no positions yet: call set_positions first.")
        return self._near

    # ---- velocities -----------------------------------------------------------------------------------

    @alone
    def velocity(self, forces: Any, *, out: Any = None, check: bool = True) -> Any:
        """Return the velocities that forces cause.

        Parameters
        ----------
        forces : array (..., N, 3)
            Leading axes are right-hand sides; they share one pass.
        out : array (..., N, 3), optional
        check : bool
            Look for forces that are not finite; on a GPU this waits for the device.

        Returns
        -------
        array (..., N, 3)
            Array of the library and device of ``forces``.

        Raises
        ------
        ValueError
            If a force is not finite; the first sphere is named.
        RuntimeError
            If no positions are set.
        """
        self._ready()
        core = (self.count, 3)
        operand = self._taken(forces, core, "forces")
        with self._in_order(operand, out):
            result = kernels.give(out, operand, operand.batch + core)
            force = self._rows(operand, "forces", check)
            self._multiply(force, result.native.reshape(force.shape))
            return result.finish()

    def _taken(self, array: Any, shape: tuple[int, ...], what: str) -> kernels.Operand:
        """Return the user's numbers, where the mobility is."""
        near = self._ready()
        return kernels.take(array, shape, what, dtype=near.dtype, backend=near.backend, upload=self._uploads)

    def _rows(self, operand: kernels.Operand, what: str, check: bool) -> Any:
        """Return vectors as a dense native array (b, N, 3)."""
        rows = operand.native.reshape((math.prod(operand.batch), self.count, 3))
        if checks.flag(check, "check"):
            host, xp = self._like_numpy(rows)
            if not bool(xp.isfinite(host).all()):
                bad = int(xp.flatnonzero(~xp.isfinite(host).all((0, 2)))[0])
                raise ValueError(f"{what} are not all finite; sphere {bad} is the first: give finite numbers.")
        return rows

    def _multiply(self, force: Any, velocity: Any) -> None:
        near, shapes = self._ready(), self._far.shapes
        if self._product is not None:
            self._product.multiply(force, velocity)
            return
        parts = force[:, None] if shapes is None else shapes[:, :, None] * force[:, None]
        near.multiply(force, velocity, self._far.velocity(parts), shapes)

    def _multiply_near(self, force: Any, velocity: Any) -> None:
        if self._product is not None:
            self._product.multiply(force, velocity, far=False)
        else:
            self._ready().multiply(force, velocity)

    def _like_numpy(self, native: Any) -> tuple[Any, Any]:
        """Return an array and its library: CuPy's, or NumPy's; OpenCL arrays are copied to the host."""
        backend = self._ready().backend
        if backend.name == "cuda":
            import cupy

            return native, cupy
        return (native if backend.name == "cpu" else backend.download(native)), np

    def _in_callers_order(self, rows: Any, xp: Any) -> Any:
        """Return what the mesh gave, (b, parts, N, 3), arrays of the library of :meth:`_like_numpy`."""
        order = self._ready().order
        if order is None:
            return rows
        result = xp.empty_like(rows)
        result[:, :, self._like_numpy(order)[0]] = rows
        return result

    def linear_operator(self) -> Any:
        """Return the mobility as an operator on vectors (3 N,), for iterative solvers.

        Returns
        -------
        scipy.sparse.linalg.LinearOperator
            That of ``cupyx`` if the positions are CuPy arrays. It is symmetric and follows later positions of the same
            number.

        Examples
        --------
        The forces that hold a velocity:

        >>> import numpy as np
        >>> from scipy.sparse.linalg import cg
        >>> from particlemesh.apps.brownian import RPY
        >>> rpy = RPY((9.0, 9.0, 9.0)).set_positions(np.random.default_rng(1).uniform(0, 9, (20, 3)))
        >>> velocity = np.ones(60)
        >>> forces, failed = cg(rpy.linear_operator(), velocity, rtol=1e-6)
        >>> failed, bool(abs(rpy.velocity(forces.reshape(20, 3)) - 1).max() < 1e-4)
        (0, True)
        """
        near, count = self._ready(), self.count
        if near.backend.name == "cuda" and not self._uploads:
            from cupyx.scipy.sparse.linalg import LinearOperator
        else:
            from scipy.sparse.linalg import LinearOperator

        def columns(block: Any) -> Any:
            return self.velocity(block.T.reshape(-1, count, 3)).reshape(-1, 3 * count).T

        def column(vector: Any) -> Any:
            return self.velocity(vector.reshape(count, 3)).reshape(-1)

        return LinearOperator(
            (3 * count, 3 * count), matvec=column, rmatvec=column, matmat=columns, rmatmat=columns, dtype=near.dtype
        )

    # ---- description ----------------------------------------------------------------------------------

    def explain(self) -> str:
        """Return the parameters, their predicted errors, the memory, and the methods of the plan.

        Examples
        --------
        >>> import numpy as np
        >>> from particlemesh.apps.brownian import RPY
        >>> print(RPY((8.0, 8.0, 8.0)).set_positions(np.zeros((1, 3))).explain())  # doctest: +ELLIPSIS
        splitting ..., predicted error ...
        near part: ...
        """
        near, p = self._ready(), self.parameters
        assert p is not None
        nodes, parts = " x ".join(map(str, p.shape)), len(self._far.radii)
        errors = f"predicted error {p.error:.1e} (near {p.near_error:.1e}, far {p.far_error:.1e})"
        forms = f"{parts} form factor{'s' * (parts > 1)}"
        lines = [
            f"splitting {p.splitting:.4g}, {errors}",
            f"near part: cutoff {p.cutoff:.4g}, {near.pairs:,} blocks, {near.nbytes:,} bytes",
            f"far part: {nodes} nodes, {p.window.name}, {forms}, {self._far.nbytes:,} bytes",
            self._far.solver.plan.explain(),
        ]
        return "\n".join(lines)
