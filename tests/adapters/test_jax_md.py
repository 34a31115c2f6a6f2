# SPDX-License-Identifier: BSD-3-Clause
"""Lists with JAX MD's arguments, against all pairs by brute force."""

import numpy as np
import pytest

from images import near

jax = pytest.importorskip("jax", reason="JAX is not installed")
partition = pytest.importorskip("jax_md.partition", reason="JAX MD is not installed")
from jax_md import smap, space  # noqa: E402 - JAX MD decides

from particlemesh.adapters.jax_md import neighbor_list  # noqa: E402

jnp = jax.numpy
RNG = np.random.default_rng(11)
FORMATS = partition.NeighborListFormat
COLUMNS = np.array([[1.0, 0.2, -0.1], [0.0, 1.1, 0.3], [0.0, 0.0, 0.9]])


def spaces(kind, axes):
    """Return a displacement, JAX MD's box, lattice vectors as rows, and whether they repeat."""
    if kind == "open":
        return space.free()[0], 1.0, np.eye(axes), False
    if kind == "fractions":
        columns = COLUMNS[:axes, :axes]
        return space.periodic_general(columns, fractional_coordinates=True)[0], columns, columns.T, True
    lengths = np.array([1.0, 1.5, 1.2])[:axes]
    return space.periodic(lengths)[0], lengths, np.diag(lengths), True


def pairs(neighbours, n):
    """Return the pairs (sender, receiver) of a list."""
    idx = np.asarray(neighbours.idx)
    assert idx.dtype == np.int32
    if neighbours.format is FORMATS.Dense:
        return sorted((i, j) for i, row in enumerate(idx.tolist()) for j in row if j < n)
    return sorted((i, j) for j, i in idx.T.tolist() if j < n)


def expected(x, cutoff, rows, periodic, layout, selves):
    found_pairs = {(i, j) for i, j, _ in near(x, x, cutoff, rows, periodic, strict=True)}
    return sorted(
        (i, j) for i, j in found_pairs if (i != j or selves) and (layout is not FORMATS.OrderedSparse or j < i)
    )


@pytest.mark.turns(4)  # each case compiles
@pytest.mark.parametrize("kind", ["open", "periodic", "fractions"])
@pytest.mark.parametrize("layout", list(FORMATS), ids=lambda layout: layout.name)
@pytest.mark.parametrize(("axes", "selves"), [(2, True), (3, False)])
def test_lists_have_all_pairs_before_and_after_a_move(kind, layout, axes, selves):
    displacement, box, rows, periodic = spaces(kind, axes)
    fractions = kind == "fractions"
    for cutoff in (0.3, 0.7):  # with the second several images are near
        fns = neighbor_list(
            displacement, box, cutoff, 0.05, 2.0, mask_self=not selves, fractional_coordinates=fractions, format=layout
        )
        x = jnp.asarray(RNG.random((20, axes)), jnp.float32)
        real = (lambda x: np.asarray(x, np.float64) @ rows) if fractions else np.asarray
        neighbours = fns.allocate(x)
        options = periodic, layout, selves
        assert pairs(neighbours, 20) == expected(real(x), cutoff + 0.05, rows, *options)
        update = jax.jit(fns.update)
        near_by = update(x + 1e-3, neighbours)
        np.testing.assert_array_equal(near_by.idx, neighbours.idx)
        np.testing.assert_array_equal(near_by.reference_position, x)
        moved = x.at[:10].add(0.02 if cutoff > 0.5 else 0.1)
        after = update(moved, neighbours)
        assert not after.did_buffer_overflow
        np.testing.assert_array_equal(after.reference_position, moved)
        # The program's float32 sums and the test's float64 may differ for pairs at the cutoff: there are none.
        assert pairs(after, 20) == expected(real(moved), cutoff + 0.05, rows, *options)


def test_a_box_that_changes_renews_the_list():
    displacement, box, _, _ = spaces("fractions", 3)
    fns = neighbor_list(displacement, box, 0.4, 0.1, 3.0, fractional_coordinates=True)
    x = jnp.asarray(RNG.random((30, 3)), jnp.float32)
    neighbours = fns.allocate(x)
    for factor in (0.9, 1.2):
        larger = jax.jit(fns.update)(x, neighbours, box=jnp.asarray(box * factor))
        rows = np.asarray(jnp.asarray(box * factor), np.float64).T
        assert not larger.did_buffer_overflow
        assert pairs(larger, 30) == expected(np.asarray(x, np.float64) @ rows, 0.5, rows, True, FORMATS.Dense, False)


def test_too_many_neighbours_are_reported():
    fns = neighbor_list(space.free()[0], 1.0, 0.1)
    neighbours = fns.allocate(jnp.array([[0.0, 0.0], [0.05, 0.0], [0.5, 0.5]]))
    assert neighbours.idx.tolist() == [[1], [0], [3]] and not neighbours.did_buffer_overflow
    assert fns.update(jnp.zeros((3, 2)), neighbours).did_buffer_overflow
    assert fns.allocate(jnp.zeros((0, 2))).idx.shape == (0, 0)
    assert fns.allocate(jnp.zeros((1, 2)), extra_capacity=5).idx.shape == (1, 0)


def test_a_pair_is_closer_than_the_cutoff():
    x = jnp.array([[0.0, 0.0], [3.0, 4.0]])
    assert neighbor_list(space.free()[0], 9.0, 5.0).allocate(x).idx.shape == (2, 0)
    assert neighbor_list(space.free()[0], 9.0, 5.001).allocate(x).idx.tolist() == [[1], [0]]
    assert neighbor_list(space.free()[0], 9.0, 0.0).allocate(0 * x).idx.shape == (2, 0)


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype float64")  # JAX MD's sums
def test_forces_within_a_compiled_program_are_those_of_all_pairs():
    displacement, _ = space.periodic(2.0)
    fns = neighbor_list(displacement, 2.0, 0.5, 0.1, 2.0)
    form = lambda dr, **_: jnp.where(dr < 0.5, (1 - dr / 0.5) ** 2, 0.0)  # noqa: E731
    listed, exact = (
        smap.pair_neighbor_list(form, space.metric(displacement)),
        smap.pair(form, space.metric(displacement)),
    )
    x = jnp.asarray(2 * RNG.random((40, 3)), jnp.float32)
    neighbours = fns.allocate(x)

    @jax.jit
    def moved(x, neighbours):
        def step(_, state):
            x, neighbours = state
            neighbours = fns.update(x, neighbours)
            return x - 0.01 * jax.grad(lambda x: listed(x, neighbor=fns.update(x, neighbours)))(x), neighbours

        return jax.lax.fori_loop(0, 20, step, (x, neighbours))

    y = x
    for _ in range(20):
        y = y - 0.01 * jax.grad(exact)(y)
    final, neighbours = moved(x, neighbours)
    assert float(jnp.abs(final - x).max()) > 0.05 and not neighbours.did_buffer_overflow
    np.testing.assert_allclose(final, y, atol=1e-5)


FREE = space.free()[0]
ERRORS = [
    (lambda: neighbor_list(FREE, 1.0, -1.0), "a finite number of at least zero"),
    (lambda: neighbor_list(FREE, 1.0, 0.1, custom_mask_function=lambda idx: idx), "apply it to idx of the list"),
    (lambda: neighbor_list(FREE, 1.0, 0.1, format="Dense"), "format is 'Dense'; a jax_md"),
    (lambda: neighbor_list(FREE, 1.0, 0.1).allocate(jnp.zeros((3, 4))), r"position has shape \(3, 4\)"),
    (lambda: neighbor_list(FREE, jnp.ones(2), 0.1).allocate(jnp.zeros((3, 3))), r"box has shape \(2,\)"),
    (lambda: neighbor_list(FREE, 1.0, 0.1).allocate(jnp.zeros((3, 3)), box=2.0), "only fractions follow a box"),
    (lambda: neighbor_list(FREE, 1.0, 0.1).allocate(jnp.full((3, 3), jnp.nan)), "not finite"),
]


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_what_is_not_allowed_is_named(number):
    call, message = ERRORS[number]
    with pytest.raises(ValueError, match=message):
        call()
