# SPDX-License-Identifier: BSD-3-Clause
"""Derivatives of differentiable functions against central differences of plain float64 sums, by chains of arguments.

Arguments of a function may follow from each other: charges from positions, positions from the cell. Each `Case` is a
function, a pattern of such dependences and random numbers, made by its number: ``Case(17).check()`` repeats one.
"""

import itertools

import numpy as np

import oracle
import particlemesh as pm
from pme_cases import ewald_sum, image, random_charges

TRANSFERS = ("spread", "interpolate", "gradient", "spread_gradient")
FUNCTIONS = (*TRANSFERS, *(f"plan.{verb}" for verb in TRANSFERS), "plan.value_and_gradient", "pm.spread", "potential",
             "nufft1", "nufft2", "nufft3", "pme", "batch")  # fmt: skip
OF_TORCH = tuple(name for name in FUNCTIONS if "." in name)  # plans are differentiable by torch only
WITHOUT_CELL = (*OF_TORCH, "nufft1", "nufft2", "nufft3")
PATTERNS = ("independent", "values(x)", "x(values)", "x = s cell", "x(cell)", "cell(x)", "cell(values)",
            "values(cell)", "one deformation", "more(x)", "x(more)")  # fmt: skip
STEP = 2e-4
SIZE = 1.2  # of the second system of a batch, which is otherwise the first one with other charges


def patterns_of(function):
    """Return the patterns of arguments that a function has."""
    missing = {"cell", "deformation"} if function in WITHOUT_CELL else set()
    missing |= set() if function in ("potential", "nufft3") else {"more"}
    return [pattern for pattern in PATTERNS if not any(word in pattern for word in missing)]


# ---- plain sums -------------------------------------------------------------------------------------------


def potential_of(mesh, window, x, values, alpha):
    """The mesh's Ewald potential at particles, mode by mode."""
    field = np.fft.fftn(oracle.spread(mesh, window, x, values), axes=range(-mesh.ndim, 0))
    axes = [np.rint(np.fft.fftfreq(n) * n) for n in mesh.shape]
    green = np.zeros(mesh.shape)
    for signs in itertools.product((1, -1), repeat=mesh.ndim):  # of the highest modes of even axes
        signed = [np.where(2 * abs(a) == n, s * n / 2, a) for a, n, s in zip(axes, mesh.shape, signs, strict=True)]
        k = np.stack(np.meshgrid(*signed, indexing="ij"), -1) @ (2 * np.pi * np.linalg.inv(mesh.box.matrix).T)
        k2 = (k**2).sum(-1)
        k2[(0,) * mesh.ndim] = np.inf
        green += np.exp(-k2 / (4 * alpha**2)) / k2 / 2**mesh.ndim
    scale = np.prod(mesh.shape) / mesh.box.volume * mesh.compensation(window, "continuous", power=2)
    back = np.fft.ifftn(field * green * scale, axes=range(-mesh.ndim, 0)).real
    return oracle.interpolate(mesh, window, x, back)


# ---- libraries --------------------------------------------------------------------------------------------


class Numpy:
    xp = np

    @staticmethod
    def array(a):
        return np.asarray(a)


def torch_library():
    import torch

    from particlemesh.apps.pme import torch as pme
    from particlemesh.autograd import torch as transfers
    from particlemesh.autograd import torch_nufft, torch_nufft3

    class Torch:
        xp = torch
        modules = transfers, torch_nufft, torch_nufft3, pme

        @staticmethod
        def array(a):
            return torch.tensor(a)

        @staticmethod
        def slopes(loss, arguments, along, once, plain):
            """Slopes by all arguments in each form of call, and the second derivatives along one direction."""
            given = [torch.tensor(a, requires_grad=True) for a in arguments]
            forms, second = {}, None
            for create in (False, True):
                slopes = torch.autograd.grad(loss(*given), given, create_graph=create, materialize_grads=True)
                forms[f"create_graph={create}"] = [s.detach().numpy() for s in slopes]
            if not once:
                line = sum((s * torch.tensor(a)).sum() for s, a in zip(slopes, along, strict=True))
                second = torch.autograd.grad(line, given, materialize_grads=True)
                second = [s.numpy() for s in second]
            return forms, second

    return Torch


def jax_library():
    import jax
    import jax.numpy as jnp

    from particlemesh.apps.pme import jax as pme
    from particlemesh.autograd import jax as transfers
    from particlemesh.autograd import jax_nufft, jax_nufft3

    class Jax:
        xp = jnp
        modules = transfers, jax_nufft, jax_nufft3, pme

        @staticmethod
        def array(a):
            return jnp.asarray(a)

        @staticmethod
        def slopes(loss, arguments, along, once, plain):
            every = tuple(range(len(arguments)))
            with jax.enable_x64(True):
                given = [jnp.asarray(a) for a in arguments]
                grad = jax.grad(loss, every)
                forms = {"jit": [np.array(s) for s in jax.jit(grad)(*given)]}
                if plain:
                    forms["grad"] = [np.array(s) for s in grad(*given)]
                if once:
                    return forms, None
                line = lambda *args: sum((s * a).sum() for s, a in zip(grad(*args), along, strict=True))  # noqa: E731
                return forms, [np.array(s) for s in jax.jit(jax.grad(line, every))(*given)]

    return Jax


LIBRARIES = {"torch": torch_library, "jax": jax_library}


# ---- cases ------------------------------------------------------------------------------------------------


class Case:
    """A function of x, values, cell and perhaps one more argument, and how these follow from others."""

    def __init__(self, number, function=None, pattern=None):
        rng = self.rng = np.random.default_rng(number)
        self.function = function or str(rng.choice(FUNCTIONS))
        count, real = int(rng.integers(2, 5)), self.function in ("pme", "batch", "potential")
        axes = 3 if self.function in ("pme", "batch") else int(rng.integers(1, 4))
        matrix = np.diag(rng.uniform(1.5, 2.5, axes)) + np.tril(rng.uniform(-0.4, 0.4, (axes, axes)), -1)
        self.mesh = pm.Mesh(tuple(rng.integers(4, 8, axes).tolist()), matrix)
        self.window = pm.bspline(int(rng.integers(6, 9)))
        values = {"interpolate": self.mesh.shape, "gradient": self.mesh.shape, "nufft2": self.mesh.shape,
                  "value_and_gradient": self.mesh.shape, "spread_gradient": (count, axes)}  # fmt: skip
        values = rng.normal(size=values.get(self.function.split(".")[-1], (count,)))
        self.base = {"x": rng.random((count, axes)) @ matrix, "values": values, "cell": matrix}
        self.phase = 1 if real or rng.random() < 0.5 else 0.6 - 0.8j
        if self.function == "nufft3":
            self.base["more"] = rng.uniform(-3, 3, (3, axes))
        elif self.function == "potential":
            self.base["more"] = np.array(rng.uniform(2, 4))
        elif self.function in ("pme", "batch"):
            self.base["x"], self.base["values"] = random_charges(count, number, matrix, neutral=False)
            self.pme, self.pairs = self._pme(matrix, count)
        if self.function in WITHOUT_CELL:
            del self.base["cell"]
        self.pattern = pattern or str(rng.choice(patterns_of(self.function)))
        self.weights = None

    def _pme(self, matrix, count):
        from particlemesh.apps.pme import PME, PMEBatch

        pairs = np.array([[0, 1]] if self.rng.random() < 0.5 else np.zeros((0, 2)), int)
        if self.function == "batch":
            return PMEBatch(SIZE * matrix, 2, 1e-10, coulomb_constant=1.5), pairs
        return PME(matrix, 1e-10, coulomb_constant=1.5, exclusions=pairs, factors=0.3), pairs

    def __str__(self):
        return f"{self.function}, {self.pattern}, {self.mesh.ndim} axes"

    def arguments(self):
        """Return what a pattern starts from, and the function of these that gives the function's arguments."""
        base, pattern = self.base, self.pattern
        if pattern == "x = s cell":
            start = {**base, "x": base["x"] @ np.linalg.inv(base["cell"])}
            return start, lambda library, given: {**given, "x": given["x"] @ given["cell"]}
        if pattern == "one deformation":
            start = {"strain": self.rng.normal(size=base["cell"].shape) * 0.02, "values": base["values"]}
            fixed = {name: base[name] for name in base.keys() - {"values"}}

            def deformed(library, given):
                deform = library.array(np.eye(len(base["cell"]))) + given["strain"]
                moved = {n: library.array(a) @ deform if n in ("x", "cell") else library.array(a)
                         for n, a in fixed.items()}  # fmt: skip
                return {**moved, "values": given["values"] * (1 + given["strain"].trace())}

            return start, deformed
        if pattern == "independent":
            return base, lambda library, given: given
        name, of = pattern.rstrip(")").split("(")
        mixing = self.rng.normal(size=(base[name].size, base[of].size)) / base[of].size ** 0.5
        start = {n: a for n, a in base.items() if n != name}

        def chained(library, given):
            wave = library.xp.sin(library.array(mixing) @ given[of].reshape(-1)).reshape(base[name].shape)
            return {**given, name: library.array(base[name]) + 0.05 * wave}

        return start, chained

    def results(self, library, a):
        """Return the library's results, as a list of arrays."""
        of, (mesh, window) = self.function, (self.mesh, self.window)
        x, cell, values = a["x"], a.get("cell"), a["values"] * self.phase
        transfers, nufft, nufft3, pme = library.modules
        if of == "pme":
            return [pme.energy(self.pme, x, values, cell=cell)]
        if of == "batch":
            system, cells = library.array(np.repeat([0, 1], len(x))), library.xp.stack([cell, SIZE * cell])
            both = library.xp.concatenate([x, SIZE * x]), library.xp.concatenate([values, values**2 - 0.3])
            pairs = np.concatenate([self.pairs, self.pairs + len(x)])
            return [pme.energy(self.pme, *both, system, cell=cells, exclusions=pairs, factors=0.3)]
        if of == "potential":
            return [transfers.potential(x, values, mesh, window=window, cell=cell, green="ewald", alpha=a["more"])]
        if of.startswith("nufft"):
            eps = dict(eps=1e-11)
            if of == "nufft1":
                return [nufft.nufft1(x, values, mesh.shape, **eps)]
            return [nufft.nufft2(x, values, **eps) if of == "nufft2" else nufft3.nufft3(x, values, a["more"], **eps)]
        if of == "pm.spread":
            return [pm.spread(x, values, mesh, window=window)]
        if of.startswith("plan."):
            result = getattr(pm.Plan(mesh, window).set_positions(x), of[5:])(values)
            return list(result) if isinstance(result, tuple) else [result]
        call = getattr(transfers, of)
        order = (x, values) if of.startswith("spread") else (values, x)
        return [call(*order, mesh, window=window, cell=cell)]

    def exact(self, a):
        """Return the same from sums."""
        of, x, values = self.function, a["x"], a["values"] * self.phase
        mesh = pm.Mesh(self.mesh.shape, a.get("cell", self.mesh.box.matrix))
        if of == "pme":
            return [self._coulomb(a["cell"], x, values)]
        if of == "batch":
            systems = (a["cell"], x, values), (SIZE * a["cell"], SIZE * x, values**2 - 0.3)
            return [np.array([self._coulomb(*system) for system in systems])]
        if of == "potential":
            return [potential_of(mesh, self.window, x, values, a["more"])]
        if of in ("nufft1", "nufft2"):
            axes = [np.arange(-(n // 2), (n + 1) // 2) for n in mesh.shape]
            k = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, mesh.ndim)
            waves = np.exp(1j * k @ x.T)
            return [waves @ values if of == "nufft1" else waves.T.conj() @ values.reshape(-1)]
        if of == "nufft3":
            return [np.exp(1j * a["more"] @ x.T) @ values]
        verbs = ("interpolate", "gradient") if "value_and" in of else (of.split(".")[-1],)
        return [getattr(oracle, verb)(mesh, self.window, x, values) for verb in verbs]

    def _coulomb(self, cell, x, q):
        energy = ewald_sum(cell, x, q)[0]
        for i, j in self.pairs:
            energy += (0.3 - 1) * q[i] * q[j] / np.linalg.norm(image(x[j] - x[i], cell))
        return 1.5 * energy

    def _loss(self, library, results):
        if self.function == "pme":
            return results[0]
        if self.weights is None:
            self.weights = [self.rng.uniform(0.5, 1.5, r.size) for r in results]
        pairs = zip(results, self.weights, strict=True)
        return sum(((r.reshape(-1) * library.xp.conj(r.reshape(-1))).real * library.array(w)).sum() for r, w in pairs)

    def check(self, name="torch", second=True, plain=True):
        """Compare a library's derivatives with central differences of the sums; raise an error where they differ.

        Those of JAX are compiled, and also taken operation by operation if `plain`, which compiles each.
        """
        library = LIBRARIES[name]()
        start, rule = self.arguments()
        names, base = list(start), [np.array(a, float) for a in start.values()]
        along, across = ([self.rng.normal(size=a.shape) for a in base] for _ in range(2))
        tolerance = 1e-6 if self.function in ("pme", "batch", "nufft1", "nufft2", "nufft3") else 1e-7

        def exact(s, t=0.0):
            moved = (a + STEP * (s * u + t * v) for a, u, v in zip(base, along, across, strict=True))
            return self._loss(Numpy, self.exact(rule(Numpy, dict(zip(names, moved, strict=True)))))

        at = exact(0)
        scale = abs(at) + abs(slope_of(exact))

        def loss(*given):
            return self._loss(library, self.results(library, rule(library, dict(zip(names, given, strict=True)))))

        # Derivatives of gradients by positions are second ones, as those that JAX has not of sums over pairs.
        once = not second or "gradient" in self.function or (name, self.function) in {("jax", "pme"), ("jax", "batch")}
        forms, twice = library.slopes(loss, base, along, once, plain)
        first = slope_of(exact)
        for form, slopes in forms.items():
            assert len(slopes) == len(base)
            got = sum((s * u).sum() for s, u in zip(slopes, along, strict=True))
            assert abs(got - first) <= tolerance * scale, f"{self}, {form}: {got}, by differences {first}"
        one, *others = forms.values()
        for other, what in itertools.product(others, range(len(base))):
            size = max(abs(s).max() for s in one)
            np.testing.assert_allclose(
                other[what], one[what], rtol=0, atol=1e-8 * size, err_msg=f"{self}, {names[what]}"
            )
        if twice is not None:
            got = sum((s * v).sum() for s, v in zip(twice, across, strict=True))
            expected = slope_of(lambda t: slope_of(lambda s: exact(s, t)))
            assert abs(got - expected) <= 1e2 * tolerance * (scale + abs(expected)), f"{self}: {got}, twice {expected}"


def slope_of(function):
    """Return the derivative at 0 of a function of a number of steps."""
    near, far = function(1) - function(-1), function(2) - function(-2)
    return (8 * near - far) / (12 * STEP)


def run(first, last, second=4):
    """Return what failed of cases with these numbers, of torch; every few also by second derivatives."""
    failures = []
    for number in range(first, last):
        try:
            Case(number).check(second=number % second == 0)
        except Exception as error:  # every failure is listed by its number
            failures.append(f"case {number}: {type(error).__name__}: {error}"[:400])
    return failures
