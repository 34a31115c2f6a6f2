# SPDX-License-Identifier: BSD-3-Clause
"""Derivatives by torch and by JAX behind one face, so that a law over ranks is written once.

Arrays of a test are those of NumPy. Slopes by complex numbers are ``dL/d(real) + i dL/d(imaginary)``.
"""

import contextlib
import importlib

import numpy as np
import pytest


class Torch:
    """Functions of tensors."""

    name, lonely = "torch", "on rank 0 nothing requires grad, and on rank 1 {}:"

    def __init__(self):
        self.xp = pytest.importorskip("torch")

    def module(self, name):
        """Return one of our modules; its name has `{}` for that of the library."""
        return importlib.import_module(f"particlemesh.{name.format(self.name)}")

    @contextlib.contextmanager
    def wide(self):
        """Allow float64 in this thread."""
        yield

    def array(self, numbers):
        return self.xp.tensor(np.ascontiguousarray(numbers))

    def host(self, array):
        """Return an array of NumPy."""
        return array.detach().resolve_conj().numpy()

    def compiled(self, function):
        """Return a function of one device: for JAX one program, which compiles faster than all its steps alone."""
        return function

    def slopes(self, loss, arrays, some=None):
        """Return the value and the slopes of a function of arrays, by some of them or by all."""
        some = range(len(arrays)) if some is None else some
        leaves = [a if hasattr(a, "detach") else self.array(a) for a in arrays]
        leaves = [leaf.requires_grad_() if n in some and leaf.is_leaf else leaf for n, leaf in enumerate(leaves)]
        value = loss(*leaves)
        return value, self.xp.autograd.grad(value, [leaves[n] for n in some], create_graph=True)

    def twice(self, loss, arrays, directions, shares=None):
        """Return the value, first slopes and second ones along directions, as NumPy's.

        ``shares``: that of a rank in each of the directions, where all ranks have them.
        """
        leaves, shares = [self.array(a).requires_grad_() for a in arrays], shares or [1.0] * len(arrays)
        value, first = self.slopes(loss, leaves)
        along = self._along(first, directions, shares)
        again = self.xp.autograd.grad(along, leaves)
        return value.item(), [self.host(a) for a in (*first, *again)]

    def _along(self, slopes, directions, shares):
        return sum(
            share * (slope * self.array(d.conj())).real.sum()
            for slope, d, share in zip(slopes, directions, shares, strict=True)
        )

    def check(self, function, arrays, order=2):
        """Compare derivatives up to an order with differences."""
        leaves = [self.array(a).requires_grad_() for a in arrays]
        assert self.xp.autograd.gradcheck(function, leaves, fast_mode=True)
        assert order < 2 or self.xp.autograd.gradgradcheck(function, leaves, fast_mode=True)


class Jax(Torch):
    """Functions of JAX arrays, outside of compiled programs."""

    name, lonely = "jax", "on rank 0 derivatives are by nothing, and on rank 1 {}:"

    def __init__(self):
        self.jax = pytest.importorskip("jax")
        self.xp = self.jax.numpy

    def wide(self):
        return self.jax.enable_x64(True)

    def array(self, numbers):
        return self.xp.asarray(numbers)

    def host(self, array):
        return np.asarray(array)

    def compiled(self, function):
        return self.jax.jit(function)

    def slopes(self, loss, arrays, some=None):
        some = tuple(range(len(arrays)) if some is None else some)
        value, slopes = self.jax.value_and_grad(loss, some)(*map(self.array, arrays))
        return value, [slope.conj() for slope in slopes]

    def twice(self, loss, arrays, directions, shares=None):
        shares = shares or [1.0] * len(arrays)

        def along(*given):
            return self._along(self.slopes(loss, given)[1], directions, shares)

        value, first = self.slopes(loss, arrays)
        return value.item(), list(map(self.host, (*first, *self.slopes(along, arrays)[1])))

    def changes(self, loss, arrays, directions):
        """Return the change of a function along directions, in forward mode."""
        return self.jax.jvp(loss, tuple(map(self.array, arrays)), tuple(map(self.array, directions)))[1].item()

    def check(self, function, arrays, order=2):
        from jax.test_util import check_grads

        check_grads(function, tuple(map(self.array, arrays)), order, rtol=1e-5, atol=1e-5, eps=1e-5)


def in_each(turns):
    """Mark a test of each library; of so many cases of JAX, which compiles each, one runs where tests are thinned."""
    jax = pytest.param(Jax, marks=[pytest.mark.turns(turns)] * (turns > 1), id="jax")
    return pytest.mark.parametrize("library", [pytest.param(Torch, id="torch"), jax])


in_both = in_each(1)
