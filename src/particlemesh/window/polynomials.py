# SPDX-License-Identifier: BSD-3-Clause
"""Arithmetic of polynomials: tuples of coefficients in ascending powers. Fractions stay exact."""

from __future__ import annotations

from fractions import Fraction

Number = Fraction | float
Polynomial = tuple[Number, ...]


def add(a: Polynomial, b: Polynomial) -> Polynomial:
    """Return a + b."""
    size = max(len(a), len(b))
    zero = (Fraction(0),)
    return tuple(x + y for x, y in zip(a + zero * (size - len(a)), b + zero * (size - len(b)), strict=True))


def multiply(a: Polynomial, b: Polynomial) -> Polynomial:
    """Return a b."""
    result: list[Number] = [Fraction(0)] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            result[i + j] += x * y
    return tuple(result)


def at(coefficients: Polynomial, z: Number) -> Number:
    """Return the polynomial's value at z (Horner's rule)."""
    value: Number = Fraction(0)
    for coefficient in reversed(coefficients):
        value = value * z + coefficient
    return value


def derivative(coefficients: Polynomial) -> Polynomial:
    """Return the derivative."""
    return tuple(m * c for m, c in enumerate(coefficients))[1:] or (Fraction(0),)


def trimmed(coefficients: Polynomial) -> Polynomial:
    """Return the coefficients without trailing zeros."""
    size = len(coefficients)
    while size > 1 and coefficients[size - 1] == 0:
        size -= 1
    return coefficients[:size]


def mirrored(coefficients: Polynomial) -> Polynomial:
    """Return the coefficients of the polynomial in -z."""
    return tuple(-c if m % 2 else c for m, c in enumerate(coefficients))


def symmetric(upper: list[Polynomial], support: int) -> tuple[Polynomial, ...]:
    """Return all pieces, given those of nodes ``support // 2`` on; the middle piece keeps its even powers only."""
    if support % 2:
        upper = [tuple(c * (1 - m % 2) for m, c in enumerate(upper[0])), *upper[1:]]
    return (*map(mirrored, reversed(upper[support % 2 :])), *upper)
