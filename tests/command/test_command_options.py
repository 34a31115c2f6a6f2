# SPDX-License-Identifier: BSD-3-Clause
"""Every option of every command changes what the command says or writes, or is refused; outputs have names apart."""

import functools
import re
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import particlemesh as pm
from particlemesh.apps import files
from particlemesh.command import cli, consoles

COMMANDS = typer.main.get_command(cli.app).commands
random = np.random.default_rng(5)
LENGTHS = np.array([4.0, 5.0, 6.0])
X, Q = random.random((60, 3)) * (LENGTHS - 0.2) + 0.1, random.normal(size=60)

SPREAD = "spread few.npz --values charge --shape 6"
OPEN = "spread few.npz --values charge --shape 6 --periodic xy"
FLAT = "spread flat.npz --shape 6 --picture p.png"
SPECTRUM = "spectrum few.npz --shape 6"
BROWNIAN = "brownian --count 4 --steps 4"
DEM = "dem --count 6 --steps 40 --shape rain"
# Of each command: calls that the options are added to. What an option needs is there in one of them and not in another.
CALLS = [
    SPREAD, OPEN, FLAT, f"{SPREAD} --picture p.png --kind slice", f"{SPREAD} --picture p.png --kind projection",
    "spread many.xyz --shape 6", "spread few.npz --box fit --shape 6",
    "interpolate few.npz --field f.npz",
    "neighbours few.npz --radius 1", "neighbours few.npz --radius 1 --out n.npz", "neighbours many.xyz --radius 1",
    f"{SPECTRUM} --values mass", f"{SPECTRUM} --picture s.png",
    f"{SPECTRUM} --other pair.npz --multipoles 0,2", "spectrum positive.npz --field",
    "spectrum positive.npz --field --window cic",
    BROWNIAN, f"{BROWNIAN} --mobility drag", "brownian --restart b.h5 --steps 2 --checkpoint c.h5",
    DEM, f"{DEM} --contact spring", f"{DEM} --trajectory t.xyz --every 7",
    "dem --restart d.h5 --steps 2 --checkpoint c.h5", "cite",
]  # fmt: skip
VALUES = {
    "positions": "velocity", "values": "mass", "topology": "few.npz", "frames": "1", "box": "7,7,7",
    "origin": "0.01,0,0", "periodic": "xz", "shape": "5", "spacing": "0.9", "offset": "0.5", "window": "tsc",
    "order": "3", "dtype": "float32", "outside": "lose", "picture": "q.png", "kind": "slice", "axis": "x",
    "at": "1.0", "level": "0.5", "scale": "log", "out": "o.npz", "radius": "1.2", "quantities": "ij",
    "compensation": "aliases", "field": "f.npz", "method": "particle", "count": "5", "fraction": "0.1", "steps": "3",
    "other": "pair.npz", "other_values": "mass", "multipoles": "2", "line_of_sight": "x",
    "time_step": "1e-5", "mobility": "drag", "integrator": "midpoint", "accuracy": "1e-2", "seed": "2",
    "polydispersity": "0.2", "contact": "spring", "young": "2e6", "stiffness": "2e3", "restitution": "0.3",
    "friction": "0.4", "density": "2000", "gravity": "5", "every": "5",
}  # fmt: skip
OF_COMMANDS = {
    ("dem", "shape"): "column", ("dem", "radius"): "0.01", ("cite", "method"): "tile", ("dem", "method"): "sort",
    ("interpolate", "method"): "tiles",
}  # fmt: skip
# What does not show in numbers, and why.
UNSEEN = {
    "chunk": "the memory that is taken", "overwrite": "a permission", "backend": "where it runs",
    "deterministic": "which methods may be chosen", "checkpoint": "a name", "checkpoint_every": "when it is written",
    "restart": "where the run begins, in the calls above", "trajectory": "a name, in the calls above", "out": "a name",
    "method": "an algorithm; builders give the same contacts",
}  # fmt: skip
ELSEWHERE = {
    "info": "prints what is there", "demo": "takes a minute", "tune": "measures", "distributed": "measures",
    "view": "opens a window", "warm": "compiles",
}  # fmt: skip


def test_every_command_is_tried():
    assert {call.split()[0] for call in CALLS} | set(ELSEWHERE) == set(COMMANDS)


SEEN = {("cite", "method"), ("spread", "method")}  # in spite of UNSEEN


def added():
    for words in CALLS:
        command = COMMANDS[words.split()[0]]
        for option in command.params:
            flag, seen = option.opts[-1], option.name not in UNSEEN or (command.name, option.name) in SEEN
            if flag.startswith("--") and flag not in words and seen:
                yield pytest.param(words, option, id=f"{words} {flag}")


def frames(count):
    """Return an extended XYZ file whose particles move from frame to frame."""
    head = f'{len(X)}\nLattice="4 0 0 0 5 0 0 0 6" Properties=species:S:1:pos:R:3:velocity:R:3:mass:R:1\n'
    for n in range(count):
        rows = np.c_[X + 0.01 * n, X[::-1] / 2, abs(Q)]
        yield head + "".join(f"A {' '.join(f'{value:.8f}' for value in row)}\n" for row in rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with inputs, made once."""
    path = tmp_path_factory.mktemp("options")
    np.savez(path / "few.npz", position=X, velocity=X[::-1] * 0.9, charge=Q, mass=abs(Q), box=LENGTHS)
    np.savez(path / "pair.npz", position=X[:40] * 0.8, velocity=X[:40], mass=abs(Q[:40]), box=LENGTHS)
    np.savez(path / "flat.npz", position=X[:, :2], velocity=X[::-1, :2], mass=abs(Q), box=LENGTHS[:2])
    (path / "many.xyz").write_text("".join(frames(3)))
    mesh = pm.Mesh((6, 6, 6), LENGTHS)
    files.write_field(path / "f.npz", random.normal(size=mesh.shape), mesh)
    files.write_field(path / "positive.npz", random.random(mesh.shape), mesh)
    return path


@pytest.fixture(autouse=True)
def there(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(consoles, "can_draw", lambda: False)  # no pictures of spheres
    if not Path("d.h5").exists():
        call("brownian --count 4 --steps 2 --checkpoint b.h5")
        call("dem --count 6 --steps 2 --checkpoint d.h5")


def call(words):
    """Return the exit code, the error, and all that a command says and writes, but for times and checkpoints."""
    written = [Path(name) for name in ("p.png", "q.png", "s.png", "n.npz", "t.xyz")]
    for path in (*Path("out").glob("*"), *written, Path("c.h5")):
        path.unlink(missing_ok=True)
    result = CliRunner().invoke(cli.app, words.split())
    assert isinstance(result.exception, (SystemExit, type(None))), result.exception
    lines = [line for line in result.stdout.splitlines()[1:] if not re.match(r"time |.*(particles/s|a²/D,)", line)]
    # Rows of a run end with its rate.
    said = [line[:66] if words.startswith("dem") and re.match(r" +\d+ ", line) else line for line in lines]
    there = sorted(path for path in (*Path("out").glob("*"), *written) if path.exists())
    return result.exit_code, result.stderr, said, {str(path): content(path) for path in there}


@functools.cache
def unchanged(words):
    """Return `call`'s answer; a restart begins with the same file every time."""
    return call(words)


def content(path):
    if path.suffix != ".npz":
        return path.read_bytes()
    with np.load(path) as arrays:
        return {name: (arrays[name].dtype, arrays[name].tobytes()) for name in arrays}


@pytest.mark.turns(12)
@pytest.mark.parametrize(("words", "option"), [*added()])
def test_options_change_the_result_or_are_refused(words, option):
    command = words.split()[0]
    value = OF_COMMANDS.get((command, option.name), VALUES.get(option.name, ""))
    flag = option.secondary_opts[-1] if option.secondary_opts and option.default else option.opts[-1]
    plain = unchanged(words)
    assert plain[0] == 0, plain[1]
    code, error, *results = call(f"{words} {flag} {'' if option.is_flag else value}")
    if code == 2:
        (line,) = error.splitlines()
        assert line.startswith(f"particlemesh {command}: ")
    else:
        assert code == 0, error
        assert [error, *results] != [*plain[1:]], "the option changes nothing"


REFUSED = {
    "neighbours few.npz --radius 1 --overwrite": "--overwrite has no effect",
    "spectrum few.npz --overwrite": "--overwrite has no effect",
    "spread few.npz --picture p.png --kind isosurface --scale log": "isosurface",
    "spread few.npz --picture p.png --at 1": "--at has no effect: it needs --kind slice",
    "spread few.npz --picture out/field.npz": "the picture is",
    "spread few.npz --out p.png --picture p.png": "--out and --picture are both p.png",
    "spectrum few.npz --out s.svg --picture ./s.svg": "--out and --picture are both s.svg",
    "tune --show --quick": "--quick has no effect",
    "tune --show --changed": "--changed has no effect",
    "brownian --out b.foo": "give a name that ends in .png",
    "brownian --out z.png --checkpoint z.png": "--out and --checkpoint are both z.png",
    "brownian --out /proc/none/z.png": "cannot be written to",
    "brownian --checkpoint /proc/none/z.h5": "cannot be written to",
    "dem --out z.png --checkpoint z.png": "--out and --checkpoint are both z.png",
    "dem --trajectory d2.h5 --checkpoint ./d2.h5": "--trajectory and --checkpoint are both d2.h5",
    "dem --restart d.h5 --steps 2 --trajectory d.h5": "d.h5 is an input",
    "dem --out /proc/none/z.png": "cannot be written to",
    "dem --trajectory /proc/none/z.xyz": "cannot be written to",
    "dem --checkpoint few.npz/z.h5": "cannot be written to",
    "demo few.npz --out few.npz": "few.npz",
    "demo --out b.foo": "give a name that ends in .png",
    "distributed --particles 1000 --nodes 8 --out b.foo": "give a name that ends in .png or .pdf",
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_what_would_be_idle_or_lost_is_refused_before_the_first_step(words, monkeypatch):
    if "/proc" in words and not Path("/proc").is_dir():
        pytest.skip("nothing here is unwritable for every user")
    for module in ("particlemesh.apps.brownian.BrownianDynamics.run", "particlemesh.apps.dem.Simulation.run"):
        monkeypatch.setattr(module, None)
    inputs = [Path(name) for name in ("few.npz", "many.xyz", "positive.npz", "b.h5", "d.h5")]
    before = [path.read_bytes() for path in inputs]
    code, error, said, _ = call(words)
    (line,) = error.splitlines()
    assert code == 2 and not said and REFUSED[words] in line
    assert [path.read_bytes() for path in inputs] == before
