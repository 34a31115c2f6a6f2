# SPDX-License-Identifier: BSD-3-Clause
"""The tables of docs/guide/distributed.rst: predicted from the library's messages, and measured where a CSV file is.

``python tools/docs/distributed_derived.py`` writes docs/guide/distributed_messages.inc, distributed_predicted.inc and
distributed_measured.inc. It measures nothing. Run it after a change of domains or transforms and with new results of
benchmarks/distributed/scaling.py, and commit what it writes.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "src")]
from distributed import model  # noqa: E402
from harness.tables import RESULTS, read  # noqa: E402

PAGES = ROOT / "docs" / "guide"
BY = "\u00d7"


def table(head, widths, rows):
    """Return a table for the page."""
    lines = [".. Written by tools/docs/distributed_derived.py.", "", ".. list-table::", "   :header-rows: 1",
             f"   :widths: {widths}", ""]  # fmt: skip
    for row in [head, *rows]:
        lines += [f"   {'*' if i == 0 else ' '} - {cell}".rstrip() for i, cell in enumerate(row)]
    return "\n".join(lines) + "\n"


def messages():
    """Return what one GPU sends, as the library's pure functions list it."""
    rows = []
    for gpus in sorted({gpus for gpus, _ in model.CASES}):
        domain = model.domain_of(gpus)
        nodes, ranks = model.halo(domain)
        moves = model.transposes(domain, real=True)
        numbers = sum(move.numbers * (2 if move.modes else 1) for move in moves) * model.REAL
        shape = f" {BY} ".join(map(str, domain.mesh.shape))
        rows.append([
            str(gpus), shape, f"{nodes * model.COMPLEX / 1e6:.1f} MB, {ranks} ranks",
            f"{numbers / 1e6:.0f} MB in {len(moves)} round{'s' * (len(moves) > 1)}",
        ])  # fmt: skip
    head = ["GPUs", "nodes", "halo of a complex field", "real transform, one way"]
    return table(head, "10 30 30 30", rows)


def predicted():
    """Return predicted efficiencies."""
    rows = []
    for gpus, link in model.CASES:
        step = model.predicted(model.domain_of(gpus), link)
        shares = step[2:]
        rows.append([f"{gpus}, {link.name}", f"{step.halo * 1e3:.2f}", f"{step.transform * 1e3:.1f}",
                     *(f"{100 * share:.0f} %" for share in shares)])  # fmt: skip
    head = ["GPUs, link", "halos, ms", "transposes, ms", "spread and interpolate", "deterministic", "with complex FFT",
            "with real FFT", "10⁷ particles"]  # fmt: skip
    return table(head, "20 10 12 12 12 12 11 11", rows)


def measured(folder=RESULTS):
    """Return measured figures of all result files, or a sentence that there are none."""
    kept = [row for path in sorted(folder.glob("distributed-scaling-*.csv")) for row in read(path)]
    rows = [
        [row["figure"], f"{row['ranks']} {BY} {row['device']}, {row['transport']}",
         f"{float(row['seconds']) * 1e3:.3g} ms", f"{float(row['one_s']) * 1e3:.3g} ms",
         f"{float(row['value']):.3g} {row['unit']}",
         f"{float(row['reach']):g}, {float(row['stretch']):g}"]
        for row in kept
    ]  # fmt: skip
    if not rows:
        return (".. Written by tools/docs/distributed_derived.py.\n\nNo results are stored. "
                "``mpiexec -n 2 python benchmarks/distributed/scaling.py`` measures them.\n")  # fmt: skip
    head = ["figure", "machine", "all GPUs", "one GPU", "result", "goals"]
    return table(head, "30 26 11 11 12 10", rows)


TABLES = {"messages": messages, "predicted": predicted, "measured": measured}


def main():
    """Write all tables."""
    for name, make in TABLES.items():
        (PAGES / f"distributed_{name}.inc").write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
