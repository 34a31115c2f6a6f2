# SPDX-License-Identifier: BSD-3-Clause
"""The command `particlemesh`: what it measures, shows and draws."""
