# SPDX-License-Identifier: BSD-3-Clause
"""Fields of integers: sums that depend neither on the order of particles nor on how a mesh is cut into parts."""

from __future__ import annotations

from typing import Any

from particlemesh.calls import Calls


class Integers(Calls):
    """A plan with sums in integers, and without its other verbs: see :class:`particlemesh.Plan`.

    Many processes, of which each has particles and nodes of its own, get the field of one process bit by bit:

    1. Each makes a plan on a part of the mesh (:meth:`particlemesh.Mesh.part`), and sets positions.
    2. Each asks for :meth:`bounds`; the elementwise maximum of all these arrays bounds the whole field.
    3. Each spreads with this maximum into integers (:meth:`spread_integers`). Integers of one node are added.
    4. :meth:`convert` makes real or complex numbers of the sums.
    """

    def bounds(self, values: Any, *, derivative: int = 0) -> Any:
        """Return what bounds the sums of :meth:`spread_integers`; never waits for the device.

        Entry 0 is an exponent n: of values below 1 any node gets a sum below 2**n. It follows from the window and the
        largest number of particles in one cell, which are those whose stencils begin at the same node. Each further
        entry is an exponent e for one real of the values: all of them are below 2**e. The array's elementwise maximum
        over parts does not depend on the cuts, if all particles of a cell are in one part.

        Parameters
        ----------
        values : array (..., N), or (..., N, d) or (..., N, d, d) for derivatives
            As for :meth:`spread`, :meth:`spread_gradient` or :meth:`spread_hessian`.
        derivative : {0, 1, 2}
            Which of these.

        Returns
        -------
        int32 array (1 + R,)
            Array of the library and device of ``values``. R is the number of fields, twice that for complex values,
            where each real part is followed by its imaginary part. An entry is 2**20 if any value was not finite.
        """
        raise NotImplementedError

    def spread_integers(
        self, values: Any, bounds: Any, *, derivative: int = 0, out: Any = None, accumulate: bool = False
    ) -> Any:
        """Spread values into a field of 64-bit integers.

        Each particle's contribution to a node is multiplied by ``2**(62 - bounds[0] - bounds[1 + r])`` for real r and
        rounded to an integer. Sums of integers are exact, in any order. They cannot overflow if ``bounds`` holds for
        all particles of the whole mesh.

        Parameters
        ----------
        values, derivative
            As for :meth:`bounds`.
        bounds : int32 array (1 + R,)
            From :meth:`bounds`, or the maximum of such arrays over parts.
        out : int64 array of the result's shape, optional
            Written (or added to, with ``accumulate``) and returned; any memory order.
        accumulate : bool
            Add to ``out`` instead of overwriting it.

        Returns
        -------
        int64 array (..., *mesh.field_shape), or (..., 2, *mesh.field_shape) for complex values
            Array of the library and device of ``values``.
        """
        raise NotImplementedError

    def convert(self, integers: Any, bounds: Any, *, dtype: Any = None, out: Any = None) -> Any:
        """Return the field that integers stand for: ``integers * 2**(bounds[0] + bounds[1 + r] - 62)``, rounded once.

        Parameters
        ----------
        integers : int64 array (..., *nodes), or (..., 2, *nodes) for a complex dtype
            From :meth:`spread_integers`, or sums of these. The last d axes may have any lengths.
        bounds : int32 array (1 + R,)
            The same as for :meth:`spread_integers`.
        dtype : dtype, optional
            The plan's real type by default, or the complex type of the same precision.
        out : array of the result's shape, optional
            Written and returned; any memory order.

        Returns
        -------
        array (..., *nodes)
            NaN for each real whose bound says that values were not finite.
        """
        raise NotImplementedError
