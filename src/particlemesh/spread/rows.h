// SPDX-License-Identifier: BSD-3-Clause
// One particle's stencil, row by row: the including kernel defines DEPOSIT(field, at, vector).
// GRADIENT spreads the adjoint of the gradient: a vector per particle against the weights' slopes; HESSIAN that of second
// derivatives.

#include "spread/values.h"

#define TERM_OF(quantity) (HESSIAN ? (quantity) : GRADIENT ? ((quantity) + 1) % 3 : 0) // a vector's z comes last

DEVICE void spread_rows(PRIVATE const Stencil* s, PRIVATE const real* q, GLOBAL Sink* field,
                        PRIVATE const Field* layout)
{
    for (int c = 0; c < CHANNELS; c++) {
        real along[TERMS_ACROSS][LANE_SLOTS * VECTOR]; // the factors of weights across
        UNROLL for (int v = 0; v < LANE_SLOTS * VECTOR; v++) {
            real values[TERMS_ACROSS];
            UNROLL for (int n = 0; n < TERMS_ACROSS; n++) values[n] = 0;
            UNROLL for (int p = 0; p < PARTS; p++)
                if (s->part[v] == p)
                    UNROLL for (int n = 0; n < TERMS_ACROSS; n++) values[n] = q[(c * PARTS + p) * TERMS_ACROSS + n];
            UNROLL for (int n = 0; n < TERMS_ACROSS; n++)
                along[TERM_OF(n)][v] = weighted(values[n], s->by[ORDER_Z(TERM_OF(n))].z[v]);
        }
        UNROLL_ROWS for (int a = 0; a < SUPPORT_X; a++) {
            if (s->at_x[a] < 0) continue;
            UNROLL_ROWS for (int b = 0; b < LANE_ROWS; b++) {
                if (s->at_y[b] == NOWHERE) continue;
                const i64 row = layout->offset + c * layout->channel + s->at_x[a] * layout->stride[0] + s->at_y[b];
                real across[TERMS_ACROSS];
                weights_across(s, a, b, across);
                UNROLL for (int k = 0; k < LANE_SLOTS; k++) {
                    if (s->at_z[k] == NOWHERE) continue;
                    real vector[VECTOR];
                    UNROLL for (int v = 0; v < VECTOR; v++) {
                        const int u = k * VECTOR + v;
                        vector[v] = across[0] * along[0][u];
#if ORDER > 0
                        real slopes = across[1] * along[1][u];
                        UNROLL for (int t = 2; t < TERMS_ACROSS; t++) slopes += across[t] * along[t][u];
                        vector[v] += slopes;
#endif
                    }
                    DEPOSIT(field, row + s->at_z[k], vector);
                }
            }
        }
    }
}
