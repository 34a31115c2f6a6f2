# SPDX-License-Identifier: BSD-3-Clause
"""A pytest plugin: `freud.locality` has particlemesh's searches, for freud's own tests of them."""

import freud

from particlemesh.adapters.freud import AABBQuery, LinkCell

freud.AABBQuery = freud.locality.AABBQuery = AABBQuery
freud.LinkCell = freud.locality.LinkCell = LinkCell
