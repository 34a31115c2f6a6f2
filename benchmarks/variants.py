# SPDX-License-Identifier: BSD-3-Clause
"""Forms of methods that run other kernels than the defaults: searches for races and bad addresses also run them."""


def _forms(name: str, argument: str, *options: dict[str, object]) -> list[dict[str, object]]:
    """Return the arguments of a plan for a method with each of these options."""
    return [{argument: name, "options": {name: chosen}} for chosen in options]


SPREADING = [
    *_forms(
        "single_mesh", "method",
        {"construction": "paper", "threads_per_row": 4, "reduction": "shuffle"},
        {"reduction": "local", "threads_per_row": 32},
    ),
    *_forms("group_mesh", "method", {"group_size": 256}, {"group_size": 16, "warps": 4}, {"warps": 2}),
    *_forms("hybrid_mesh", "method", {"width": 0}, {"width": 2}),
    *_forms("line_mesh", "method", {"lanes_per_cell": 32}),
    *_forms("domain_copies", "method", {"ranks": "atomic", "copies": 1}, {"copies": 2}),
    *_forms("walk", "method", *(walks := [{"form": "multiply"}, {"form": "matrix", "patch": 16, "chunk": 40}])),
    *_forms("walk", "method", {"form": "matrix", "fragments": False, "levels": 8, "chunk": 100}),
    *_forms("walk_fixed", "method", *walks),
    {"method": "walk", "order": "sorted"},
]  # fmt: skip
INTERPOLATING = [
    *_forms("stored", "interpolation", {"lanes": 1}),
    *_forms("domain_copies", "interpolation", {"ranks": "atomic", "copies": 1}),
    *_forms("walk", "interpolation", *walks, {"levels": 8, "chunk": 100}),
    {"interpolation": "walk", "order": "sorted"},
]
