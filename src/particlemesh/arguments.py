# SPDX-License-Identifier: BSD-3-Clause
"""Checks of single arguments. Their errors name the argument, what was given, what is allowed, and what to do."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

_DEPTH = 8  # of lists in lists that are looked through


def plural(count: int, noun: str) -> str:
    """Return a number and its noun, for messages."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {'axes' if noun == 'axis' else noun + 's'}"


def numbers(value: Any, what: str) -> NDArray[np.float64]:
    """Return finite real numbers as a float64 array."""
    unmasked(value)
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "iuf":
            raise TypeError
        array = array.astype(np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{what} is {value!r}; real numbers are needed.") from None
    if not np.isfinite(array).all():
        raise ValueError(f"{what} is {value!r}; every number must be finite.")
    return array


def integer(value: Any, what: str, low: int, high: int) -> int:
    """Return an argument as an int within bounds; NumPy's integers are allowed, floats are not.

    Parameters
    ----------
    value : int
        What the user gave.
    what : str
        Name of the argument, for the message.
    low, high : int
        The least and the largest number allowed.

    Raises
    ------
    TypeError, ValueError
        If it is no integer, or out of bounds.

    Examples
    --------
    >>> integer(np.int32(3), "count", 0, 10)
    3
    >>> integer(11, "count", 0, 10)
    Traceback (most recent call last):
        ...
    ValueError: count is 11; 0 to 10 is allowed.
    """
    try:
        number = operator.index(value if type(value) is int else unmasked(value))
    except TypeError:
        raise TypeError(f"{what} is {value!r}; an integer of {low} to {high} is needed.") from None
    if not low <= number <= high:
        raise ValueError(f"{what} is {number}; {low} to {high} is allowed.")
    return number


def positive(value: Any, what: str) -> float:
    """Return an argument as a positive, finite float.

    Parameters
    ----------
    value : float
        What the user gave.
    what : str
        Name of the argument, for the message.

    Raises
    ------
    TypeError, ValueError
        If it is not one real number above 0.

    Examples
    --------
    >>> positive(2, "radius")
    2.0
    >>> positive(-1.0, "radius")
    Traceback (most recent call last):
        ...
    ValueError: radius is -1.0; one positive number is needed.
    """
    number = numbers(value, what)
    if number.ndim or number <= 0:
        raise ValueError(f"{what} is {value!r}; one positive number is needed.")
    return float(number)


def at_least_zero(value: Any, what: str) -> float:
    """Return an argument as a finite float that is not negative; otherwise as :func:`positive`.

    Parameters
    ----------
    value : float
        What the user gave.
    what : str
        Name of the argument, for the message.

    Raises
    ------
    TypeError, ValueError
        If it is not one real number of at least 0.

    Examples
    --------
    >>> at_least_zero(0, "friction")
    0.0
    """
    number = numbers(value, what)
    if number.ndim or number < 0:
        raise ValueError(f"{what} is {value!r}; one number of at least 0 is needed.")
    return float(number)


def one_of(value: Any, what: str, choices: Sequence[Any]) -> Any:
    """Return an argument if it is among the choices.

    Parameters
    ----------
    value : object
        What the user gave.
    what : str
        Name of the argument, for the message.
    choices : sequence
        What is allowed.

    Raises
    ------
    ValueError
        If it is not among them; the message lists them.

    Examples
    --------
    >>> one_of("cubic", "method", ("linear", "spline"))
    Traceback (most recent call last):
        ...
    ValueError: method is 'cubic'; choose from 'linear', 'spline'.
    """
    if not among(value, choices):
        raise ValueError(f"{what} is {value!r}; choose from {', '.join(map(repr, choices))}.")
    return value


def among(value: Any, choices: Sequence[Any]) -> bool:
    """Return whether a value is one of the choices; arrays are not."""
    return isinstance(value, Hashable) and value in choices  # comparison with an array returns an array


def flag(value: Any, what: str) -> bool:
    """Return an argument if it is a bool; numbers are not taken for one.

    Parameters
    ----------
    value : bool
        What the user gave.
    what : str
        Name of the argument, for the message.

    Raises
    ------
    TypeError
        If it is neither True nor False.

    Examples
    --------
    >>> flag(1, "check")
    Traceback (most recent call last):
        ...
    TypeError: check is 1; give True or False.
    """
    if value is True or value is False:  # the common case first
        return value
    if not isinstance(value, np.bool_):
        raise TypeError(f"{what} is {value!r}; give True or False.")
    return bool(value)


def flags(value: Any, ndim: int, what: str) -> tuple[bool, ...]:
    """Return one bool for each axis.

    Parameters
    ----------
    value : bool or sequence of bool
        What the user gave; one bool serves every axis.
    ndim : int
        Number of axes.
    what : str
        Name of the argument, for the message.

    Raises
    ------
    TypeError, ValueError
        If these are not bools, or not as many as axes.

    Examples
    --------
    >>> flags(True, 3, "periodic")
    (True, True, True)
    """
    unmasked(value)
    values = [value] * ndim if isinstance(value, bool | np.bool_) else value
    unordered = isinstance(values, str | bytes | Mapping | Set)
    if unordered or not isinstance(values, Iterable) or getattr(values, "shape", None) == ():
        raise TypeError(f"{what} is {value!r}; give True, False or one of them for each axis.")
    values = list(values)
    if not all(isinstance(flag, bool | np.bool_) for flag in values):
        raise TypeError(f"{what} is {value!r}; give True, False or one of them for each axis.")
    if len(values) != ndim:
        raise ValueError(
            f"{what} names {plural(len(values), 'axis')}; the box has {plural(ndim, 'axis')}: give one bool per axis."
        )
    return tuple(bool(flag) for flag in values)


def per_axis(value: Any, ndim: int, what: str) -> tuple[float, ...]:
    """Return one finite float for each axis.

    Parameters
    ----------
    value : float or sequence of float
        What the user gave; one number serves every axis.
    ndim : int
        Number of axes.
    what : str
        Name of the argument, for the message.

    Raises
    ------
    TypeError, ValueError
        If these are not finite real numbers, or not as many as axes.

    Examples
    --------
    >>> per_axis(2, 3, "spacing")
    (2.0, 2.0, 2.0)
    """
    array = numbers(value, what)
    if array.ndim == 0:
        array = np.full(ndim, array)
    if array.shape != (ndim,):
        raise ValueError(f"{what} has shape {array.shape}; give one number or {ndim}, one for each axis of the box.")
    return tuple(array.tolist())


def real_type(value: Any) -> np.dtype[Any]:
    """Return float32 or float64 from its name or type.

    Parameters
    ----------
    value : dtype_like
        What the user gave as ``dtype``.

    Raises
    ------
    TypeError
        If it is another type.

    Examples
    --------
    >>> real_type("float32")
    dtype('float32')
    """
    allowed = "give 'float32' or 'float64' (complex values have the real type of their parts)."
    try:
        dtype = np.dtype(value)
    except (TypeError, ValueError):
        raise TypeError(f"dtype is {value!r}; {allowed}") from None
    if dtype not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise TypeError(f"dtype is {dtype}; {allowed}")
    return dtype


def number_array(value: Any, what: str) -> NDArray[Any]:
    """Return numbers of the host as a NumPy array.

    Parameters
    ----------
    value : array_like
        What the user gave: numbers, or rows of numbers.
    what : str
        Name of the argument, for the message.

    Returns
    -------
    NumPy array
        Of integers, or of real or complex numbers of 32 or 64 bits.

    Raises
    ------
    TypeError
        If it makes no such array, or has a mask.

    Examples
    --------
    >>> number_array([(0, 1), (2, 3)], "pairs").shape
    (2, 2)
    """
    unmasked(value)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):  # for example rows of different lengths
        array = None
    if array is None or array.dtype.kind not in "biufc":
        raise TypeError(
            f"{what} is a {type(value).__name__} that makes no array of numbers; give an array, or rows of numbers of "
            "equal length."
        )
    number_type(array.dtype, what)
    return array


def number_type(dtype: np.dtype[Any], what: str) -> None:
    """Check that the library computes with a dtype, or promotes it (integers and booleans)."""
    if dtype.kind not in "biu" and dtype.char not in "fdFD":
        raise unsupported_type(dtype, what)


def unsupported_type(dtype: Any, what: str) -> TypeError:
    """Return the error for a dtype that the library does not support."""
    return TypeError(
        f"{what}: dtype is {dtype}; float32, float64, complex64, complex128 and integers are allowed, without "
        "implicit casts: convert the numbers yourself."
    )


def unmasked(value: Any) -> Any:
    """Return an array or a sequence of rows, checked to be without masks at any depth."""
    if type(value) is np.ndarray:  # the common case first
        return value
    level: Iterable[Any] = (value,)
    for _ in range(_DEPTH):
        kinds = set(map(type, level))
        if any(issubclass(kind, np.ma.MaskedArray) for kind in kinds):
            raise TypeError(
                "masked arrays are not supported: the mask would be lost. Index the array, or fill in zeros."
            )
        if not any(issubclass(kind, list | tuple) for kind in kinds):
            break
        level = list(itertools.chain.from_iterable(row for row in level if isinstance(row, list | tuple)))
    return value
