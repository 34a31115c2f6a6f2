# SPDX-License-Identifier: BSD-3-Clause
"""Spreading, interpolation and transforms over many ranks, with derivatives of JAX.

Outside of compiled programs JAX evaluates primitives one after the other, also those of derivatives. So each one may
send messages, in the same order on all ranks.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
from jax.interpreters import ad

from particlemesh.autograd import ranks
from particlemesh.autograd.jax_operators import define, real_name, refuse, uncompiled

# ---- the inputs of a call: ranks agree on which of them derivatives are by ------------------------------------------


def _agreed(collective: ranks.Collective, **inputs: Any) -> list[Any]:
    arrays = map(jnp.asarray, inputs.values())
    return list(_AGREED.bind(*arrays, name=collective.name, inputs=tuple(inputs), needs=0))


def _refused(*_: Any, name: str, inputs: tuple[str, ...], **__: Any) -> None:
    ranks.named(name).agree(inputs, ranks.COMPILED)  # others may not compile, and wait here
    refuse()


def _agree(*arrays: Any, name: str, inputs: tuple[str, ...], needs: int) -> list[Any]:
    ranks.named(name).agree(inputs, needs)
    return list(arrays)


def _with_needs(arrays: Any, steps: Any, *, needs: int, **static: Any) -> tuple[Any, Any]:
    now = sum((type(step) is not ad.Zero) << n for n, step in enumerate(steps))
    return _AGREED.bind(*arrays, needs=needs << len(steps) | now, **static), steps


_AGREED: Any = jax.extend.core.Primitive("agreed_over_ranks")
_AGREED.multiple_results = True
_AGREED.def_abstract_eval(lambda *arrays, **_: list(arrays))
uncompiled(_AGREED, _agree, _refused)
ad.primitive_jvps[_AGREED] = _with_needs


# ---- linear functions on all ranks, and their adjoints --------------------------------------------------------------


def _linear(array: Any, there: Any, back: Any, again: Any = None, shape: Any = None, real: Any = None) -> Any:
    array = jnp.asarray(array)
    kind = array.dtype if real is None else jnp.result_type(real_name(array), *[jnp.complex64] * (not real))
    given = dict(shape=array.shape if shape is None else shape, dtype=kind)
    return _LINEAR.bind(array, ways=(there, back, again or there), **given)


def _transposed(slope: Any, array: Any, *, ways: Any, **_: Any) -> list[Any]:
    (_, back, again), kind = ways, array.aval
    adjoint = _LINEAR.bind(jnp.conj(slope), ways=(back, again, back), shape=kind.shape, dtype=kind.dtype)
    return [jnp.conj(adjoint)]


_LINEAR: Any = jax.extend.core.Primitive("linear_over_ranks")
_LINEAR.def_abstract_eval(lambda array, *, shape, dtype, **_: jax.core.ShapedArray(shape, dtype))
uncompiled(_LINEAR, lambda array, *, ways, **_: ways[0](array))
ad.deflinear2(_LINEAR, _transposed)


# ---- calls ----------------------------------------------------------------------------------------------------------


LIBRARY = ranks.Library(
    jnp, jax.Array, lambda numbers, array: jnp.asarray(numbers, array.dtype),
    lambda array, at, terms: array.at[..., at].add(terms), lambda a: a, _agreed, _linear,
    True, "derivatives are by {}", "Differentiate by the same inputs",
)  # fmt: skip


class OverRanks(ranks.OverRanks):
    r"""Differentiable calls over the ranks of a domain: of positions, values, fields and modes of this rank.

    The verbs are those of :class:`particlemesh.autograd.torch.OverRanks`, in forward and reverse mode. Every rank makes
    the same calls, and differentiates its share of the loss by the same inputs. If these differ, every rank raises. A
    share that depends on no result keeps the other ranks waiting, so add ``0 * result.sum()``. Compile the parts
    between the calls, and differentiate outside of ``jit``, ``vmap`` and ``shard_map``.

    Parameters
    ----------
    domain, world, window, **options
        As for :class:`particlemesh.autograd.torch.OverRanks`.

    Attributes
    ----------
    part : particlemesh.distributed.Part
        The nodes of this rank.
    modes : tuple of (int, int)
        The range of modes of this rank along each axis.

    Raises
    ------
    ValueError, TypeError, particlemesh.distributed.RankError
        As for :class:`particlemesh.distributed.Plan`. Also if derivatives are by other inputs on another rank.
    NotImplementedError
        In compiled programs.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, particlemesh as pm
    >>> from particlemesh import distributed as pmd
    >>> from particlemesh.autograd.jax import OverRanks
    >>> world = pmd.World()
    >>> ranks = OverRanks(pmd.Domain(pm.Mesh(4, 1.0), world.size), world, "tsc")
    >>> jax.grad(lambda x: ranks.spread(x, jnp.array([2.0]))[1])(jnp.array([[0.5]]))
    Array([[-4.]], dtype=float32)
    """

    library, transfer = LIBRARY, staticmethod(define("transfer_over_ranks", ranks.run, ranks.shape, over_ranks=True))

    @staticmethod
    def outside(*arrays: Any) -> None:
        if any(isinstance(jax.lax.stop_gradient(array), jax.core.Tracer) for array in arrays):
            refuse()
