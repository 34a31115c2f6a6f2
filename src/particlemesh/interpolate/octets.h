// SPDX-License-Identifier: BSD-3-Clause
// A warp interpolates at up to eight particles of one line of blocks at a time. Their stencils lie in a column of the mesh,
// which has SLICES times four nodes along z and ROW_TILES times eight along y. Of each level,
//     matrix instructions multiply nodes (rows along y, columns along z) by weights (along z, of a column per particle)
// and add up over levels: each weight along z is multiplied by its particle's weight along x first. What is left are sums
// over y. So a node is read once for eight particles. Nodes off a particle's stencil have weight zero; what is not finite
// there would spoil sums, so each particle of such an octet reads its own nodes only.
//
// Compile-time facts beside those of ring.c: BLOCK_Y, BLOCK_Z (cells of a block), WITH_MMA.

#define OCTET 8
#define ROWS_OF_LINE (BLOCK_Y + SUPPORT_Y - 1)
#define NODES_OF_LINE (BLOCK_Z + SUPPORT_Z - 1)
#define ROW_TILES ((ROWS_OF_LINE + 7) / 8)
#define SLICES ((NODES_OF_LINE + 3) / 4)
#define PRODUCTS (1 + 2 * GRADIENT) // of weights along x and z: both, and with GRADIENT the slope of one of them
#define ALONG_AXIS ((1 + GRADIENT) * SUPPORT)
#define OF_PARTICLE (3 * ALONG_AXIS + 1) // reals of a particle's weights; the last keeps particles in banks of their own
#define OCTET_RESULTS (2 * KINDS * PARTS)

// Slopes take as much local memory as weights: with them half of the warps take octets, and the others only copy nodes.
#define TAKERS (GRADIENT ? (WARPS + 1) / 2 : WARPS)
#define SHARED_PARTICLES                                                              \
    LOCAL_ARRAY(real, all_weights, TAKERS * OCTET * OF_PARTICLE);                     \
    LOCAL real* origins = all_weights + LOCAL_ID / WARP_SIZE * (OCTET * OF_PARTICLE); \
    LOCAL u32* index = 0

// Where a particle is in its column: its level, and cells along y and z.
#define PLACE_IN_LINE(level, y, z) ((u32)(level) << 8 | (u32)(y) << 4 | (u32)(z))
#define LEVEL_OF(place) ((int)((place) >> 8))
#define Y_OF(place) ((int)((place) >> 4 & 15))
#define Z_OF(place) ((int)((place)&15))

// The weight at a node of the column that is the stencil's k-th along an axis; zero if it is not the stencil's.
DEVICE real weight_in(LOCAL const real* of_particle, const int axis, const int slope, const int support, const int k)
{
    return (u32)k < (u32)support ? of_particle[axis * ALONG_AXIS + slope * SUPPORT + k] : (real)0;
}

// sums += nodes of one level times weights: of `b`, the lane has those of its particle at every fourth node.
DEVICE void multiply_level(WARP_PARAMETER warp, PRIVATE real* sums, PRIVATE const real* nodes, PRIVATE const real* b)
{
    // Real part p of slice s and tile r of rows is nodes[(s * ROW_TILES + r) * PARTS + p].
    UNROLL for (int p = 0; p < PARTS; p++)
        UNROLL for (int r = 0; r < ROW_TILES; r += 2) {
            PRIVATE real* c = sums + (p * ROW_TILES + r) * 2;
#define NODE(s, r) nodes[((s)*ROW_TILES + (r)) * PARTS + p]
            if (r + 1 < ROW_TILES) {
                UNROLL for (int s = 0; s + 1 < SLICES; s += 2) {
                    real a[4] = {NODE(s, r), NODE(s, r + 1 < ROW_TILES ? r + 1 : r), NODE(s + 1, r),
                                 NODE(s + 1, r + 1 < ROW_TILES ? r + 1 : r)};
                    mma_16_8_8(warp, c, a, b + s);
                }
                if (SLICES % 2) {
                    real a[2] = {NODE(SLICES - 1, r), NODE(SLICES - 1, r + 1 < ROW_TILES ? r + 1 : r)};
                    mma_16_8_4(warp, c, a, b[SLICES - 1]);
                }
            } else {
                UNROLL for (int s = 0; s < SLICES; s++) mma_8_8_4(warp, c, NODE(s, r), b[s]);
            }
#undef NODE
        }
}

// A sum of a particle in node coordinates, by a lane that reads the stencil's nodes one by one.
DEVICE real alone(LOCAL const real* column, const int slot, LOCAL const real* of_particle, const u32 place, const int slope,
                  const int part)
{
    real sum = 0;
    const int in_level = Y_OF(place) * ROW_PITCH + Z_OF(place) * PARTS + part;
    int at = further(slot, LEVEL_OF(place));
    ROLL for (int a = 0; a < SUPPORT_X; a++, at = further(at, 1)) {
        LOCAL const real* from = column + at * LEVEL_PITCH + in_level;
        ROLL for (int b = 0; b < SUPPORT_Y; b++) {
            real row = 0;
            ROLL for (int c = 0; c < SUPPORT_Z; c++)
                row += weight_in(of_particle, 2, slope == 3, SUPPORT_Z, c) * from[b * ROW_PITCH + c * PARTS];
            sum += weight_in(of_particle, 0, slope == 1, SUPPORT_X, a) * weight_in(of_particle, 1, slope == 2, SUPPORT_Y, b) * row;
        }
    }
    return sum;
}

// Results k of an octet are, in this order, of two particles, of each kind, of each part.
#define PARTICLE_OF(k) ((k) / (KINDS * PARTS))
#define KIND_OF(k) ((k) / PARTS % KINDS)
#define PART_OF(k) ((k) % PARTS)

// Interpolate at `count` particles of the line whose column begins at `column`; the lane has the record of particle LANE / 4,
// or another's. Levels count from the one at `slot` of the ring, which is that of block `bx`.
DEVICE void take_octet(WARP_PARAMETER warp, LOCAL const real* column, const int slot, const int bx, const int count,
                       PRIVATE const u32* words, LOCAL real* weights, GLOBAL real* values, GLOBAL real* gradient,
                       const int channel, PRIVATE const Blocks* blocks, PRIVATE const Values* value_layout,
                       PRIVATE const Values* gradient_layout, PRIVATE const Window* window, PRIVATE const Jacobian* jacobian)
{
    const int g = LANE / 4, t = LANE % 4; // the lane's particle, of which it makes the weights along axis t
    Placed own;
    particle_of(words, &own);
    LOCAL real* own_weights = weights + g * OF_PARTICLE;
    const u32 place = PLACE_IN_LINE((own.bx - bx) * blocks->cells[0] + own.offset[0], own.offset[1], own.offset[2]);
    if (t < 3) {
        const real fraction = t == 0 ? own.fraction[0] : t == 1 ? own.fraction[1] : own.fraction[2];
        UNROLL for (int slope = 0; slope < 1 + GRADIENT; slope++) {
            real w[SUPPORT];
            along(w, window, t, slope, fraction);
            UNROLL for (int k = 0; k < SUPPORT; k++) own_weights[t * ALONG_AXIS + slope * SUPPORT + k] = w[k];
        }
    }
    u32 low = (u32)LEVEL_OF(place), high = low;
    UNROLL for (int bit = 4; bit < 32; bit *= 2) {
        const u32 l = WARP_SHUFFLE_U32(warp, low, LANE ^ bit), h = WARP_SHUFFLE_U32(warp, high, LANE ^ bit);
        low = l < low ? l : low, high = h > high ? h : high;
    }
    WARP_SYNC(warp);
    real along_z[1 + GRADIENT][SLICES];
    UNROLL for (int slope = 0; slope < 1 + GRADIENT; slope++)
        UNROLL for (int s = 0; s < SLICES; s++)
            along_z[slope][s] = weight_in(own_weights, 2, slope, SUPPORT_Z, 4 * s + t - Z_OF(place));
    real sums[PRODUCTS][PARTS * ROW_TILES * 2];
    UNROLL for (int n = 0; n < PRODUCTS; n++)
        UNROLL for (int k = 0; k < PARTS * ROW_TILES * 2; k++) sums[n][k] = 0;
    LOCAL const real* own_nodes = column + g * ROW_PITCH + t * PARTS;
    const int levels = (int)(high - low) + SUPPORT_X;
    int a = (int)low - LEVEL_OF(place), at_level = further(slot, (int)low);
    ROLL for (int n = 0; n < levels; n++, a++, at_level = further(at_level, 1)) {
        LOCAL const real* from = own_nodes + at_level * LEVEL_PITCH;
        real nodes[SLICES * ROW_TILES * PARTS];
        UNROLL for (int s = 0; s < SLICES; s++)
            UNROLL for (int r = 0; r < ROW_TILES; r++) {
                PRIVATE real* node = nodes + (s * ROW_TILES + r) * PARTS;
                UNROLL for (int p = 0; p < PARTS; p++) node[p] = 0;
                // Constants where all lanes have a node; elsewhere some lanes read none.
                const int row_there = 8 * r + 8 <= ROWS_OF_LINE || 8 * r + g < ROWS_OF_LINE;
                const int node_there = 4 * s + 4 <= NODES_OF_LINE || 4 * s + t < NODES_OF_LINE;
                if (row_there && node_there) {
                    LOCAL const real* at = from + 8 * r * ROW_PITCH + 4 * s * PARTS;
#if PARTS == 2
                    LOAD_LOCAL_2(at, node);
#else
                    UNROLL for (int p = 0; p < PARTS; p++) node[p] = at[p];
#endif
                }
            }
        UNROLL for (int product = 0; product < PRODUCTS; product++) {
            const real along_x = weight_in(own_weights, 0, product == 1, SUPPORT_X, a);
            real b[SLICES];
            UNROLL for (int s = 0; s < SLICES; s++) b[s] = along_x * along_z[GRADIENT * (product == 2)][s];
            multiply_level(warp, sums[product], nodes, b);
        }
    }
    // Column 2t + e of the sums is particle 2t + e.
    real results[OCTET_RESULTS];
    UNROLL for (int e = 0; e < 2; e++) {
        const int particle = 2 * t + e, y = Y_OF(WARP_SHUFFLE_U32(warp, place, 4 * particle));
        LOCAL const real* of_particle = weights + particle * OF_PARTICLE;
        UNROLL for (int p = 0; p < PARTS; p++) {
            real in_nodes[4] = {0, 0, 0, 0};
            UNROLL for (int r = 0; r < ROW_TILES; r++) {
                const real along_y = weight_in(of_particle, 1, 0, SUPPORT_Y, 8 * r + g - y);
                const int k = (p * ROW_TILES + r) * 2 + e;
                in_nodes[0] += along_y * sums[0][k];
                if (GRADIENT) {
                    in_nodes[1] += along_y * sums[GRADIENT][k];
                    in_nodes[2] += weight_in(of_particle, 1, GRADIENT, SUPPORT_Y, 8 * r + g - y) * sums[0][k];
                    in_nodes[3] += along_y * sums[2 * GRADIENT][k];
                }
            }
            UNROLL for (int kind = 0; kind < KINDS; kind++)
                results[(e * KINDS + kind) * PARTS + p] = result_of(in_nodes, kind, jacobian);
        }
    }
    Halved dealt = {0, OCTET_RESULTS, OCTET_RESULTS};
    UNROLL for (int bit = 16; bit >= 4; bit /= 2) halve(&dealt, bit);
    add_two(warp, results, OCTET_RESULTS, 16);
    add_two(warp, results, FEWER(OCTET_RESULTS), 8);
    add_two(warp, results, FEWER(FEWER(OCTET_RESULTS)), 4);
    int finite = 1;
    UNROLL for (int k = 0; k < FEWER(FEWER(FEWER(OCTET_RESULTS))); k++)
        if (k < dealt.count && results[k] - results[k] != 0) finite = 0;
    const int spoilt = WARP_BALLOT(warp, !finite) != 0;
    UNROLL for (int k = 0; k < FEWER(FEWER(FEWER(OCTET_RESULTS))); k++) {
        const int at = dealt.from + k, particle = 2 * t + PARTICLE_OF(at), kind = KIND_OF(at), part = PART_OF(at);
        const u32 there = WARP_SHUFFLE_U32(warp, place, 4 * particle), i = WARP_SHUFFLE_U32(warp, own.index, 4 * particle);
        if (k >= dealt.count || particle >= count) continue;
        real result = results[k];
        if (spoilt) {
            real in_nodes[4];
            UNROLL for (int s = 0; s < 1 + 3 * GRADIENT; s++)
                in_nodes[s] = alone(column, slot, weights + particle * OF_PARTICLE, there, s, part);
            result = result_of(in_nodes, kind, jacobian);
        }
        write_result(values, gradient, (i64)i, channel, kind, part, result, value_layout, gradient_layout);
    }
    WARP_SYNC(warp); // the next octet has other weights
}

// What a lane knows of its line: its particles of the share, their place in the order, and the octets up to its own.
typedef struct {
    u32 begin, end, octets;
} Column;

DEVICE void column_of(WARP_PARAMETER warp, PRIVATE Column* column, PRIVATE const Share* own)
{
    const u32 before = WARP_SHUFFLE_U32(warp, own->line.end, LANE > 0 ? LANE - 1 : 0);
    const u32 first = own->before, past = own->before + (u32)own->end;
    const u32 begin = LANE > 0 ? before : 0, end = LANE < LINES ? own->line.end : begin;
    column->begin = begin > first ? begin : first, column->end = end < past ? end : past;
    u32 sum = column->end > column->begin ? (column->end - column->begin + OCTET - 1) / OCTET : 0;
    UNROLL for (int step = 1; step < LINES; step *= 2) {
        const u32 lower = WARP_SHUFFLE_U32(warp, sum, LANE - step);
        if (LANE >= step) sum += lower;
    }
    column->octets = sum;
}

// Up to eight particles of one line: the first in the order, how many, and where their column begins in a level.
typedef struct {
    u32 first;
    int count, base;
} Octet;

DEVICE void place_octet(WARP_PARAMETER warp, PRIVATE Octet* octet, PRIVATE const Share* own, PRIVATE const Column* column,
                        const u32 number)
{
    const int line = POPCOUNT_U32(WARP_BALLOT(warp, LANE < LINES && column->octets <= number)), there = line < LINES;
    const u32 begin = WARP_SHUFFLE_U32(warp, column->begin, line), end = WARP_SHUFFLE_U32(warp, column->end, line);
    const u32 octets = WARP_SHUFFLE_U32(warp, column->octets, line), shift = WARP_SHUFFLE_U32(warp, own->line.shift, line);
    octet->base = (int)WARP_SHUFFLE_U32(warp, (u32)own->line.base, line);
    const u32 of_line = (end - begin + OCTET - 1) / OCTET, first = begin + OCTET * (number + of_line - octets);
    octet->first = first + shift;
    octet->count = !there ? 0 : end - first < OCTET ? (int)(end - first) : OCTET;
}

// Lanes 4g to 4g + 3 read the record of particle g, or of the first.
DEVICE void read_octet(GLOBAL const u32* records, PRIVATE const Octet* octet, PRIVATE u32* words)
{
    const int g = LANE / 4;
    if (octet->count) read_record(records, (i64)(octet->first + (u32)(g < octet->count ? g : 0)), words);
}

// The records of the warp's first octet of a share.
DEVICE int first_records(WARP_PARAMETER warp, GLOBAL const u32* records, PRIVATE const Share* own, PRIVATE u32* words)
{
    Column column;
    Octet octet;
    column_of(warp, &column, own);
    place_octet(warp, &octet, own, &column, LOCAL_ID / WARP_SIZE);
    read_octet(records, &octet, words);
    return 0;
}

// Interpolate for the group's share: its warps take octets in turn. `words` has the records of the warp's first octet.
DEVICE void take_share(WARP_PARAMETER warp, LOCAL const real* nodes, PRIVATE const Share* own, PRIVATE u32* words,
                       const int of_line, LOCAL real* weights, LOCAL u32* index, GLOBAL const u32* records,
                       GLOBAL real* values, GLOBAL real* gradient, const int channel, PRIVATE const Blocks* blocks,
                       PRIVATE const Values* value_layout, PRIVATE const Values* gradient_layout,
                       PRIVATE const Window* window, PRIVATE const Jacobian* jacobian)
{
    Column column;
    column_of(warp, &column, own);
    const u32 all = LOCAL_ID / WARP_SIZE < TAKERS ? WARP_SHUFFLE_U32(warp, column.octets, LINES - 1) : 0;
    Octet octet, next;
    place_octet(warp, &octet, own, &column, LOCAL_ID / WARP_SIZE);
    ROLL for (u32 number = LOCAL_ID / WARP_SIZE; number < all; number += TAKERS) {
        u32 ahead[RECORD_WORDS];
        UNROLL for (int w = 0; w < RECORD_WORDS; w++) ahead[w] = words[w];
        place_octet(warp, &next, own, &column, number + TAKERS);
        read_octet(records, &next, ahead);
        take_octet(warp, nodes + octet.base, own->slot, own->bx, octet.count, words, weights, values, gradient, channel,
                   blocks, value_layout, gradient_layout, window, jacobian);
        octet = next;
        UNROLL for (int w = 0; w < RECORD_WORDS; w++) words[w] = ahead[w];
    }
}
