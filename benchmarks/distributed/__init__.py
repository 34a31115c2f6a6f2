# SPDX-License-Identifier: BSD-3-Clause
"""Many GPUs: what a step takes against one GPU, predicted and measured."""
