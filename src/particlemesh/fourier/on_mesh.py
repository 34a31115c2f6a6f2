# SPDX-License-Identifier: BSD-3-Clause
"""A solver's work on the mesh alone, for programs that spread and interpolate in their own way."""

from __future__ import annotations

from typing import Any

from particlemesh.arrays import operands
from particlemesh.busy import alone
from particlemesh.fourier.engines import plain
from particlemesh.fourier.work import same_positions


class OnMesh:
    """The base of :class:`particlemesh.fourier.Solver` with what begins and ends at the nodes."""

    plan: Any
    _plans: list[Any]
    _modes: Any
    _stack: tuple[int, ...]
    _wide: Any
    _set: list[Any]
    _rows: Any
    _token: Any
    _ready: Any

    def _inner(self) -> tuple[Any, ...]:
        """Return the place of the nodes in a padded field."""
        return (..., *(slice(0, n) for n in self._wide.field_shape))

    @alone
    def potential_field(self, field: Any, *, out: Any = None) -> Any:
        """Return the potential at the nodes of what was spread there.

        Between ``plan.spread`` and ``plan.interpolate`` this makes what :meth:`potential` makes. Dipoles, for example,
        are spread by ``plan.spread_gradient``, and second derivatives are interpolated.

        Parameters
        ----------
        field : array (..., *plan.mesh.field_shape)
            Sums of values at the nodes, as spread. With systems, the axis before the last ones has theirs.
        out : array of the same shape, optional
            Other memory than that of ``field``.

        Returns
        -------
        array
            Of the library and device of ``field``.

        Raises
        ------
        ValueError, TypeError
            If the shape or type does not fit, or the solver is interlaced, which has two meshes.

        Examples
        --------
        >>> import numpy as np, particlemesh as pm
        >>> from particlemesh.fourier import Solver
        >>> solver = Solver(pm.Mesh((16, 16), (1.0, 1.0)), green="ewald", alpha=6.0)
        >>> x, q = np.random.default_rng(1).random((5, 2)), np.ones(5)
        >>> plan = solver.set_positions(x).plan
        >>> phi = plan.interpolate(solver.potential_field(plan.spread(q)))
        >>> bool(np.allclose(phi, solver.potential(q)))
        True
        """
        if len(self._plans) > 1:
            raise ValueError("an interlaced solver has two meshes: make one without, or call potential.")
        work = self._ready()
        same_positions(self._plans, self._set, self._rows is not None)
        core, upload = (*self._stack, *self._wide.field_shape), self.plan._named is not None
        operand = operands.take(field, core, len(core), work.dtype, work.owner, "field", upload=upload)
        if operand.native.dtype != work.dtype:
            raise TypeError("the field is complex; give real and imaginary parts as two fields.")
        with operand.kind.scope(field), work.backend.scope(operand.native):
            self._token = work.backend.follow(self._token)
            result = operands.give(
                out, operand, operand.batch + core, len(core), len(core), work.owner, accumulate=False, upload=upload
            )
            given, target = operand.native, result.native
            whole = None if plain(given) and plain(target) else work.take("field", operand.batch, work.field_shape)
            if self._modes.padded or whole is not None:
                whole = work.take("field", operand.batch, work.field_shape)
                if self._modes.padded:
                    work.backend.clear(whole)
                work.backend.copy(whole[self._inner()], given)
                given = whole
            spectrum = work.forward(given, operand.batch)
            flat = spectrum.reshape(-1, *work.spectrum_shape)
            work.factors(flat, flat)
            potential = work.engine.backward(spectrum, target if whole is None else whole)
            if whole is not None:
                work.backend.copy(target, potential[self._inner()])
            work.backend.mark(operand.native, target)
            return result.finish()
