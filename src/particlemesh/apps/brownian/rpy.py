# SPDX-License-Identifier: BSD-3-Clause
"""The periodic Rotne-Prager-Yamakawa mobility: velocities of forces on spheres in a viscous fluid, and their noise."""

from __future__ import annotations

import functools
from typing import Any

from particlemesh import kernels
from particlemesh.apps.brownian.mobility import Mobility
from particlemesh.apps.brownian.square_root import square_root
from particlemesh.kernels import alone, checks

METHODS = ("lanczos", "split")


class RPY(Mobility):
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
        near = self._ready()
        checks.one_of(method, "method", METHODS)
        tolerance = checks.positive(tolerance, "tolerance")
        if (waves is None) != (method == "lanczos"):
            state = "missing" if waves is None else "given"
            raise ValueError(f"waves are {state} with method={method!r}; 'split' needs them, 'lanczos' has none.")
        core = (self.count, 3)
        operand = self._taken(z, core, "z")
        shape = (3, *self._far.mesh.shape)
        more = None
        if waves is not None:
            more = self._taken(waves, shape, "waves")
            if more.batch != operand.batch:
                raise ValueError(f"waves have leading axes {more.batch} and z has {operand.batch}: give the same.")
        with self._in_order(operand, *([] if more is None else [more])):
            result = kernels.give(None, operand, operand.batch + core)
            numbers, xp = self._like_numpy(self._rows(operand, "z", check))
            product = functools.partial(self._image, self._multiply_near if more else self._multiply)
            flat = numbers.reshape(len(numbers), 3 * self.count)
            root, info = square_root(product, flat, tolerance, xp, method=method, least=10 * self.accuracy)
            root = root.reshape(numbers.shape)
            if more is not None:
                if self._product is not None:
                    self._product.forget()
                parts, _ = self._like_numpy(self._far.sample(more.native.reshape((len(numbers), *shape))))
                parts = self._in_callers_order(parts, xp)
                weights = self._far.weights
                scale = 1 if weights is None else xp.asarray(weights.astype(near.dtype))[:, :, None]
                root = root + (scale * parts).sum(1)
            native = root if near.backend.name != "opencl" else near.backend.upload(root)
            near.backend.copy(result.native, native.reshape(tuple(result.native.shape)))
            self._info = info
            return result.finish()

    def _image(self, multiply: Any, vectors: Any) -> Any:
        """Return the products of vectors (b, 3 N), arrays of the library of :meth:`_like_numpy`."""
        near = self._ready()
        force = vectors.reshape(len(vectors), self.count, 3)
        if not force.flags.c_contiguous:
            force = force.copy()
        if near.backend.name == "opencl":
            force = near.backend.upload(force)
        velocity = near.backend.empty(tuple(force.shape), near.dtype)
        multiply(force, velocity)
        return self._like_numpy(velocity)[0].reshape(vectors.shape)

    def noise(self, generator: Any, *batch: int, tolerance: float = 1e-3, method: str = "split") -> Any:
        r"""Return vectors whose covariance is the mobility, from a generator of random numbers.

        Parameters
        ----------
        generator : numpy.random.Generator or cupy.random.Generator
            CuPy's for spheres on a GPU. The same state of the generator gives the same numbers.
        \*batch : int
            Leading axes.
        tolerance, method
            As for :meth:`square_root`.

        Returns
        -------
        array (\*batch, N, 3)
            Of the generator's library.

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

        def normal(*shape: int) -> Any:
            return generator.standard_normal((*batch, *shape), dtype=near.dtype)

        z = normal(self.count, 3)
        waves = normal(3, *self._far.mesh.shape) if method == "split" else None
        return self.square_root(z, tolerance=tolerance, method=method, waves=waves, check=False)
