# SPDX-License-Identifier: BSD-3-Clause
"""The pages of examples/gallery: ``make pages`` makes them from text alone, ``make gallery`` also runs the examples."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STYLE = ROOT / "docs" / "gallery.mplstyle"
# Without torch its examples are pages without output.
RUN = "plot_" if importlib.util.find_spec("torch") else "plot_(?!torch_)"


def style(gallery_conf, name):
    """Give every example the same style, whatever the one before it set."""
    import matplotlib

    matplotlib.rcdefaults()
    matplotlib.style.use(STYLE)


CONFIGURATION = {
    "examples_dirs": str(ROOT / "examples" / "gallery"),
    "gallery_dirs": "gallery",
    "filename_pattern": RUN,
    "plot_gallery": "False",  # -D plot_gallery=1 runs the examples
    "within_subsection_order": "FileNameSortKey",
    "reset_modules": ("gallery.style",),
    "image_srcset": ["2x"],
    "doc_module": ("particlemesh",),
    "reference_url": {"particlemesh": None},
    "remove_config_comments": True,
    "show_signature": False,
    "write_computation_times": False,
    "download_all_examples": False,
}
