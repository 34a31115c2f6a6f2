# SPDX-License-Identifier: BSD-3-Clause
"""Particles by cell: six ways to build, one way to query."""

from __future__ import annotations

from particlemesh.grid.construction import Construction


class UniformGrid(Construction):
    """A box cut into cells of one size, for finding what is near.

    Parameters
    ----------
    box : Box, lengths or matrix
        The domain, of 1 to 3 axes. Lengths or a matrix make a box with ``periodic`` axes.
    cell_size : number or one for each axis
        Least thickness of a cell, across its faces. For pairs within ``r``, cells of ``r`` are good, and cells four
        times thinner along the last axis are better.
    shape : int or ints
        Cells along each axis, instead of ``cell_size``.
    periodic : bool or one for each axis, optional
        Which axes repeat, for a box given by its lengths; by default all.
    levels : int
        Levels of cells for particles of many sizes: each level's cells are twice as large as those before, and a
        particle is on the finest one whose cells hold it.
    method : str
        How to build, by name; ``"auto"`` takes what predicts the least time.
    deterministic : bool
        Particles of a cell in the order of their indices, so that every result has the same bits every time.
    queries : bool
        Whether a build ends with what queries need. Without it only the builder's own storage is made.
    dtype : {"float32", "float64"}, optional
        Type of the positions; by default that of those that come.
    backend : {"cpu", "cuda", "opencl"}, optional
        By default where the arrays are. If named, host arrays are copied there and back.
    threads : int, optional
        Most threads on the CPU.
    **options
        Options of the method: ``capacity``, ``grow``, ``layout`` of ``fixed``; ``curve`` of ``sort``.

    Raises
    ------
    ValueError, TypeError
        If an argument is not allowed; the message says what is.

    References
    ----------
    The builders are those of [barbieri2013]_ and [green2008]_.

    Examples
    --------
    >>> import numpy as np, particlemesh as pm
    >>> x = np.random.default_rng(1).random((1000, 3))
    >>> grid = pm.UniformGrid((1.0, 1.0, 1.0), cell_size=0.25).build(x)
    >>> grid.shape, int(grid.cell_start[-1])
    ((4, 4, 4), 1000)
    >>> bool((grid.positions == x[grid.order]).all())
    True
    """
