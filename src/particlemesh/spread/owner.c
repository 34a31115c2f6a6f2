// SPDX-License-Identifier: BSD-3-Clause
// Spreading by warps that own windows of the field (orders/visits.h).
//
// A warp walks along x over the visits of its window and keeps the levels that the stencils at hand reach in registers:
// LEVELS x 8 x 8 nodes, in the layout of walk/walk.h with one tile along z. It stores a level when all that reach it
// have been added, and levels that none reaches as well, so the field needs not be cleared. Nobody else writes there.
//
// Windows with many visits are cut into pieces. The first piece of a window is stored to the field. Others are stored
// to slabs, one for each, which add_slabs adds to the field in the order of the pieces.
//
// ADDS: windows are added to what is in the field. Elsewhere reads of it would cost registers and time.

#include "orders/batches.h"

// ---- runs of visits that begin at one node along x: their rows in local memory, the sums of their products ---------

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

// Where a warp stores: the lane's first node of the window's level `at`, which may be before the first one or after the
// last; and the strides to the next level and channel, and to the lane's second node.
typedef struct {
    GLOBAL real* to;
    i64 level, channel, second;
    int at;
    u32 levels[2]; // of the window, or 0 if there is no such node of the lane
} Target;

DEVICE void add_stored(PRIVATE real* own, GLOBAL const real* at)
{
#if VECTOR == 4
    const real4 was = *(GLOBAL const real4*)at;
    own[0] += was.x, own[1] += was.y, own[2] += was.z, own[3] += was.w;
#elif VECTOR == 2
    const real2 was = *(GLOBAL const real2*)at;
    own[0] += was.x, own[1] += was.y;
#else
    own[0] += at[0];
#endif
}

DEVICE void put(GLOBAL real* to, PRIVATE const real* own)
{
#if VECTOR == 4
    real4 t;
    t.x = own[0], t.y = own[1], t.z = own[2], t.w = own[3];
    *(GLOBAL real4*)to = t;
#elif VECTOR == 2
    real2 t;
    t.x = own[0], t.y = own[1];
    *(GLOBAL real2*)to = t;
#else
    to[0] = own[0];
#endif
}

DEVICE void store_level(PRIVATE const real* sums, PRIVATE const Target* target, const int adds)
{
    UNROLL for (int c = 0; c < CHANNELS; c++) {
        // In memory order: a vector is within a node, or both if it is wider.
        real own[2 * PARTS];
        UNROLL for (int k = 0; k < 2 * PARTS; k++) own[k] = sums[2 * PARTS * c + k];
#define FIRST_NODE(first) (VECTOR > PARTS ? 0 : (first) / PARTS)
#define HAS(first) ((u32)target->at < target->levels[FIRST_NODE(first)])
#define PLACE_OF(first) \
    (target->to + FIRST_NODE(first) * target->second + c * target->channel + (VECTOR > PARTS ? 0 : (first) % PARTS))
        if (ADDS && adds)
            UNROLL for (int first = 0; first < 2 * PARTS; first += VECTOR)
                if (HAS(first)) add_stored(own + first, PLACE_OF(first));
        UNROLL for (int first = 0; first < 2 * PARTS; first += VECTOR)
            if (HAS(first)) put(PLACE_OF(first), own + first);
    }
}

DEVICE void shift(PRIVATE real* sums)
{
    UNROLL for (int l = 0; l < LEVELS; l++)
        UNROLL for (int k = 0; k < 2 * REALS; k++)
            sums[2 * REALS * l + k] = l + 1 < LEVELS ? sums[2 * REALS * (l + 1 < LEVELS ? l + 1 : l) + k] : (real)0;
}

// Advance to level `then`, and store those left.
DEVICE void advance(PRIVATE real* sums, PRIVATE Target* target, const int then, const int adds)
{
    ROLL for (; target->at < then; target->at++) {
        store_level(sums, target, adds);
        target->to += target->level;
        shift(sums);
    }
}

// The lane's place in the window, or in the slab of a piece.
DEVICE void target_of(PRIVATE Target* target, GLOBAL real* field, GLOBAL real* slabs, const i64 piece, const int level,
                      const int levels, PRIVATE const int* begin, PRIVATE const Windows* windows,
                      PRIVATE const Field* layout)
{
    const int y = LANE / 4, z = NODE_Z(LANE % 4, 0), on = NODE_Z(LANE % 4, 1) - z;
    target->at = level;
    target->levels[0] = target->levels[1] = (u32)levels;
    if (piece < 0) {
        target->level = layout->stride[0], target->channel = layout->channel, target->second = on * layout->stride[2];
        target->to = field + layout->offset + (begin[0] + level) * layout->stride[0]
                   + (begin[1] + y) * layout->stride[1] + (begin[2] + z) * layout->stride[2];
        UNROLL for (int e = 0; e < 2; e++)
            if (begin[1] + y >= layout->size[1] || begin[2] + z + e * on >= layout->size[2]) target->levels[e] = 0;
    } else {
        target->level = 64 * PARTS, target->channel = (i64)windows->length[0] * 64 * PARTS, target->second = on * PARTS;
        target->to = slabs + piece * CHANNELS * target->channel + (64 * level + 8 * y + z) * PARTS;
    }
}

// The first nodes of a window, and how many levels it has.
DEVICE int window_at(PRIVATE int* begin, const i64 window, PRIVATE const Windows* windows)
{
    const int line = (int)(window / windows->counts[0]), x = (int)(window - (i64)line * windows->counts[0]);
    begin[0] = x * windows->length[0];
    begin[1] = 8 * (line / windows->counts[2]), begin[2] = 8 * (line % windows->counts[2]);
    const int left = windows->size[0] - begin[0];
    return left < windows->length[0] ? left : windows->length[0];
}

KERNEL spread_owner(GLOBAL const u32* RESTRICT records, GLOBAL const u64* RESTRICT visits,
                    GLOBAL const u32* RESTRICT start, GLOBAL const u32* RESTRICT work,
                    GLOBAL const u32* RESTRICT pieces, GLOBAL const real* RESTRICT values, GLOBAL real* RESTRICT field,
                    GLOBAL real* RESTRICT slabs, const i64 total,
                    const i64 slab_reals, // of a group of channels
                    const Windows windows, const Values value_layout, const Field field_layout, const Batches batches,
                    const Window window, const Jacobian jacobian)
{
    WARP(warp);
#if WARPS < GROUP_SIZE / WARP_SIZE
    if (LOCAL_ID / WARP_SIZE >= WARPS) return; // no local memory for it; no group meets at a barrier
#endif
    LOCAL_ARRAY(real4, staged_memory, WARPS * PLACES * PITCH / 4);
    LOCAL real* staged = (LOCAL real*)staged_memory + LOCAL_ID / WARP_SIZE * (PLACES * PITCH);
    for (int k = LANE; k < PLACES * PITCH; k += WARP_SIZE) staged[k] = 0;
    WARP_SYNC(warp);
    // Through shuffles, so that they are kept: compilers would compute them again wherever they are used.
    const int t = (int)WARP_SHUFFLE_U32(warp, LANE % 4, LANE), g = (int)WARP_SHUFFLE_U32(warp, LANE / 4, LANE);
    const i64 each = total + work[WORK_PIECES], all = GROUPS_OF(batches) * each;

    for (i64 turn = GROUP_ID * WARPS + LOCAL_ID / WARP_SIZE; turn < all; turn += GROUP_COUNT * WARPS) {
        const i64 batch = BATCH_OF(turn, each), unit = turn - batch * each, piece = unit - total;
        const i64 own = piece < 0 ? unit : (i64)pieces[4 * piece];
        GLOBAL const real* given = values + batch * batches.values;
        const int bins = bins_of(&windows);
        u32 begin = start[own * bins], size = start[(own + 1) * bins] - begin;
        int nodes[3];
        const int levels = window_at(nodes, own, &windows);
        int level = -BEFORE_X, stop = levels; // the level at which the stencils at hand begin, and the last
        if (piece >= 0) {
            begin = pieces[4 * piece + 1], size = pieces[4 * piece + 2] - begin;
            level = VISIT_X((u32)visits[begin]) - BEFORE_X;
            const int last = VISIT_X((u32)visits[begin + size - 1]) + 1;
            stop = last < stop ? last : stop;
        } else if (size > work[WORK_LIMIT]) {
            size = work[WORK_LIMIT];
        }
        Target target;
        target_of(&target, field + batch * batches.field, slabs + batch * slab_reals, piece, level, levels, nodes,
                  &windows, &field_layout);
        const int adding = ADDS && piece < 0;
        real sums[LEVELS * REALS * 2];
        UNROLL for (int k = 0; k < LEVELS * REALS * 2; k++) sums[k] = 0;

        if (size > 0) {
            // Reads are never predicated: the last visit is read again instead. A visit is read two batches ahead, its
            // record and values one batch ahead.
            GLOBAL const u64* from = visits + begin;
            const int last = (int)size - 1;
            u64 ahead = from[LANE < last ? LANE : last];
            u32 where = (u32)ahead, index = VISITOR(ahead);
            u32 words[PACKED_WORDS];
            real q[REALS * TERMS];
            read_quads(words, records + PACKED_WORDS * (i64)index, PACKED_WORDS / 4);
            visitor_values(q, given, index, &value_layout);
            ahead = from[BATCH + LANE < last ? BATCH + LANE : last];
            const u32 nothing = (u32)((u64)total >> 48); // 0, which the compiler does not know
            for (int base = 0; base <= last; base += BATCH) {
                const int n = last + 1 - base < BATCH ? last + 1 - base : BATCH;
                real fraction[3];
#if REAL_IS_DOUBLE
                fractions_of(fraction, words);
#else
                UNROLL for (int a = 0; a < 3; a++) fraction[a] = CENTRED(words[a] >> 8);
#endif
#if GRADIENT
                turn_vectors(q, &jacobian);
#endif
                if (BATCH == WARP_SIZE || LANE < BATCH)
                    stage_visit(staged + LANE * PITCH, fraction, where, q, &window);
                // Float32: a record's fourth word is used, as if. The register of one that nothing uses would have
                // another use at once, which waits for the read.
                const u32 key = (u32)VISIT_X(where) | (REAL_IS_DOUBLE ? 0 : words[3] & nothing);
                const u32 before = WARP_SHUFFLE_U32(warp, key, LANE - 1);
                // Runs of visits whose stencils begin at one node. Each lane knows where that of its visit ends.
                const u32 ends = WARP_BALLOT(warp, LANE > 0 && LANE < n && key != before);
                const u32 later = ends & ~((2u << LANE) - 1);
                const u32 own_run = key << 6 | (u32)(later ? FIRST_BIT_U32(later) : n);
                WARP_SYNC(warp);
                // Read once the rows are stored: earlier, what was read is moved between registers, which waits for it.
                where = (u32)ahead, index = VISITOR(ahead);
                read_quads(words, records + PACKED_WORDS * (i64)index, PACKED_WORDS / 4);
                visitor_values(q, given, index, &value_layout);
                ahead = from[base + 2 * BATCH + LANE < last ? base + 2 * BATCH + LANE : last];
                u32 run = WARP_SHUFFLE_U32(warp, own_run, 0);
                for (int next = 0; next < n;) {
                    const int end = (int)(run & 63), then = (int)(run >> 6) - BEFORE_X;
                    run = WARP_SHUFFLE_U32(warp, own_run, end); // the next one: nothing waits for it yet
                    advance(sums, &target, then, adding);
                    add_run(warp, sums, staged, t, g, next, end);
                    next = end;
                }
                WARP_SYNC(warp);
            }
        }
        advance(sums, &target, stop, adding);
    }
}

// Add the slabs of every window that has more than one piece, in the order of the pieces.
KERNEL add_slabs(GLOBAL const u64* RESTRICT visits, GLOBAL const u32* RESTRICT start, GLOBAL const u32* RESTRICT work,
                 GLOBAL const u32* RESTRICT pieces, GLOBAL const real* RESTRICT slabs, GLOBAL real* RESTRICT field,
                 const i64 slab_reals, const Windows windows, const Field field_layout, const Batches batches)
{
    const i64 levels_each = windows.length[0], slab = levels_each * 64 * REALS;
    const i64 units = work[WORK_PIECES] * levels_each;
    for (i64 turn = GROUP_ID; turn < GROUPS_OF(batches) * units; turn += GROUP_COUNT) {
        const i64 batch = BATCH_OF(turn, units), unit = turn - batch * units;
        GLOBAL const real* own_slabs = slabs + batch * slab_reals;
        const i64 piece = unit / levels_each;
        const int level = (int)(unit - piece * levels_each);
        if (pieces[4 * piece + 3] != 1) continue; // not the first slab of its window
        const i64 own = pieces[4 * piece];
        const int bins = bins_of(&windows);
        const u32 size = start[(own + 1) * bins] - start[own * bins], more = (size - 1) / work[WORK_LIMIT];
        int nodes[3];
        if (level >= window_at(nodes, own, &windows)) continue;
        for (int k = LOCAL_ID; k < 64 * REALS; k += GROUP_SIZE) {
            const int channel = k / (64 * PARTS), part = k % PARTS, node = k / PARTS % 64;
            const int y = nodes[1] + node / 8, z = nodes[2] + node % 8;
            if (y >= windows.size[1] || z >= windows.size[2]) continue;
            real sum = 0;
            int some = 0;
            for (u32 n = 0; n < more; n++) {
                GLOBAL const u32* own_piece = pieces + 4 * (piece + n);
                const int first = VISIT_X((u32)visits[own_piece[1]]) - BEFORE_X;
                const int last = VISIT_X((u32)visits[own_piece[2] - 1]);
                if (level < first || level > last) continue;
                sum += own_slabs[(piece + n) * slab + (channel * levels_each + level) * 64 * PARTS + node * PARTS
                                 + part];
                some = 1;
            }
            if (some)
                field[batch * batches.field + field_layout.offset + (nodes[0] + level) * field_layout.stride[0]
                      + y * field_layout.stride[1] + z * field_layout.stride[2] + channel * field_layout.channel
                      + part] += sum;
        }
    }
}
