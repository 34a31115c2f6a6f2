# SPDX-License-Identifier: BSD-3-Clause
"""Tapes: the device commands of a repeated call, recorded once and replayed."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol

MOST_TAPES = 64  # of a few kilobytes each
MOST_BYTES = 2**28  # of temporaries that the tapes of an owner keep, of one tape a quarter


# What a launch takes from an array on a CUDA device: the address of its first element, shape, strides in bytes,
# character and size of the dtype, ordinal of the device. A plain tuple: each call makes one for each of its arrays.
ArrayForm = tuple[int, tuple[int, ...], tuple[int, ...], str, int, int]


# By type of the user's arrays; a function returns None for arrays whose calls are not taped.
FORMS: dict[type, Callable[[Any], ArrayForm | None]] = {}


class Tape:
    """The commands of one call, to be replayed for arrays of the same form with the driver's overhead only.

    Commands hold the place of an array among those of the call, so each replay may be for others. A tape keeps no
    reference to the caller's arrays. It keeps all other memory that its commands use: temporaries of the call, and what
    its owner may have replaced since.

    Attributes
    ----------
    launches : list
        The commands.
    complete : bool
        False once something was submitted that is not recorded.
    results : list of (shape, dtype)
        Arrays that the call made to be returned. Each replay makes new ones, which follow the call's arrays.
    after : object
        The state of the owner after the call.
    nbytes : int
        Memory that was allocated in the call, without its results.
    """

    def __init__(self, *arrays: Any) -> None:
        self.launches: list[Any] = []
        self.complete = True
        self.results: list[tuple[tuple[int, ...], Any]] | None = None  # None: the same result is returned again
        self.after: Any = None
        self.nbytes = 0
        for array in arrays:
            self.place(array)

    def place(self, array: Any) -> None:
        """Give an array the next place."""
        raise NotImplementedError

    def play(self, stream: Any, *arrays: Any) -> None:
        """Submit all commands to a stream or queue."""
        raise NotImplementedError

    def record_call(self, call: Callable[..., None], arrays: tuple[Any, ...], on_device: bool) -> None:
        """Record a function of native arrays that submits work."""
        raise NotImplementedError


class State(Protocol):
    """What calls change in the owner of tapes beside memory on the device."""

    def key(self) -> tuple[Any, ...]:
        """Return what decides which commands a call submits."""

    def now(self) -> Any:
        """Return the state."""

    def restore(self, state: Any) -> None:
        """Return to a state that :meth:`now` returned."""


class Posted:
    """Arrays on their way to the host."""

    def __init__(self, backend: Any, arrays: tuple[Any, ...]) -> None:
        self._backend, self._arrays = backend, arrays

    def read(self) -> list[Any]:
        """Wait, and return the arrays on the host, as the last replay left them."""
        return list(self._backend.read(*self._arrays))


class Taping:
    """The part of a backend whose calls can be taped."""

    def __init__(self, kind: type[Tape]) -> None:
        self._kind = kind
        self._recording = threading.local()  # a tape belongs to one call of one thread

    @property
    def tape(self) -> Any:
        """The tape that is recording, if any."""
        return getattr(self._recording, "tape", None)

    @contextlib.contextmanager
    def taping(self, *arrays: Any, renew: bool = False) -> Iterator[Tape]:
        """Record the commands of a call with ``arrays``; the tape of an enclosing call becomes incomplete.

        With ``renew`` replays make the arrays anew that the call returns.
        """
        self.untaped()
        before, tape = self.tape, self._kind(*arrays)
        tape.results = [] if renew else None
        self._recording.tape = tape
        try:
            yield tape
        finally:
            self._recording.tape = before

    def same_memory(self, native: Any, array: Any) -> bool:
        """Return whether a native array is a user's array, or a view of all its memory."""
        return native is array

    def submit_call(self, call: Callable[..., None], *arrays: Any, on_device: bool = False) -> None:
        """Call ``call(*arrays)``, by which a library submits work on native arrays; a replay calls it again.

        What it downloads and uploads in between is part of it. If all of it is ``on_device``, a CUDA graph may have it.
        """
        tape = self.tape
        self._recording.tape = None
        try:
            call(*arrays)
        finally:
            self._recording.tape = tape
        if tape is not None:
            tape.record_call(call, arrays, on_device)

    def untaped(self) -> None:
        """Report that something was submitted that is on no tape."""
        if (tape := getattr(self._recording, "tape", None)) is not None:
            tape.complete = False

    def returns(self, array: Any) -> None:
        """Report a new array that the call returns."""
        tape = self.tape
        if tape is not None and tape.results is not None:
            tape.nbytes -= array.nbytes
            tape.results.append((array.shape, array.dtype))
            tape.place(array)

    def post(self, *arrays: Any) -> Posted:
        """Copy arrays to the host, behind all that was submitted; ``read`` of the result waits. Replays copy again."""
        return Posted(self, arrays)

    def allocated(self, array: Any) -> Any:
        """Report new memory, and return it: a tape keeps what is no result, for its replays."""
        if (tape := getattr(self._recording, "tape", None)) is not None:
            tape.nbytes += array.nbytes
        return array


class Tapes:
    """The tapes of a plan or a grid: their owner has a ``backend``, and ``follow`` orders its work after its last."""

    def __init__(self) -> None:
        self._by_key: dict[Any, Any] = {}
        self._nbytes = 0
        self._shown = False
        self.cleared = 0  # how often: tapes of other owners that depend on this one's memory end then, too

    def show(self) -> None:
        """Play calls for the same arrays only from now on: the caller gets some of the owner's memory.

        In a later call a tape could not tell that memory from the owner's.
        """
        if not self._shown:
            self.clear()
        self._shown = True

    def clear(self) -> None:
        """Drop all tapes: the memory they refer to is freed."""
        self._drop()
        self.cleared += 1

    def _drop(self) -> None:
        self._by_key.clear()
        self._nbytes = 0

    def find(self, owner: Any, what: Any, arrays: tuple[Any, ...]) -> tuple[Any, Any] | None:
        """Return the tape of a call and what it returned, or None if there is none or the call joins another's tape."""
        if owner.backend.tape is not None:
            return None
        key = owner.backend.signature(what, *arrays, same=self._shown)
        return None if key is None else self._by_key.get(key)

    def again(
        self, owner: Any, what: Any, arrays: tuple[Any, ...], call: Callable[[], Any], result: Any = None,
        state: State | None = None, new_array: Callable[..., Any] | None = None,
    ) -> Any:  # fmt: skip
        """Make a call; from the third time on for arrays of the same form, replay its commands.

        Within a call that is recorded it joins that call's tape.

        ``what`` and the backend's ``signature`` of the arrays identify a call. A replayed call returns ``result``. By
        default it returns what it returned when it was recorded or, with ``new_array``, a new array or a tuple of them:
        ``new_array(shape, dtype)`` makes one. With ``state`` the state in which a call is made identifies it as well. A
        replayed call leaves the state that it left when it was recorded.
        """
        backend = owner.backend

        def name() -> Any:
            return backend.signature(what if state is None else (what, *state.key()), *arrays, same=self._shown)

        key = name() if backend.tape is None else None
        known = None if key is None else self._by_key.get(key)
        if key is None or known is False:
            return call()
        if known:
            tape, returned = known
            with backend.scope(*arrays):
                token = owner.follow()
                new = [] if new_array is None else [new_array(*form) for form in tape.results]
                tape.play(token, *arrays, *new)
                backend.mark(*arrays, *new)
            if state is not None:
                state.restore(tape.after)
            if new:
                return new[0] if len(new) == 1 else tuple(new)
            return returned if result is None else result
        if key not in self._by_key:  # most forms come once: record at the second time
            if len(self._by_key) > MOST_TAPES or self._nbytes > MOST_BYTES:
                self._drop()
            returned = call()
            self._by_key[key] = None  # not before the call: only then is its preparation done
            if state is not None:
                self._by_key.setdefault(name(), None)  # the same call comes again in the state that this one left
            return returned
        with backend.taping(*arrays, renew=new_array is not None) as tape:
            returned = call()
        if tape.nbytes > MOST_BYTES // 4:  # such a call's kernels take longer than the host
            self._by_key[key] = False
        elif tape.complete and key in self._by_key:
            self._nbytes += tape.nbytes
            tape.after = None if state is None else state.now()
            # Keep no reference to arrays of the caller.
            self._by_key[key] = tape, None if result is not None or new_array else returned
        return returned


class Replays:
    """Calls of an object of yours that are replayed on a GPU as one, with the driver's overhead only.

    A call is recorded at its second time. What it submits must follow from the forms of its arrays, from what you name,
    and from the positions of the plans. A call that reads numbers back is never replayed. Submit by kernels, plans,
    grids and backends: expressions of CuPy or PyOpenCL are not recorded. On the CPU and in captures calls are made as
    they are.

    Parameters
    ----------
    backend : Backend
        Where the calls work.
    *plans : particlemesh.Plan
        Whose positions are set outside of the calls.

    Examples
    --------
    >>> import numpy as np, particlemesh as pm
    >>> from particlemesh.kernels import Replays, backend
    >>> plan = pm.Plan(pm.Mesh((8, 8), (1.0, 1.0))).set_positions([[0.1, 0.2], [0.5, 0.7]])
    >>> there, replays = np.empty(2), Replays(backend("cpu"), plan)
    >>> def smooth(values, out):
    ...     replays("smooth", (values, out), lambda: plan.interpolate(plan.spread(values), out=out))
    >>> smooth(np.ones(2), there)
    >>> bool((there == plan.interpolate(plan.spread(np.ones(2)))).all()), there.shape
    (True, (2,))
    """

    def __init__(self, backend: Any, *plans: Any) -> None:
        self.backend, self._plans = backend, plans
        self._tapes = Tapes()
        self._token: Any = None  # of the last call's stream

    def __call__(self, what: Any, arrays: tuple[Any, ...], call: Callable[[], Any]) -> None:
        """Make a call that reads and writes native arrays; from the third time on, replay it for others of their form.

        Parameters
        ----------
        what : hashable
            All else that decides what the call submits.
        arrays : tuple of native arrays
            Inputs and outputs.
        call : callable
            Makes the call, and returns nothing.
        """
        backend = self.backend
        if backend.name == "cpu" or backend.capturing() or any(plan.methods.captured for plan in self._plans):
            call()
            return
        for plan in self._plans:
            plan.follow()
        self._tapes.again(self, what, arrays, call, True, self)

    def clear(self) -> None:
        """Forget all calls: they depend on something else now."""
        self._tapes.clear()

    def follow(self) -> Any:
        """Order later work after that of the last call; return the token of the current stream."""
        self._token = token = self.backend.follow(self._token)
        return token

    # ---- the state of the plans, as tapes see it ----------------------------------------------------------

    def key(self) -> tuple[Any, ...]:
        return tuple([plan.methods.key() for plan in self._plans])

    def now(self) -> Any:
        return [plan.methods.now() for plan in self._plans]

    def restore(self, state: Any) -> None:
        for plan, before in zip(self._plans, state, strict=True):
            plan.methods.restore(before)
