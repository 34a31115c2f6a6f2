# SPDX-License-Identifier: BSD-3-Clause
"""
Landau damping
==============

Text.
"""

import matplotlib.pyplot as plt
import numpy as np

import particlemesh as pm

# %%
# First
# -----
# Prose.

field = pm.spread(np.array([0.5]), np.array([1.0]), pm.Mesh(4, 1.0), window="cic")
plan = pm.Plan(pm.Mesh(4, 1.0), "cic")
plan.set_positions(np.array([0.5]))
fig, ax = plt.subplots()
ax.plot(field)
plt.show()

print(f"sum: {field.sum():.6f}, expected 1")
assert abs(field.sum() - 1) < 1e-12, "charge is lost"
