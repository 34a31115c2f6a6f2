# SPDX-License-Identifier: BSD-3-Clause
"""Fields in Fourier space: transforms, bands of modes, Green functions, solvers and spectra."""
