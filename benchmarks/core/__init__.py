# SPDX-License-Identifier: BSD-3-Clause
"""Spreading and interpolation: times beside the limits of the device, beside peers, and on the CPU."""
