// SPDX-License-Identifier: BSD-3-Clause
// One particle's stencil, row by row: the including kernel defines DEPOSIT(field, at, vector).
// GRADIENT spreads the adjoint of the gradient: a vector per particle against the weights' slopes. HESSIAN spreads that of
// second derivatives.

#include "spread/values.h"

#define QUANTITY_OF(n) (ORDER == 1 ? ((n) + 2) % 3 : (n)) // of plane n; vectors are (x, y, z)

DEVICE void spread_rows(PRIVATE const Stencil* s, PRIVATE const real* q, GLOBAL Sink* field,
                        PRIVATE const Field* layout)
{
    for (int c = 0; c < CHANNELS; c++) {
        real along[WEIGHT_PRODUCTS][LANE_SLOTS * VECTOR]; // the factors of products of weights along x and y
        UNROLL for (int v = 0; v < LANE_SLOTS * VECTOR; v++)
            UNROLL for (int n = 0; n < WEIGHT_PRODUCTS; n++) {
                real own = 0;
                UNROLL for (int p = 0; p < PARTS; p++)
                    if (s->part[v] == p) own = q[(c * PARTS + p) * WEIGHT_PRODUCTS + QUANTITY_OF(n)];
                along[n][v] = weighted(own, s->z[ORDER - ALONG_X(n) - ALONG_Y(n)][v]);
            }
        UNROLL_ROWS for (int a = 0; a < SUPPORT_X; a++) {
            if (s->at_x[a] < 0) continue;
            UNROLL_ROWS for (int b = 0; b < LANE_ROWS; b++) {
                if (s->at_y[b] == NOWHERE) continue;
                const i64 row = layout->offset + c * layout->channel + s->at_x[a] * layout->stride[0] + s->at_y[b];
                real across[WEIGHT_PRODUCTS];
                UNROLL for (int n = 0; n < WEIGHT_PRODUCTS; n++) across[n] = s->x[ALONG_X(n)][a] * s->y[ALONG_Y(n)][b];
                UNROLL for (int k = 0; k < LANE_SLOTS; k++) {
                    if (s->at_z[k] == NOWHERE) continue;
                    real vector[VECTOR];
                    UNROLL for (int v = 0; v < VECTOR; v++) {
                        const int u = k * VECTOR + v;
                        vector[v] = across[0] * along[0][u];
#if ORDER > 0 // rounded as in walk.c, so that sums of integers are equal
                        vector[v] = fma(across[1], along[1][u], across[2] * along[2][u]);
                        vector[v] = fma(across[0], along[0][u], vector[v]);
#endif
#if ORDER > 1
                        vector[v] += across[3] * along[3][u] + across[4] * along[4][u] + across[5] * along[5][u];
#endif
                    }
                    DEPOSIT(field, row + s->at_z[k], vector);
                }
            }
        }
    }
}
