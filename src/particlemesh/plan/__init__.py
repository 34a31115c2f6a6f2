# SPDX-License-Identifier: BSD-3-Clause
"""What users call: sizes and positions (`configuration`), values (`calls`), `integers`, the verbs (`plan`)."""

from particlemesh.plan.plan import Plan as Plan
