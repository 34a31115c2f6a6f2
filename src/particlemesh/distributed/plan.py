# SPDX-License-Identifier: BSD-3-Clause
"""A plan over many ranks: the verbs of the local plan, on a mesh that is cut into parts."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np

from particlemesh import checks
from particlemesh.busy import alone
from particlemesh.distributed.calls import Calls
from particlemesh.distributed.domain import Domain, hash_of
from particlemesh.distributed.routes import Route
from particlemesh.distributed.world import World
from particlemesh.particles.located import Status
from particlemesh.window import DEFAULT, Window


class Plan(Calls):
    """Spread and interpolate on a mesh whose parts belong to many ranks.

    Any rank may give any particles. They travel to the owners of their cells, and results come back to the caller's
    rank and order. A field is an array for the nodes of this rank's part, or a tuple with one for each of its parts.

    All methods are collective, except ``explain`` and the attributes. Each works on its rank first, then all agree that
    none has failed, then they communicate: if one rank raises, all others raise a :class:`RankError`.

    Parameters
    ----------
    domain : Domain
        The mesh and its parts.
    world : World, optional
        The ranks; a single one by default.
    window : Window or str
        As for :class:`particlemesh.Plan`, and so are ``dtype``, ``components``, ``applications``, ``method``,
        ``interpolation``, ``backend``, ``threads`` and ``options``.
    ghosts : {"nodes", "particles", "replicated"}
        What ranks exchange in calls. With ``"nodes"`` parts have ghost nodes: their sums go to the owners of these
        nodes, or their values come from there. With ``"particles"`` every part gets the particles that reach it; that
        is less where particles are few. With ``"replicated"`` each rank has the whole mesh and keeps its particles,
        for small meshes. Results are the same to rounding.
    deterministic : bool
        If True, fields and interpolated values are bit-identical for any number of ranks, any cuts, and any rank and
        order of the particles. Spreading sums integers. It needs ``ghosts="nodes"``. Otherwise they are bit-identical
        for the same cuts and particles, if the local methods are reproducible.
    check : bool
        If False, calls for values do not agree before they communicate, which saves one small reduction. Then an error
        on one rank leaves the others waiting, and all ranks must give arrays of one dtype, also without particles.

    Attributes
    ----------
    domain : Domain
    world : World
    window : Window
    ghosts : str
    route : Route
        The way of particles from the ranks that set them to the owners of their cells. Programs that hand over their
        particles with ``route.send`` and set positions there move strays only.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed; the message lists what is.
    RankError
        If another rank raised, or makes another plan.

    References
    ----------
    Ghost particles, and several parts for each process, are those of [buyukkececi2013]_.

    Examples
    --------
    >>> import numpy as np, particlemesh as pm
    >>> from particlemesh import distributed as pmd
    >>> mesh = pm.Mesh((8, 8), (1.0, 1.0))
    >>> world = pmd.World()
    >>> plan = pmd.Plan(pmd.Domain(mesh, world.size), world, "cic")
    >>> field = plan.set_positions([[0.5, 0.5], [0.1, 0.9]]).spread(np.array([1.0, -3.0]))
    >>> float(round(world.allreduce(field.sum()), 12))
    -2.0
    >>> plan.interpolate(field).round(2)
    array([ 1.  , -1.39])
    """

    def __init__(
        self,
        domain: Domain,
        world: World | None = None,
        window: Window | str = DEFAULT,
        *,
        ghosts: str = "nodes",
        dtype: Any = None,
        components: int = 1,
        applications: int = 1,
        method: str = "auto",
        interpolation: str = "auto",
        backend: str | None = None,
        deterministic: bool = False,
        threads: int | None = None,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        check: bool = True,
    ) -> None:
        self.busy = threading.RLock()
        self.world = World() if world is None else world
        settings = dict(
            dtype=dtype, components=components, applications=applications, method=method, interpolation=interpolation,
            backend=backend, deterministic=deterministic, threads=threads, options=options,
        )  # fmt: skip
        same = f"Plan({domain!r}, cuts {hash_of(domain)}, {window!r}, {ghosts=}, {deterministic=}, {dtype=}, {check=})"
        with self.world.agreement(same):
            self._build(domain, window, ghosts, settings, check)

    # ---- positions ------------------------------------------------------------------------------------

    @alone
    def set_positions(self, positions: Any, *, check: bool = True) -> Self:
        """Set the positions of this rank's particles, which travel to the owners of their cells.

        Parameters
        ----------
        positions : array (N, d), tuple of d arrays (N,), or array (N,) in 1-D
            Any particles, also none. N differs between ranks; the dtype does not, nor whether they are on a device.
        check : bool
            If False, particles that are not finite or off an open axis get zero weight and are recorded in
            :attr:`status`. Ranks still agree on errors, because numbers of particles are exchanged.

        Returns
        -------
        Plan
            The plan itself.

        Raises
        ------
        ValueError
            If a position is not finite or outside an open axis. The plan keeps its previous positions on all ranks.
        RankError
            If another rank raised. If its local plan did, for lack of memory, the plan has no positions afterwards.
        """
        self._set_positions(positions, check)
        return self

    @alone
    def reserve(self, count: int) -> None:
        """Allocate for up to ``count`` particles in each part, so that local plans allocate nothing later.

        The plan of guests, which come from other ranks while most particles stay in place, allocates as they come.

        Raises
        ------
        ValueError
            If the backend or dtype is not known yet: give them to the plan, or set positions first.
        """
        with self.world.agreement("reserve"):
            self._open()
            for plan in self._plans:
                if plan is not None:
                    plan.reserve(count)

    @property
    def count(self) -> int:
        """Number of particles that this rank has set."""
        return 0 if self._route is None else self._route.count

    @property
    def held(self) -> int:
        """Number of particles whose cells this rank owns; other ranks may have set them."""
        return 0 if self._owners is None else self._owners.arrived

    @property
    def route(self) -> Route:
        """The way of particles to the owners of their cells."""
        self._ready()
        assert self._owners is not None
        return self._owners

    @property
    @alone
    def status(self) -> Status:
        """Counts of bad particles of all ranks in the last :meth:`set_positions`; collective.

        ``first_bad`` is the index on the first rank that set bad particles.
        """
        with self.world.agreement("status"):
            self._ready()
            values_bad = any(plan.status.non_finite_values for plan in self._local())
        total = np.array([self.count, *self._bad_here[1:], values_bad], np.int64)
        count, not_finite, outside, values = self.world.allreduce(total).tolist()
        firsts = [first for first in self.world.allgather(self._bad_here[0]) if first >= 0]
        return Status(count, not_finite, outside, firsts[0] if firsts else -1, values > 0)

    def check(self) -> None:
        """Raise an error on all ranks for bad positions and values that unchecked calls have recorded."""
        status = self.status
        if status.not_finite or status.outside:
            raise checks.bad_positions(status, None, self.domain.mesh, unchecked=True)
        if status.non_finite_values:
            raise ValueError("values were not all finite; the field is NaN everywhere: give finite values.")

    @alone
    def counts(self, positions: Any, boxes: int = 32) -> np.ndarray:
        """Return how many particles of all ranks lie in boxes of nodes, for :meth:`Domain.balanced`.

        Parameters
        ----------
        positions : array (N, d), tuple of d arrays (N,), or array (N,) in 1-D
            Those of this rank.
        boxes : int
            Boxes along each axis at most; an axis has as many boxes as nodes, if these are fewer.

        Returns
        -------
        (n1, ..., nd) int64 array
            The same on every rank.

        Examples
        --------
        >>> import particlemesh as pm
        >>> from particlemesh import distributed as pmd
        >>> plan = pmd.Plan(pmd.Domain(pm.Mesh(8, 1.0), 1), window="cic")
        >>> plan.counts([0.1, 0.2, 0.9], boxes=4)
        array([2, 0, 0, 1])
        """
        mesh = self.domain.mesh
        with self.world.agreement(f"counts in {boxes} boxes"):
            self._open()
            shape = [min(checks.integer(boxes, "boxes", 1, 2**20), nodes) for nodes in mesh.shape]
            cells = self._cells(positions, True)
            box = 0
            for axis, cell in enumerate(cells):
                nodes = mesh.shape[axis]
                inside = cell.astype(np.int64) % nodes if mesh.periodic[axis] else cell.clip(0, nodes - 1)
                ends = np.arange(1, shape[axis] + 1) * nodes // shape[axis]
                box = box * shape[axis] + self._module(cell).searchsorted(
                    self._module(cell).asarray(ends), inside, "right"
                )
            here = self._module(cells[0]).bincount(box, minlength=math.prod(shape))
            here = here if isinstance(here, np.ndarray) else here.get()
        return self.world.allreduce(here.astype(np.int64)).reshape(shape)

    # ---- values ---------------------------------------------------------------------------------------

    def spread(self, values: Any, *, out: Any = None, accumulate: bool = False) -> Any:
        """Spread values onto the mesh: ``field[m] = sum_p W(x_m - x_p) values[p]``, over the particles of all ranks.

        Parameters
        ----------
        values : array (..., N)
            Those of this rank's particles, in the order in which it set them. Real or complex.
        out : array (..., *part), or tuple of them, optional
            Written (or added to, with ``accumulate``) and returned.
        accumulate : bool
            Add to ``out`` instead of overwriting it.

        Returns
        -------
        array (..., *part), or tuple with one for each part of this rank
            Of the library and dtype of ``values``.
        """
        return self._spread(values, 0, out, accumulate)

    def spread_gradient(self, vectors: Any, *, out: Any = None, accumulate: bool = False) -> Any:
        """Spread vectors (..., N, d) with the window's derivative: the adjoint of :meth:`gradient`."""
        return self._spread(vectors, 1, out, accumulate)

    def spread_hessian(self, tensors: Any, *, out: Any = None, accumulate: bool = False) -> Any:
        """Spread tensors (..., N, d, d) with the window's second derivatives: the adjoint of :meth:`hessian`."""
        return self._spread(tensors, 2, out, accumulate)

    def interpolate(self, field: Any, *, out: Any = None) -> Any:
        """Interpolate a field at this rank's particles: ``values[p] = sum_m W(x_m - x_p) field[m]``.

        Parameters
        ----------
        field : array (..., *part), or tuple with one for each part of this rank
        out : array (..., N), optional

        Returns
        -------
        array (..., N)
            In the order in which this rank set its positions.
        """
        return self._interpolate(field, (0,), None if out is None else (out,))[0]

    def gradient(self, field: Any, *, out: Any = None) -> Any:
        """Interpolate a field's gradient (..., N, d) at this rank's particles, per user length unit."""
        return self._interpolate(field, (1,), None if out is None else (out,))[0]

    def hessian(self, field: Any, *, out: Any = None) -> Any:
        """Interpolate a field's second derivatives (..., N, d, d), per user length unit squared."""
        return self._interpolate(field, (2,), None if out is None else (out,))[0]

    def value_and_gradient(self, field: Any, *, out: tuple[Any, Any] | None = None) -> tuple[Any, ...]:
        """Interpolate value and gradient with one exchange; see :meth:`interpolate` and :meth:`gradient`."""
        return self._interpolate(field, (0, 1), out)

    def value_gradient_hessian(self, field: Any, *, out: tuple[Any, Any, Any] | None = None) -> tuple[Any, ...]:
        """Interpolate value, gradient and second derivatives with one exchange; see :meth:`hessian`."""
        return self._interpolate(field, (0, 1, 2), out)

    # ---- what it is -----------------------------------------------------------------------------------

    @alone
    def explain(self) -> str:
        """Return the parts of this rank, what it exchanges in a call, and the methods of its first part.

        Not collective.
        """
        self._ready()
        rank, lines = self.world.rank, [f"rank {self.world.rank} of {self.world.size}, {self.world.transport}"]
        for part, n in zip(self.domain.parts(rank), self.particles_by_part, strict=False):
            lines.append(f"part {' x '.join(map(str, part.shape))} from {part.lower}: {n:,} particles")
        lines.append(f"particles: {self.count:,} set here, {self.route.moved:,} of them leave, {self.held:,} held")
        owned, sent = sum(part.size for part in self.domain.parts(rank)), self._windows.nodes()
        share = f", {sent / owned:.1%} of its own" if owned else ""
        lines.append(f"ghosts {self.ghosts!r}: {sent:,} nodes sent to fill, received to fold{share}")
        tables = [plan.explain() for plan in self._plans if plan is not None]
        return "\n".join(lines + tables[:1])

    def __repr__(self) -> str:
        state = (
            "closed" if self._closed else "no particles" if self._route is None else f"{self.count:,} particles here"
        )
        return f"<Plan over ranks: {self.domain!r}, {self.window.name}, ghosts {self.ghosts!r}; {state}>"

    @property
    def nbytes(self) -> int:
        """Bytes of local plans and buffers on this rank."""
        return self._windows.nbytes + sum(plan.nbytes for plan in (*self._plans, self._guests) if plan is not None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @alone
    def close(self) -> None:
        """Release the plan's memory on this rank; not collective. Later calls raise a RuntimeError."""
        self._closed, self._route, self._owners = True, None, None
        for plan in (*self._plans, self._guests):
            if plan is not None:
                plan.close()
