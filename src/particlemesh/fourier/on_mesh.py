# SPDX-License-Identifier: BSD-3-Clause
"""A solver's work on the mesh alone, for programs that spread and interpolate in their own way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from particlemesh import checks
from particlemesh.arrays import operands
from particlemesh.busy import alone
from particlemesh.fourier.engines import plain
from particlemesh.fourier.work import outputs, same_positions


class OnMesh(checks.Fixed):
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
    _strain: Any

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
        return self._on_mesh(field, (out,))[0]

    @alone
    def potential_field_virial(self, field: Any, *, out: tuple[Any, Any] | None = None) -> tuple[Any, Any]:
        """Return the potential at the nodes and the virial of the energy ``sum(field * potential) / 2``.

        As for :meth:`potential_gradient_virial`, the virial is the derivative of this energy by a strain. The sums at
        the nodes stay as they are, as those of values at particles that move with the box.

        Parameters
        ----------
        field : array (..., *plan.mesh.field_shape)
            As for :meth:`potential_field`.
        out : tuple of arrays (..., *plan.mesh.field_shape), (..., d, d), optional

        Returns
        -------
        potential : array (..., *plan.mesh.field_shape)
        virial : array (..., d, d)
            With systems, (..., systems, d, d).

        Raises
        ------
        ValueError, TypeError
            As for :meth:`potential_field`, and if an axis is open.

        Examples
        --------
        >>> import numpy as np, particlemesh as pm
        >>> from particlemesh.fourier import Solver
        >>> solver = Solver(pm.Mesh((16, 16), (1.0, 1.0)), green="ewald", alpha=6.0)
        >>> x, q = np.random.default_rng(1).random((5, 2)), np.ones(5)
        >>> plan = solver.set_positions(x).plan
        >>> _, virial = solver.potential_field_virial(plan.spread(q))
        >>> bool(np.allclose(virial, solver.potential_gradient_virial(q)[2]))
        True
        """
        potential, virial = self._on_mesh(field, outputs(out, "potential", "virial"))
        return potential, virial

    def _on_mesh(self, field: Any, outs: Sequence[Any]) -> list[Any]:
        """Return the potential at the nodes, and the virial if there is a second output."""
        if len(self._plans) > 1:
            raise ValueError("an interlaced solver has two meshes: make one without, or call potential.")
        work = self._ready()
        same_positions(self._plans, self._set, self._rows is not None)
        strain = self._strain(work) if len(outs) > 1 else None
        operands.check_apart(*(o for o in outs if o is not None))
        core, upload = (*self._stack, *self._wide.field_shape), self.plan.uploads
        operand = operands.take(field, core, len(core), work.dtype, work.owner, "field", upload=upload)
        if operand.native.dtype != work.dtype:
            raise TypeError("the field is complex; give real and imaginary parts as two fields.")
        with operand.kind.scope(field), work.backend.scope(operand.native):
            self._token = work.backend.follow(self._token)
            cores = (core, (*self._stack, *(self.plan.mesh.ndim,) * 2))
            results = [
                operands.give(
                    o, operand, operand.batch + c, len(c), len(c), work.owner, accumulate=False, upload=upload
                )
                for o, c in zip(outs, cores, strict=False)
            ]
            given, target = operand.native, results[0].native
            whole = None if plain(given) and plain(target) else work.take("field", operand.batch, work.field_shape)
            if self._modes.padded or whole is not None:
                whole = work.take("field", operand.batch, work.field_shape)
                if self._modes.padded:
                    work.backend.clear(whole)
                work.backend.copy(whole[self._inner()], given)
                given = whole
            spectrum = work.forward(given, operand.batch)
            if strain is not None:
                work.write_virial(strain, spectrum, results[1].native)
            flat = spectrum.reshape(-1, *work.spectrum_shape)
            work.factors(flat, flat)
            potential = work.engine.backward(spectrum, target if whole is None else whole)
            if whole is not None:
                work.backend.copy(target, potential[self._inner()])
            work.backend.mark(operand.native, *(r.native for r in results))
            return [r.finish() for r in results]
