# SPDX-License-Identifier: BSD-3-Clause
"""The tables of docs/guide/distributed.rst: predicted from the library's messages, and measured where a CSV file is.

``python tools/docs/distributed_derived.py`` writes docs/guide/distributed_messages.inc, distributed_predicted.inc,
distributed_links.inc and distributed_measured.inc, and the predicted rows into benchmarks/results. It measures nothing.
Run it after a change of domains or transforms and with new results of benchmarks/distributed/scaling.py, and commit
what it writes.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "src")]
from distributed import model  # noqa: E402
from harness.tables import RESULTS, read, write  # noqa: E402

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
    for gpus in sorted({*model.NVLINK, *(gpus for gpus, _ in model.CASES)}):
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
    """Return the predicted seconds of all rows, beside measured ones where there are any."""
    cells, names, off = {}, [], {}
    for row in model.predicted():
        where = row["device"], row["ranks"]
        names += [row["figure"]] * (row["figure"] not in names)
        beside = f", measured {float(row['measured_s']) * 1e3:.3g}" if row["measured_s"] else ""
        if beside:
            off.setdefault(where, []).append((abs(row["off"]), row["figure"]))
        cells[row["figure"], where] = f"{row['seconds'] * 1e3:.3g}{beside}"
        if where == (model.DEVICE, max(model.NVLINK)):
            cells[row["figure"], "value"] = f"{row['value']:.3g} {row['unit']}"
    columns = [*model.PREDICTED, "value"]
    rows = [[name, *(cells.get((name, where), "-") for where in columns)] for name in names]
    head = ["figure", *(f"{gpus} {device.split('-')[1].upper()}, ms" for device, gpus in model.PREDICTED),
            f"result of {max(model.NVLINK)}, predicted"]  # fmt: skip
    link = model.calibrated()
    constants = (
        f"Here t\u2080 is {link.round * 1e6:.0f} \u00b5s, B is {link.speed / 1e9:.0f} GB/s, "
        f"M is {model.MEMORY / 1e9:,.0f} GB/s, and an agreement takes {link.agreement * 1e6:.0f} \u00b5s.\n"
    )
    worst = [
        f"- {gpus} {device.split('-')[1].upper()}: {100 * max(each)[0]:.0f} %, of the row \u201c{max(each)[1]}\u201d."
        for (device, gpus), each in off.items()
    ]
    errors = "\n".join(
        ["Largest differences from measured times, each of a prediction that does not use the row:\n", *worst]
    )
    return "\n".join([table(head, "28 18 10 10 18 16", rows), constants, errors, ""])


def links():
    """Return predicted efficiencies over slower links."""
    rows = []
    for gpus, link in model.CASES:
        link = model.elsewhere(link)
        halos, transform = (model.busiest(figure, gpus).seconds(link) for figure in ("weak", "fft"))
        shares = (model.value_of(figure, gpus, link) for figure in ("weak", "deterministic", "fft", "few"))
        rows.append([f"{gpus}, {link.name}", f"{halos * 1e3:.2f}", f"{transform * 1e3:.1f}",
                     *(f"{100 * share:.0f} %" for share in shares)])  # fmt: skip
    head = ["GPUs, link", "halos, ms", "with transposes, ms", "spread and interpolate", "deterministic",
            "with real FFT", "10⁷ particles"]  # fmt: skip
    return table(head, "20 12 12 14 14 14 14", rows)


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


TABLES = {"messages": messages, "predicted": predicted, "links": links, "measured": measured}


def main():
    """Write all tables and predicted rows."""
    write("distributed-predicted", model.DEVICE, model.predicted())
    for name, make in TABLES.items():
        (PAGES / f"distributed_{name}.inc").write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
