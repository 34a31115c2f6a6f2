// SPDX-License-Identifier: BSD-3-Clause
// One particle's stencil, row by row: the including kernel defines DEPOSIT(field, at, vector).
// GRADIENT spreads the adjoint of the gradient: a vector per particle against the weights' slopes. HESSIAN spreads that of
// second derivatives.

#include "spread/values.h"

DEVICE void spread_rows(PRIVATE const Stencil* s, PRIVATE const real* q, GLOBAL Sink* field,
                        PRIVATE const Field* layout)
{
    for (int c = 0; c < CHANNELS; c++) {
        real along_z[LANE_SLOTS * VECTOR]; // the factor of x y
#if ORDER > 0
        real along_x[LANE_SLOTS * VECTOR], along_y[LANE_SLOTS * VECTOR]; // the factors of dx y and x dy
#endif
#if ORDER > 1 // and those of dxx y, dx dy and x dyy
        real along_xx[LANE_SLOTS * VECTOR], along_xy[LANE_SLOTS * VECTOR], along_yy[LANE_SLOTS * VECTOR];
#endif
        UNROLL for (int v = 0; v < LANE_SLOTS * VECTOR; v++) {
#if HESSIAN
            real g[SECONDS] = {0, 0, 0, 0, 0, 0};
            UNROLL for (int p = 0; p < PARTS; p++)
                if (s->part[v] == p)
                    UNROLL for (int n = 0; n < SECONDS; n++) g[n] = q[(c * PARTS + p) * SECONDS + n];
            along_z[v] = weighted(g[0], s->dzz[v]);
            along_x[v] = weighted(g[1], s->dz[v]);
            along_y[v] = weighted(g[2], s->dz[v]);
            along_xx[v] = weighted(g[3], s->z[v]);
            along_xy[v] = weighted(g[4], s->z[v]);
            along_yy[v] = weighted(g[5], s->z[v]);
#elif GRADIENT
            // q holds (x, y, z) for each part
            real gx = 0, gy = 0, gz = 0;
            UNROLL for (int p = 0; p < PARTS; p++)
                if (s->part[v] == p) {
                    gx = q[(c * PARTS + p) * 3], gy = q[(c * PARTS + p) * 3 + 1];
                    gz = q[(c * PARTS + p) * 3 + 2];
                }
            along_x[v] = weighted(gx, s->z[v]);
            along_y[v] = weighted(gy, s->z[v]);
            along_z[v] = weighted(gz, s->dz[v]);
#else
            real value = 0;
            UNROLL for (int p = 0; p < PARTS; p++)
                if (s->part[v] == p) value = q[c * PARTS + p];
            along_z[v] = weighted(value, s->z[v]);
#endif
        }
        UNROLL_ROWS for (int a = 0; a < SUPPORT_X; a++) {
            if (s->at_x[a] < 0) continue;
            UNROLL_ROWS for (int b = 0; b < LANE_ROWS; b++) {
                if (s->at_y[b] == NOWHERE) continue;
                const i64 row = layout->offset + c * layout->channel + s->at_x[a] * layout->stride[0] + s->at_y[b];
                const real xy = s->x[a] * s->y[b];
#if ORDER > 0
                const real dx_y = s->dx[a] * s->y[b], x_dy = s->x[a] * s->dy[b];
#endif
#if ORDER > 1
                const real dxx_y = s->dxx[a] * s->y[b], dx_dy = s->dx[a] * s->dy[b], x_dyy = s->x[a] * s->dyy[b];
#endif
                UNROLL for (int k = 0; k < LANE_SLOTS; k++) {
                    if (s->at_z[k] == NOWHERE) continue;
                    real vector[VECTOR];
                    UNROLL for (int v = 0; v < VECTOR; v++) {
                        const int u = k * VECTOR + v;
                        vector[v] = xy * along_z[u];
#if ORDER > 0
                        vector[v] += dx_y * along_x[u] + x_dy * along_y[u];
#endif
#if ORDER > 1
                        vector[v] += dxx_y * along_xx[u] + dx_dy * along_xy[u] + x_dyy * along_yy[u];
#endif
                    }
                    DEPOSIT(field, row + s->at_z[k], vector);
                }
            }
        }
    }
}
