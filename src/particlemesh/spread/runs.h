// SPDX-License-Identifier: BSD-3-Clause
// Runs of visits whose stencils begin at one node along x, for warps that own windows (spread/owner.c): rows of visits
// in local memory, and the sums of their products.

#define ROWS_Z (REALS * TERMS)
#define LEVELS_STORED 8 // for fewer, ptxas computes more addresses
#include "walk/walk.h"
#include "orders/visits.h"

// With rows of zeros after the batch, which its last instruction may read.
#define PLACES (BATCH + (REAL_IS_DOUBLE && HAS_WARP ? 4 : 8))
#define ROW_OF(real_, term) (ROW_Z + (real_)*TERMS + (term))
#define SUM(level, real_, e) (((level)*REALS + (real_)) * 2 + (e))
// Two neighbouring columns of a product, e = 0 and 1, are what lies side by side in memory: parts of a node, or nodes
// with one part. Which of the lane's nodes they are for, and which of the reals of a node.
#define NODE_OF(real_, e) ((2 * ((real_) % PARTS) + (e)) / PARTS)
#define PART_OF(real_, e) ((real_) / PARTS * PARTS + (2 * (real_) + (e)) % PARTS)
#define TERM_X(term) (GRADIENT && (term) == 0 ? ROW_X + ROWS_X : ROW_X)
#define TERM_Y(term) (ROW_Y + (GRADIENT && (term) == 1))
#define BEFORE (SUPPORT - 1) // nodes of a stencil before the window, at most
#define BEFORE_X (SUPPORT_X - 1)
#define PAIRS (ROWS_X > 1 ? 4 : LEVELS / 2) // of levels, taken at once
#define WIDE_ROW (8 + BEFORE)

// A visitor's values or, with GRADIENT, the components of its vectors. VALUES_PAIRED: both parts of a value are read by
// one instruction. Nothing is calculated, as that would wait for the read.
DEVICE void visitor_values(PRIVATE real* q, GLOBAL const real* values, const i64 i, PRIVATE const Values* layout)
{
    UNROLL for (int c = 0; c < CHANNELS; c++) {
        GLOBAL const real* v = values + layout->offset + i * layout->particle + c * layout->channel;
#if VALUES_PAIRED
        const real2 both = READ_2(v);
        q[2 * c] = both.x, q[2 * c + 1] = both.y;
#else
        UNROLL for (int p = 0; p < PARTS; p++)
            UNROLL for (int b = 0; b < (GRADIENT ? SUPPORT_AXES : 1); b++)
                q[(c * PARTS + p) * TERMS + b] = v[p * layout->part + b * layout->axis];
#endif
    }
}

// Turn vectors to node units.
DEVICE void turn_vectors(PRIVATE real* q, PRIVATE const Jacobian* jacobian)
{
    UNROLL for (int r = 0; r < REALS; r++) {
        real turned[3];
        UNROLL for (int a = 0; a < 3; a++) {
            turned[a] = 0;
            UNROLL for (int b = 0; b < SUPPORT_AXES; b++)
                turned[a] += jacobian->row[3 * a + 3 - SUPPORT_AXES + b] * q[3 * r + b];
        }
        UNROLL for (int a = 0; a < 3; a++) q[3 * r + a] = turned[a];
    }
}

// The weights along y or z of a stencil that begins `at` nodes after the first that may reach the window.
DEVICE void row_within(PRIVATE real* row, PRIVATE const Window* window, const int axis, const int slope, const real z,
                       const int at)
{
    real wide[WIDE_ROW];
    row_of(wide, WIDE_ROW, window, axis, slope, z, at, 7 + BEFORE);
    UNROLL for (int e = 0; e < 8; e++) row[e] = wide[BEFORE + e];
}

// The rows of one visit, from `to` on.
DEVICE void stage_visit(LOCAL real* to, PRIVATE const real* fraction, const u32 where, PRIVATE const real* q,
                        PRIVATE const Window* window)
{
    UNROLL for (int slope = 0; slope < 1 + GRADIENT; slope++) {
        real levels[8 * ROWS_X], row[8];
        row_of(levels, 8 * ROWS_X, window, 0, slope, fraction[0], 0, 0);
        UNROLL for (int part = 0; part < ROWS_X; part++)
            stage(to + ROW_AT(ROW_X + ROWS_X * slope + part), levels + 8 * part,
                  LEVELS - 8 * part < 8 ? LEVELS - 8 * part : 8);
        row_within(row, window, 1, slope, fraction[1], VISIT_Y(where));
        stage(to + ROW_AT(ROW_Y + slope), row, 8);
        row_within(row, window, 2, slope, fraction[2], VISIT_Z(where));
        UNROLL for (int r = 0; r < REALS; r++)
            UNROLL for (int term = 0; term < TERMS; term++) {
                if (GRADIENT && slope != (term == 2)) continue; // the third term has the slope along z
                real own[8];
                UNROLL for (int e = 0; e < 8; e++)
                    own[e] = q[PART_OF(r, e % 2) * TERMS + term] * row[NODE_Z(e / 2, NODE_OF(r, e % 2))];
                stage(to + ROW_AT(ROW_OF(r, term)), own, 8);
            }
    }
}

// One visit, by multiplying and adding.
DEVICE void add_one(PRIVATE real* sums, LOCAL const real* from, const int t, const int g)
{
    UNROLL for (int term = 0; term < TERMS; term++) {
        real x[8 * ROWS_X], z[2];
        UNROLL for (int part = 0; part < ROWS_X; part++) levels_from(x + 8 * part, from, TERM_X(term) + part);
        const real y = from[ROW_AT(TERM_Y(term)) + g];
        UNROLL for (int r = 0; r < REALS; r++) {
            LOAD_LOCAL_2(from + ROW_AT(ROW_OF(r, term)) + ELEMENT_Z(t, 0), z);
            UNROLL for (int e = 0; e < 2; e++) {
                const real yz = y * z[e];
                UNROLL for (int l = 0; l < SUPPORT_X; l++) sums[SUM(l, r, e)] += x[l] * yz;
            }
        }
    }
}

#if MATRIX
// Add `depth` times four visits. The lane's first is at `from`, and its second is the next one. Values are those of
// `count` visits, or with `all` of all; weights are finite everywhere.
DEVICE void add_visits(WARP_PARAMETER warp, PRIVATE real* sums, LOCAL const real* from, const int t, const int g,
                       const int depth, const int all, const int count)
{
    UNROLL for (int term = 0; term < TERMS; term++) {
        // Float32: numbers are split in two parts, as an instruction takes 11 bits of each.
        real y[2], b[REALS][2];
#if !REAL_IS_DOUBLE
        real low[REALS][2];
#endif
        UNROLL for (int n = 0; n < depth; n++) {
            const int takes = all || depth * t + n < count;
            LOCAL const real* own = from + n * PITCH + g;
            y[n] = own[ROW_AT(TERM_Y(term))];
            UNROLL for (int r = 0; r < REALS; r++) {
                const real z = takes ? own[ROW_AT(ROW_OF(r, term))] : (real)0;
#if REAL_IS_DOUBLE
                b[r][n] = z;
#else
                b[r][n] = SPLIT_TF32(z), low[r][n] = z - b[r][n];
#endif
            }
        }
        // Two levels are an instruction's sixteen rows. Up to eight levels are taken at once.
#define SUM_OF(m, n, r) SUM(first + 2 * (m) + (n) / 2, r, (n) % 2)
        UNROLL for (int part = 0; part < ROWS_X; part++) {
            const int first = 8 * part;
            real x[2][8], a[PAIRS][4];
            UNROLL for (int n = 0; n < depth; n++) levels_from(x[n], from + n * PITCH, TERM_X(term) + part);
            UNROLL for (int m = 0; m < PAIRS; m++)
                UNROLL for (int n = 0; n < 2 * depth; n++) a[m][n] = x[n / 2][2 * m + n % 2] * y[n / 2];
#if REAL_IS_DOUBLE
            UNROLL for (int m = 0; m < PAIRS; m++)
                UNROLL for (int r = 0; r < REALS && first + 2 * m < LEVELS; r++) {
                    real c[4];
                    UNROLL for (int n = 0; n < 4; n++) c[n] = sums[SUM_OF(m, n, r)];
                    if (depth == 2) MMA_16_8_8(warp, c, a[m], b[r]);
                    else MMA_16_8_4(warp, c, a[m], b[r][0]);
                    UNROLL for (int n = 0; n < 4; n++) sums[SUM_OF(m, n, r)] = c[n];
                }
#else
            // An instruction adds with truncation, so that long sums are kept outside.
            real rest[PAIRS][4];
            UNROLL for (int m = 0; m < PAIRS; m++)
                UNROLL for (int n = 0; n < 4; n++) {
                    const real weight = a[m][n];
                    a[m][n] = SPLIT_TF32(weight), rest[m][n] = weight - a[m][n];
                }
            UNROLL for (int r = 0; r < REALS; r++) {
                real c[PAIRS][4];
#define EACH_PAIR UNROLL for (int m = 0; m < PAIRS && first + 2 * m < LEVELS; m++)
                EACH_PAIR UNROLL for (int n = 0; n < 4; n++) c[m][n] = 0;
                EACH_PAIR MMA_16_8_8(warp, c[m], rest[m], b[r]);
                EACH_PAIR MMA_16_8_8(warp, c[m], a[m], low[r]);
                EACH_PAIR MMA_16_8_8(warp, c[m], a[m], b[r]);
                EACH_PAIR UNROLL for (int n = 0; n < 4; n++) sums[SUM_OF(m, n, r)] += c[m][n];
            }
#endif
        }
    }
}
#endif

// Add the visits of a batch from `next` up to `end`, which all begin at one node along x.
// The warp's lanes are 4 g + t.
DEVICE void add_run(WARP_PARAMETER warp, PRIVATE real* sums, LOCAL const real* staged, const int t, const int g,
                    const int next, const int end)
{
    int left = end - next;
#if MATRIX
#define ADD(depth, all) add_visits(warp, sums, own, t, g, depth, all, left)
    LOCAL const real* own = staged + (next + 2 * t) * PITCH; // the lane's visit
#if HAS_WARP // elsewhere one program of the product will do, as compiling it takes long
    ROLL for (; left >= 8; left -= 8, own += 8 * PITCH) ADD(2, 1);
#if REAL_IS_DOUBLE
    if (left > 4) {
        ADD(2, 0);
    } else if (left > 0) {
        own -= t * PITCH;
        ADD(1, 0);
    }
#else
    if (left > ALONE) {
        ADD(2, 0);
        left = 0;
    }
#endif
#else
    ROLL for (; left > ALONE; left -= 8, own += 8 * PITCH) ADD(2, 0);
#endif
#endif
#if !MATRIX || ALONE
    LOCAL const real* from = staged + (end - left) * PITCH;
    ROLL for (; left > 0; left--, from += PITCH) add_one(sums, from, t, g);
#endif
}
