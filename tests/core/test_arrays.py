# SPDX-License-Identifier: BSD-3-Clause
"""Arrays of every kind: what comes in goes out again; what cannot be taken is refused with a reason."""

import numpy as np
import pytest

import oracle
import particlemesh as pm
from kinds import FIELD, KINDS, MESH, SLOPES, VALUES, WINDOW, Q, V, X
from particlemesh import backends


@pytest.fixture(params=list(KINDS))
def kind(request):
    kind = KINDS[request.param]
    reason = backends.module(kind.home).available()
    if reason is not None:
        pytest.skip(f"{kind.home} does not work here: {reason}")
    return kind


@pytest.mark.opencl
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_kind_device_and_type_come_back(kind, dtype):
    real = "f4" if dtype in ("f4", "c8") else "f8"
    q, x = kind.make(Q.astype(dtype)), kind.make(X.astype(real))
    tolerance = 2e-5 if real == "f4" else 1e-12
    field = pm.spread(x, q, MESH, window="tsc")
    assert kind.place(field) == kind.place(q)
    np.testing.assert_allclose(kind.host(field), FIELD, atol=tolerance)
    values = pm.interpolate(field, x, MESH, window="tsc")
    slopes = pm.gradient(field, x, MESH, window="tsc")
    assert kind.place(values) == kind.place(slopes) == kind.place(q)
    np.testing.assert_allclose(kind.host(values), VALUES, atol=tolerance)
    np.testing.assert_allclose(kind.host(slopes), SLOPES, atol=40 * tolerance)
    with pm.Plan(MESH, "tsc") as plan:
        plan.set_positions(x)
        if kind.writes:
            out = kind.make(np.zeros(MESH.shape, dtype))
            assert plan.spread(q, out=out) is out
            np.testing.assert_allclose(kind.host(out), FIELD, atol=tolerance)
        both = plan.value_and_gradient(field)
        assert [kind.place(b) for b in both] == [kind.place(q)] * 2
        bent = plan.spread_gradient(kind.make(V.astype(dtype)))
        assert kind.place(bent) == kind.place(q)
        np.testing.assert_allclose(kind.host(bent), oracle.spread_gradient(MESH, WINDOW, X, V), atol=100 * tolerance)
        for layout in ("planar", "interleaved"):
            empty = plan.empty_field(2, layout=layout, dtype=dtype)
            assert kind.place(empty) == kind.place(q)
            assert tuple(empty.shape) == (2, *MESH.shape)
            if not kind.writes:
                continue
            plan.spread(kind.make(np.stack([Q, 3 * Q]).astype(dtype)), out=empty)
            np.testing.assert_allclose(kind.host(empty), np.stack([FIELD, 3 * FIELD]), atol=4 * tolerance)


@pytest.mark.opencl
def test_coordinates_one_by_one(kind):
    columns = tuple(kind.make(X[:, a]) for a in range(3))
    field = pm.spread(columns, kind.make(Q), MESH, window="tsc")
    np.testing.assert_allclose(kind.host(field), FIELD, atol=1e-13)
    line = pm.Mesh(5, 2.0)
    for x in (X[:, 0], X[:, :1]):
        result = pm.spread(kind.make(x), kind.make(Q), line, window="tsc")
        np.testing.assert_allclose(kind.host(result), oracle.spread(line, WINDOW, X[:, :1], Q), atol=1e-13)
    result = pm.spread((kind.make(X[:, 0]),), kind.make(Q), line, window="tsc")
    assert kind.host(result).shape == (5,)
    with pytest.raises(ValueError, match=r"positions are arrays of shapes \(40,\), \(40,\), \(39,\); one length"):
        pm.spread((*columns[:2], kind.make(X[:39, 2])), kind.make(Q), MESH)


@pytest.mark.opencl
def test_batches_and_broadcast_values(kind):
    q = np.stack([Q, 2 * Q, -Q, Q, Q, 3 * Q]).reshape(2, 3, 40)
    expected = FIELD * np.array([1, 2, -1, 1, 1, 3.0]).reshape(2, 3, 1, 1, 1)
    with pm.Plan(MESH, "tsc") as plan:
        plan.set_positions(kind.make(X))
        field = plan.spread(kind.make(q))
        np.testing.assert_allclose(kind.host(field), expected, atol=1e-12)
        assert tuple(plan.gradient(field).shape) == (2, 3, 40, 3)
        one = plan.spread(kind.make(q[:1, :1]))  # a batch of one keeps its axes
        assert tuple(one.shape) == (1, 1, *MESH.shape)


def odd_arrays(host):
    """Views of every sort with the same content."""
    copy = np.array(host)
    wide = np.zeros((*host.shape[:-1], 3 * host.shape[-1]), host.dtype)
    wide[..., 1::3] = host
    packed = np.zeros(host.shape, np.dtype([("pad", "i1"), ("x", host.dtype)]))  # misaligned
    packed["x"] = host
    frozen = np.array(host)
    frozen.setflags(write=False)
    turned = np.array(host[..., ::-1])[..., ::-1]
    return {
        "fortran": np.asfortranarray(copy), "transposed": np.array(host.T).T, "strided": wide[..., 1::3],
        "reversed": turned, "misaligned": packed["x"], "byte-swapped": host.astype(host.dtype.newbyteorder()),
        "read-only": frozen, "memmap-like subclass": copy.view(type("Sub", (np.ndarray,), {})),
    }  # fmt: skip


@pytest.mark.parametrize("what", ["x", "q", "field"])
def test_numpy_views_equal_copies_and_stay_as_they_are(what):
    hosts = {"x": X, "q": np.stack([Q, -Q]), "field": np.stack([FIELD, -FIELD])}
    for name, array in odd_arrays(hosts[what]).items():
        given = {**hosts, what: array}
        before = array.tobytes()
        with pm.Plan(MESH, "tsc") as plan:
            plan.set_positions(given["x"])
            field = plan.spread(given["q"])
            np.testing.assert_allclose(field, hosts["field"], atol=1e-13, err_msg=name)
            values = plan.interpolate(given["field"])
            np.testing.assert_allclose(values, np.stack([VALUES, -VALUES]), atol=1e-13, err_msg=name)
            assert field.dtype == values.dtype == np.float64
            assert field.dtype.isnative
        assert array.tobytes() == before


def test_broadcast_inputs():
    with pm.Plan(MESH, "tsc") as plan:
        plan.set_positions(np.broadcast_to(X[0], (5, 3)))
        field = plan.spread(np.broadcast_to(np.float64(2.0), (3, 5)))
        one = oracle.spread(MESH, WINDOW, X[:1], [10.0])
        np.testing.assert_allclose(field, np.broadcast_to(one, field.shape), atol=1e-13)
        values = plan.interpolate(np.broadcast_to(np.float64(3.0), (2, *MESH.shape)))
        np.testing.assert_allclose(values, 3.0, rtol=1e-14)


def test_sequences_and_numbers_become_numpy_arrays():
    mesh = pm.Mesh(4, 1.0)
    field = pm.spread([0.5, 0.25], [2, 3], mesh, window="cic")
    np.testing.assert_allclose(field, [0, 3, 2, 0])
    assert field.dtype == np.float64
    np.testing.assert_allclose(pm.interpolate([0, 1, 2, 1], [0.375], mesh, window="cic"), [1.5])


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "i4", "i8", "u8"])
def test_integers_and_booleans_are_promoted(dtype):
    q = (np.arange(40) % 2).astype(dtype)
    with pm.Plan(MESH, "tsc") as plan:
        plan.set_positions(X)
        field = plan.spread(q)
        assert field.dtype == np.float64
        np.testing.assert_allclose(field, oracle.spread(MESH, WINDOW, X, q.astype(float)), atol=1e-13)
        plan.set_positions((X * 4).astype(np.int32))
    with pm.Plan(MESH, "tsc", dtype="float32") as plan:
        plan.set_positions(X)
        assert plan.spread(q).dtype == np.float32


def test_more_precision_than_the_plans_is_refused():
    with pm.Plan(MESH, "tsc", dtype="float32") as plan:
        plan.set_positions(X)  # float64 positions lose nothing
        for dtype in ("f8", "c16"):
            text = f"values has dtype {np.dtype(dtype)}, more than this plan's float32 holds"
            with pytest.raises(TypeError, match=text):
                plan.spread(Q.astype(dtype))
            with pytest.raises(TypeError, match="field has dtype"):
                plan.interpolate(FIELD.astype(dtype))
        if np.dtype(np.longdouble).itemsize > 8:
            with pytest.raises(TypeError, match="longdouble|float128"):
                plan.spread(Q.astype(np.longdouble))
    for bad in ("S3", "O", "M8[s]"):
        with pytest.raises(TypeError, match="values: dtype is .*; float32, float64, complex64, .* and integers"):
            pm.spread(X, np.zeros(40).astype(bad), MESH)
    with pytest.raises(TypeError, match="positions have dtype complex128; real numbers are needed"):
        pm.spread(X + 0j, Q, MESH)
    with pytest.raises(TypeError, match="dtype is int32; give 'float32' or 'float64'"):
        pm.Plan(MESH, "tsc", dtype="int32")


def test_shapes_that_do_not_fit_are_named():
    with pm.Plan(MESH, "tsc") as plan:
        for bad in (np.zeros((40, 2)), np.zeros(40), np.zeros((40, 3, 1)), np.float64(1.0)):
            with pytest.raises(ValueError, match=r"positions have shape .*; in 3-D \(n, 3\)"):
                plan.set_positions(bad)
        with pytest.raises(RuntimeError, match="this plan has no particles yet: call set_positions first"):
            plan.spread(Q)
        plan.set_positions(X)
        with pytest.raises(ValueError, match=r"values has shape \(39,\); its last 1 axis must be 40"):
            plan.spread(Q[:39])
        with pytest.raises(ValueError, match=r"vectors has shape \(3, 40\); its last 2 axes must be 40, 3"):
            plan.spread_gradient(V.T)
        with pytest.raises(ValueError, match=r"field has shape \(5, 7\); its last 3 axes must be 6, 5, 7"):
            plan.interpolate(FIELD[0])
        with pytest.raises(ValueError, match="values has shape"):
            plan.spread(np.float64(1.0))
        with pytest.raises(ValueError, match="out has 1 arrays; value and gradient need two"):
            plan.value_and_gradient(FIELD, out=(VALUES,))
        with pytest.raises(TypeError, match="out is of type ndarray; value and gradient need a tuple of two arrays"):
            plan.value_and_gradient(FIELD, out=VALUES)
    for bad in (None, {1: 2}, "text", object()):
        with pytest.raises(TypeError, match="give an array of one of these kinds: NumPy"):
            pm.spread(X, bad, MESH)


def test_outs_that_cannot_be_written_are_refused():
    frozen = np.zeros(MESH.shape)
    frozen.setflags(write=False)
    store = np.zeros(FIELD.size + 40)
    cases = [
        (np.zeros((6, 5, 8)), ValueError, r"out has shape \(6, 5, 8\); this call writes \(6, 5, 7\)"),
        (np.zeros((1, *MESH.shape)), ValueError, "out has shape"),
        (np.zeros(MESH.shape, np.float32), TypeError, "out has dtype float32; this call writes float64"),
        (np.zeros(MESH.shape, complex), TypeError, "out has dtype complex128; this call writes float64"),
        (np.zeros(MESH.shape, ">f8"), TypeError, "byte order|out has dtype"),
        (frozen, ValueError, "out is read-only; give a writeable array"),
        (np.lib.stride_tricks.as_strided(np.zeros(7), MESH.shape, (0, 0, 8)), ValueError, "share memory"),
        (FIELD.tolist(), TypeError, "out is of type list; give an array"),
    ]
    with pm.Plan(MESH, "tsc") as plan:
        plan.set_positions(X)
        for out, error, text in cases:
            with pytest.raises(error, match=text):
                plan.spread(Q, out=out)
        q = store[-40 - 10 : -10]
        q[:] = Q
        overlapping = store[: FIELD.size].reshape(MESH.shape)  # its last 10 are among the values
        text = "out shares memory with the input; give a separate array"
        with pytest.raises(ValueError, match=text):
            plan.spread(store[FIELD.size - 10 : FIELD.size + 30], out=overlapping)
        np.testing.assert_allclose(plan.spread(Q), FIELD, atol=1e-13)


def test_a_torch_out_that_overlaps_the_input_is_refused():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    store = torch.zeros(FIELD.size + 30, dtype=torch.float64)
    with pm.Plan(MESH, "tsc") as plan:
        plan.set_positions(torch.tensor(X))
        with pytest.raises(ValueError, match="out shares memory with the input"):
            plan.spread(store[-40:], out=store[: FIELD.size].reshape(MESH.shape))


def test_padded_and_interleaved_outs():
    rows = np.full((6, 5, 16), 7.0)  # rows padded, as in-place transforms want
    both = np.full((6, 5, 7, 2), 7.0)
    with pm.Plan(MESH, "tsc") as plan:
        plan.set_positions(X)
        plan.spread(Q, out=rows[..., :7])
        np.testing.assert_allclose(rows[..., :7], FIELD, atol=1e-13)
        assert np.all(rows[..., 7:] == 7)
        plan.spread(np.stack([Q, -Q]), out=np.moveaxis(both, -1, 0))
        np.testing.assert_allclose(both, np.stack([FIELD, -FIELD], -1), atol=1e-13)
        plan.spread(2 * Q, out=both[..., 1])
        np.testing.assert_allclose(both, np.stack([FIELD, 2 * FIELD], -1), atol=1e-13)
        parts = np.zeros(MESH.shape, complex)
        plan.spread(Q, out=parts.imag)
        np.testing.assert_allclose(parts, 1j * FIELD, atol=1e-13)
        np.testing.assert_allclose(plan.interpolate(parts.imag), VALUES, atol=1e-13)


def test_torch_views_and_conjugates():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    z = torch.tensor(Q + 1j * Q[::-1])
    field = pm.spread(torch.tensor(X), z.conj(), MESH, window="tsc")
    np.testing.assert_allclose(field.numpy(), oracle.spread(MESH, WINDOW, X, Q - 1j * Q[::-1]), atol=1e-13)
    half = pm.interpolate(field.imag, torch.tensor(X), MESH, window="tsc")
    np.testing.assert_allclose(half.numpy(), oracle.interpolate(MESH, WINDOW, X, field.numpy().imag), atol=1e-13)
    turned = torch.tensor(np.ascontiguousarray(X.T)).T
    again = pm.spread(turned, z.conj(), MESH, window="tsc")
    np.testing.assert_array_equal(again.numpy(), field.numpy())
    with pytest.raises(TypeError, match="bfloat16.*float32"):  # what was given, and what is allowed
        pm.spread(torch.tensor(X), torch.tensor(Q).bfloat16(), MESH)


def test_outs_that_share_a_buffer_but_no_element_are_taken():
    store = np.zeros((len(X), 4))
    with pm.Plan(MESH, "tsc") as plan:
        plan.set_positions(X)
        plan.value_and_gradient(FIELD, out=(store[:, 0], store[:, 1:]))
        np.testing.assert_array_equal(store[:, 0], plan.interpolate(FIELD))
        np.testing.assert_array_equal(store[:, 1:], plan.gradient(FIELD))


def test_an_option_that_no_method_has_is_named():
    with pytest.raises(TypeError, match="option 'treads' is unknown; Plan takes .*threads"):
        pm.spread(X, Q, MESH, treads=2)
