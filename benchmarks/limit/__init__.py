# SPDX-License-Identifier: BSD-3-Clause
"""How close spreading and interpolation come to what a GPU can do, measured by ``run.py``."""
