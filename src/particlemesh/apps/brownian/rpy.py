# SPDX-License-Identifier: BSD-3-Clause
"""The periodic Rotne-Prager-Yamakawa mobility: velocities of forces on spheres in a viscous fluid, and their noise."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections.abc import Callable
from typing import Any, Self, TypeVar

import numpy as np

import particlemesh as pm
from particlemesh import kernels
from particlemesh.apps.brownian.arrays import like_numpy, uploaded
from particlemesh.apps.brownian.drag import radii
from particlemesh.apps.brownian.far import Far
from particlemesh.apps.brownian.near import Near, Product
from particlemesh.apps.brownian.parameters import Parameters, for_system
from particlemesh.apps.brownian.square_root import RootInfo, square_root
from particlemesh.kernels import allocate, alone, checks

METHODS = ("lanczos", "split")
T = TypeVar("T")


def check_generator(generator: Any) -> None:
    """Raise a TypeError if a generator draws no normal numbers."""
    if not hasattr(generator, "standard_normal"):
        raise TypeError(f"generator is {generator!r}; give one, such as numpy.random.default_rng(1).")


class RPY(kernels.Fixed):
    r"""Velocities that forces cause on spheres in a periodic viscous fluid, and noise of their covariance.

    The mobility is that of Rotne, Prager and Yamakawa, summed over all images. It is for spheres of one or of many
    radii, also where they overlap [zuk2014]_. The mean flow through the box is zero. The mobility is a near part,
    stored as a sparse matrix, and a far part on a mesh, by Hasimoto's splitting. Both parts are positive
    [fiore2017]_, so that the noise of the far part is exact and cheap.

    Only one thread may use a mobility at a time. Parameters that are not given are chosen at the first positions, and
    again when the number of spheres has doubled or halved.

    Parameters
    ----------
    box : Box, lengths or matrix
        The domain of three periodic axes, orthorhombic or triclinic.
    radius : number or array (N,)
        Radius of all spheres, or of each.
    viscosity : number
        Of the fluid. With the default a sphere of radius 1 alone in infinite fluid has mobility 1.
    accuracy : number
        Root mean square error of velocities of random forces, relative to that of a single sphere in the box. The least
        is 1e-13, with float32 3e-6.
    splitting : number, optional
        Inverse length xi that divides near from far.
    cutoff : number, optional
        Largest distance of the near part, in the box's unit; any number of images is served.
    shape : ints, optional
        Nodes of the mesh along each axis.
    window : Window or str, optional
        A B-spline by default.
    applications : int
        Expected products per configuration; it steers the methods of spreading and interpolation.
    vectors : int
        Expected right-hand sides of a product. On GPUs many of them favour a coarse mesh and a long cutoff.
    backend : {"cpu", "cuda", "opencl"}, optional
        By default where the arrays are. If named, host arrays are copied there and back.
    threads : int, optional
        Most threads on the CPU.
    **options
        Further options of :class:`particlemesh.Plan`, such as ``method`` and ``deterministic``.

    Attributes
    ----------
    box : Box
    radii : NumPy array (1,) or (N,)
    viscosity, accuracy : float
    parameters : Parameters or None
        What was chosen: ``splitting``, ``cutoff``, ``shape``, ``window``, ``error``.
    count : int
        Spheres.
    info : RootInfo or None
        Iterations and error estimate of the last square root.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed; the message says what is.

    Examples
    --------
    >>> import numpy as np
    >>> from particlemesh.apps.brownian import RPY
    >>> rpy = RPY((8.0, 8.0, 8.0), accuracy=1e-8).set_positions(np.array([[1.0, 2.0, 3.0], [1.0, 2.0, 6.0]]))
    >>> velocity = rpy.velocity(np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]))
    >>> velocity[:, 2].round(6)
    array([0.653519, 0.195118])
    """

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
                f"the box is {self.box.ndim}-D, periodic {self.box.periodic}; this mobility needs three periodic axes."
            )
        self.radii, self._many = np.atleast_1d(self._checked_radii(radius)), bool(np.ndim(radius))
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
        self._count, self._share = 0, (0, 0)  # the first sphere's number, and all spheres
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

    def in_box(self, box: Any) -> Self:
        """Return a mobility with the same arguments in another box, and with the parameters that were chosen.

        A box that shear deforms is a new one in each step. Choosing parameters again would take most of the time.

        Parameters
        ----------
        box : Box, lengths or matrix
            Of similar size and shape. If it is not, parameters miss the accuracy: make a new mobility.

        Returns
        -------
        RPY
            Without positions.

        Examples
        --------
        >>> import numpy as np
        >>> from particlemesh.apps.brownian import RPY
        >>> rpy = RPY((8.0, 8.0, 8.0)).set_positions(np.zeros((1, 3)))
        >>> sheared = rpy.in_box([[8.0, 0.0, 0.0], [1.0, 8.0, 0.0], [0.0, 0.0, 8.0]]).set_positions(np.zeros((1, 3)))
        >>> sheared.parameters.shape == rpy.parameters.shape
        True
        """
        return type(self)(**{**self.settings(), "box": box})

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
        RPY
            The mobility itself.

        Raises
        ------
        ValueError
            If a position is not finite, or there is not one radius per sphere. Earlier positions stay.
        MemoryError
            If the near part does not fit into memory.
        """

        def accepted() -> tuple[str, kernels.Operand]:
            x = kernels.take(positions, (None, 3), "positions", batch=False, backend=self._home, upload=self._uploads)
            count = x.shape[0]
            if len(self.radii) not in (count, 1 if self._ranks is None or not self._many else count):
                raise ValueError(
                    f"there are {count} positions and {len(self.radii)} radii: give one radius per sphere."
                )
            return f"positions of spheres in {x.dtype} on {x.backend.name!r}", x

        x = self._alike(accepted)
        near, far, grid, chosen, product = self._near, self._far, self._grid, self.parameters, self._product
        with self._in_order(x):
            known = near is not None and near.backend is x.backend and near.dtype == x.dtype
            same, share = self._among(known, x.shape[0])
            if not (same and self._chosen_for / 2 <= share[1] <= self._chosen_for * 2):
                chosen, near, far, grid, product = self._parts_for(x, share[1])
            assert near is not None and chosen is not None
            if product is not None:
                product.forget()  # its graph has memory that may be replaced below
            grid.build(x.native)
            places, rows = self._rows_of(x, chosen, near, grid, share[0])
            far.place(x.backend, x.dtype, places)
            near.place(*rows)
        if chosen is not self.parameters:
            self._chosen_for = max(share[1], 1)
        self._parameters, self._far, self._grid, self._near, self._count = chosen, far, grid, near, x.shape[0]
        self._product, self._share = product, share
        return self

    def _among(self, same: bool, count: int) -> tuple[bool, tuple[int, int]]:
        """Return whether earlier parameters serve, the number of the first of ``count`` spheres, and of all."""
        return same, (0, count)

    def _parts_for(self, x: kernels.Operand, total: int) -> tuple[Parameters, Near, Any, Any, Product | None]:
        """Return parameters, both parts, the grid, and products on a GPU."""
        chosen = self._chosen(x, self.radii, total)
        near = Near(x.backend, x.dtype, self.radii, chosen.splitting, self.viscosity, self._threads)
        far = Far(
            self.box, self.radii, chosen.splitting, self.viscosity, chosen.shape, chosen.window,
            max(self.accuracy, chosen.error) / 10, self._plan_options,
        )  # fmt: skip
        product = None if x.backend.name == "cpu" else Product(near, far)
        return chosen, near, far, self._cells(chosen.cutoff), product

    def _chosen(self, x: kernels.Operand, every: np.ndarray, total: int) -> Parameters:
        return for_system(
            self.box, every, total, self.accuracy, x.dtype, x.backend, self._given,
            self._plan_options["applications"], self._vectors,
        )  # fmt: skip

    def _rows_of(self, x: kernels.Operand, chosen: Parameters, near: Near, grid: Any, first: int) -> tuple[Any, Any]:
        """Return positions in the far part's order, and what the near part takes."""
        order, places, count, on_host = None, x.native, x.shape[0], x.backend.name == "cpu"
        pairs = grid.pairs(chosen.cutoff, order="input" if on_host else "grid", quantities="jD")
        if not on_host:
            order = allocate(x.backend, (count,), np.int32, "the order of spheres")
            x.backend.copy(order, grid.order)
            places = grid.positions
        return places, (count, near.blocks(count, pairs.start, pairs.j, pairs.vector, order), order)

    def _cells(self, cutoff: float) -> pm.UniformGrid:
        thinnest = float((1 / np.linalg.norm(self.box.inverse, axis=1)).min())
        return pm.UniformGrid(
            self.box, cell_size=min(cutoff / 2, thinnest), threads=self._threads, deterministic=self._reproducible
        )

    @property
    def _reproducible(self) -> bool:
        return bool(self._plan_options.get("deterministic", False))

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

        def accepted() -> tuple[str, tuple[Any, ...]]:
            self._ready()
            core = (self.count, 3)
            operand = self._taken(forces, core, "forces")
            with self._in_order(operand, out):
                result = kernels.give(out, operand, operand.batch + core)
                return f"velocity of {operand.batch}", (operand, result, self._rows(operand, "forces", check))

        operand, result, force = self._alike(accepted)
        with self._in_order(operand, out):
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
            host, xp = like_numpy(self._ready().backend, rows)
            if not bool(xp.isfinite(host).all()):
                bad = int(xp.flatnonzero(~xp.isfinite(host).all((0, 2)))[0])
                raise ValueError(f"{what} are not all finite; sphere {bad} is the first: give finite numbers.")
        return rows

    def _multiply(self, force: Any, velocity: Any, far: bool = True) -> None:
        """Write the velocities of forces, both dense native arrays (b, N, 3), by the near part alone or both."""
        shapes = self._far.shapes
        if self._product is not None:
            self._product.multiply(force, velocity, far=far)
        elif len(force):
            self._multiply_near(self._ready(), force, velocity)
            if far:
                parts = force[:, None] if shapes is None else shapes[:, :, None] * force[:, None]
                flow = self._far.velocity(parts)
                velocity += flow[:, 0] if shapes is None else (shapes[:, :, None] * flow).sum(1)

    def _multiply_near(self, near: Near, force: Any, velocity: Any) -> None:
        near.multiply(force, velocity)

    def _in_callers_order(self, rows: Any, xp: Any) -> Any:
        """Return what the mesh gave, (b, parts, N, 3), arrays of the library of `like_numpy`."""
        order = self._ready().order
        if order is None:
            return rows
        result = xp.empty_like(rows)
        result[:, :, like_numpy(self._ready().backend, order)[0]] = rows
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

    # ---- noise ----------------------------------------------------------------------------------------

    @alone
    def square_root(
        self, z: Any, *, tolerance: float = 1e-3, method: str = "lanczos", waves: Any = None, check: bool = True
    ) -> Any:
        r"""Return vectors whose covariance is the mobility, of independent numbers of variance 1.

        Brownian velocities over a time step are ``sqrt(2 kT / dt)`` times this.

        Parameters
        ----------
        z : array (..., N, 3)
            Numbers of mean 0 and variance 1. Leading axes are vectors of one block, which converge together.
        tolerance : float
            Relative change of the result at which the Krylov iterations end.
        method : {"lanczos", "split"}
            Method "lanczos" returns ``M**(1/2) z`` by block Lanczos iterations. Method "split" samples the far part
            exactly, from ``waves``, and iterates on the near part only. This takes few cheap iterations, whatever the
            number of spheres. Its result is not ``M**(1/2) z``, but has the same covariance.
        waves : array (..., 3, \*parameters.shape)
            For "split": more such numbers, at the nodes of the mesh.
        check : bool
            Look for numbers that are not finite.

        Returns
        -------
        array (..., N, 3)
            Array of the library and device of ``z``. ``info`` has the iterations and the error estimate.

        Raises
        ------
        ValueError
            If a number is not finite, or ``waves`` is missing or superfluous.

        Examples
        --------
        >>> import numpy as np
        >>> from particlemesh.apps.brownian import RPY
        >>> rng = np.random.default_rng(1)
        >>> rpy = RPY((9.0, 9.0, 9.0)).set_positions(rng.uniform(0, 9, (20, 3)))
        >>> z = rng.normal(size=(20, 3))
        >>> twice = rpy.square_root(rpy.square_root(z, tolerance=1e-6), tolerance=1e-6)
        >>> bool(np.allclose(twice, rpy.velocity(z), atol=1e-4)), rpy.info.iterations < 20
        (True, True)
        """

        def accepted() -> tuple[str, tuple[Any, ...]]:
            given = self._numbers(z, checks.positive(tolerance, "tolerance"), method, waves, check)
            return f"square_root of {given[0].batch}, {tolerance=}, {method=}", given

        operand, more, numbers, xp = self._alike(accepted)
        near = self._ready()
        with self._in_order(operand, *([] if more is None else [more])):
            result = kernels.give(None, operand, (*operand.batch, self.count, 3))
            product = functools.partial(self._image, more is None)
            flat = numbers.reshape(len(numbers), 3 * self.count)
            root, info = square_root(
                product, flat, tolerance, xp, method=method, least=10 * self.accuracy, ranks=self._ranks,
                exact=self._ranks is not None and self._reproducible,
            )  # fmt: skip
            root = root.reshape(numbers.shape)
            if more is not None:
                if self._product is not None:
                    self._product.forget()
                flow = self._far.sample(more.native.reshape((len(numbers), *self._wave_shape())))
                parts = self._in_callers_order(like_numpy(near.backend, flow)[0], xp)
                weights = self._far.weights
                scale = 1 if weights is None else xp.asarray(weights.astype(near.dtype))[:, :, None]
                root = root + (scale * parts).sum(1)
            native = uploaded(near.backend, root)
            near.backend.copy(result.native, native.reshape(tuple(result.native.shape)))
            self._info = info
            return result.finish()

    _ranks: Any = None  # that have other spheres

    def _checked_radii(self, given: Any) -> Any:
        return radii(given)

    def _alike(self, work: Callable[[], tuple[str, T]]) -> T:
        """Return the result of local work, once no rank has failed in it."""
        return work()[1]

    def _wave_shape(self) -> tuple[int, ...]:
        return (3, *self._far.mesh.shape)

    def _numbers(self, z: Any, tolerance: float, method: str, waves: Any, check: bool) -> tuple[Any, ...]:
        """Return the operands of a square root, numbers (b, N, 3), and their library."""
        self._ready()
        checks.one_of(method, "method", METHODS)
        if (waves is None) != (method == "lanczos"):
            state = "missing" if waves is None else "given"
            raise ValueError(f"waves are {state} with method={method!r}; 'split' needs them, 'lanczos' has none.")
        operand, more = self._taken(z, (self.count, 3), "z"), None
        if waves is not None:
            more = self._taken(waves, self._wave_shape(), "waves")
            if more.batch != operand.batch:
                raise ValueError(f"waves have leading axes {more.batch} and z has {operand.batch}: give the same.")
        with self._in_order(operand, *([] if more is None else [more])):
            return operand, more, *like_numpy(self._ready().backend, self._rows(operand, "z", check))

    def _image(self, far: bool, vectors: Any) -> Any:
        """Return the products of vectors (b, 3 N), arrays of the library of `like_numpy`."""
        near = self._ready()
        force = vectors.reshape(len(vectors), self.count, 3)
        if not force.flags.c_contiguous:
            force = force.copy()
        force = uploaded(near.backend, force)
        velocity = near.backend.empty(tuple(force.shape), near.dtype)
        self._multiply(force, velocity, far)
        return like_numpy(near.backend, velocity)[0].reshape(vectors.shape)

    def noise(self, generator: Any, *batch: int, tolerance: float = 1e-3, method: str = "split") -> Any:
        r"""Return vectors whose covariance is the mobility, from a generator of random numbers.

        Parameters
        ----------
        generator : numpy.random.Generator or cupy.random.Generator
            CuPy's draws on a GPU; numbers of NumPy's are copied there. The same state gives the same numbers.
        \*batch : int
            Leading axes.
        tolerance, method
            As for :meth:`square_root`.

        Returns
        -------
        array (\*batch, N, 3)
            On the device of the spheres.

        Raises
        ------
        TypeError
            If the generator draws no normal numbers.

        Examples
        --------
        >>> import numpy as np
        >>> from particlemesh.apps.brownian import RPY
        >>> rpy = RPY((4.0, 4.0, 4.0), accuracy=1e-3).set_positions(np.zeros((1, 3)))
        >>> kicks = rpy.noise(np.random.default_rng(1), 20000)
        >>> kicks.shape, bool(abs((kicks**2).mean() - 0.3561) < 0.01)
        ((20000, 1, 3), True)
        """
        near = self._ready()
        check_generator(generator)

        def normal(*shape: int) -> Any:
            return self._sent(generator.standard_normal((*batch, *shape), dtype=near.dtype))

        z = normal(self.count, 3)
        waves = normal(3, *self._far.mesh.shape) if method == "split" else None
        return self.square_root(z, tolerance=tolerance, method=method, waves=waves, check=False)

    def _sent(self, numbers: Any) -> Any:
        """Return random numbers on the device of the spheres; a named backend copies them by itself."""
        return numbers if self._uploads else uploaded(self._ready().backend, numbers)

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
