// SPDX-License-Identifier: BSD-3-Clause
// A particle's quantities: its values, its vectors in node units, or with HESSIAN its tensors: what the six second
// derivatives in node units are multiplied by.

#ifndef VALUES_H
#define VALUES_H

DEVICE void values_of(PRIVATE real* q, GLOBAL const real* values, i64 i, PRIVATE const Values* layout,
                      PRIVATE const Jacobian* jacobian)
{
    UNROLL for (int c = 0; c < CHANNELS; c++)
        UNROLL for (int p = 0; p < PARTS; p++) {
            GLOBAL const real* v = values + number_at(layout, i, c, p);
#if HESSIAN
            UNROLL for (int n = 0; n < SECONDS; n++) {
                real sum = 0;
                UNROLL for (int b = 0; b < SUPPORT_AXES; b++)
                    UNROLL for (int e = 0; e < SUPPORT_AXES; e++)
                        sum += second_slope(jacobian, n, 3 - SUPPORT_AXES + b, 3 - SUPPORT_AXES + e)
                             * v[b * layout->axis + e * layout->second];
                q[(c * PARTS + p) * SECONDS + n] = sum;
            }
#elif GRADIENT
            UNROLL for (int a = 0; a < 3; a++) {
                real sum = 0;
                UNROLL for (int b = 3 - SUPPORT_AXES; b < 3; b++)
                    sum += jacobian->row[3 * a + b] * v[(b - 3 + SUPPORT_AXES) * layout->axis];
                q[(c * PARTS + p) * 3 + a] = sum;
            }
#else
            q[c * PARTS + p] = v[0];
#endif
        }
}

#define QUANTITIES (CHANNELS * PARTS * (HESSIAN ? 6 : GRADIENT ? 3 : 1))

#endif
