# SPDX-License-Identifier: BSD-3-Clause
"""Tables of measured times that several write at once: threads of a process, and processes of their own."""

import threading

import pytest

from particlemesh import backends
from particlemesh.choosing import tables
from processes import child, finish
from test_timings import rows, table


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A cache folder of its own; return the file of the processor's table."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tables.path_of("cpu", tables.device_of(backends.current("cpu")))


def test_threads_at_once_leave_one_whole_table(place):
    versions = [table(rows(40 + n, seed=n)) for n in range(6)]
    path, wrong, stop = tables.write(versions[0]), [], threading.Event()

    def write(version):
        for _ in range(20):
            tables.write(version)

    def read():
        while not stop.is_set():
            count = len(tables.read(path).rows)
            if count not in {len(v.rows) for v in versions}:
                wrong.append(count)

    writers = [threading.Thread(target=write, args=(v,)) for v in versions]
    reader = threading.Thread(target=read)
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    reader.join()
    assert not wrong
    assert [p.name for p in place.parent.iterdir()] == [path.name]  # nothing is left aside


# A writer's rows are alike and as many as no other's, so that a table of two, or a part of one, is seen.
WRITE = """
import os, time
from pathlib import Path
from particlemesh import backends
from particlemesh.choosing import predict, sources, tables
cpu, number, meeting = backends.current("cpu"), int(os.environ["NUMBER"]), Path(os.environ["MEETING"])
device, SOURCES = tables.device_of(cpu), {"spread/walk": sources.fingerprint("cpu", "spread", "walk")}

def table_of(writer, version):
    row = tables.Row("spread", "walk", 1 + writer, 4, "float32", 1, 1 + version, 1.0, 0, 1.0, 0.5, 0.25)
    return tables.Table("cpu", device, f"by {writer}", SOURCES, (row,) * (300 + 100 * writer))

(meeting / str(number)).touch()
late = time.monotonic() + 100
while len(list(meeting.iterdir())) < 3:
    assert time.monotonic() < late, "the others did not come"
for version in range(20):
    found = tables.read(tables.write(table_of(number, version)))
    first = found.rows[0]
    assert found == table_of(first.nodes - 1, first.particles - 1), (first, len(found.rows))
    predict.forget()
    times = predict.known(cpu)  # warns of a table that cannot be read
    assert len(set(times.rows)) == 1 and len(times.rows) == 200 + 100 * times.rows[0].nodes, times.hint
"""


def test_processes_at_once_read_whole_tables_and_leave_one(place, tmp_path):
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    many = [child(WRITE, NUMBER=str(n), MEETING=str(meeting)) for n in range(3)]
    for one in many:
        finish(one)
    assert [p.name for p in place.parent.iterdir()] == [place.name]
    left = tables.read(place).rows
    assert {row.particles for row in left} == {20}  # the last writer's last version
    assert len(left) == 200 + 100 * left[0].nodes
