// SPDX-License-Identifier: BSD-3-Clause
// Device functions that all kernels share: particles, windows, rows of the field.
//
// Compile-time facts: SUPPORT_X/Y/Z (1 on a missing axis), DEGREE of the window's polynomials, PARTS adjacent reals per
// node (2 for complex), CHANNELS planes, VECTOR reals per instruction, GRADIENT and HESSIAN: which derivatives are taken.

#ifndef HESSIAN // of few kernels
#define HESSIAN 0
#endif
#define ORDER (HESSIAN ? 2 : GRADIENT) // of the highest derivative

typedef struct {
    int size[3];   // nodes of the field
    int wraps[3];  // nodes are taken modulo size
    i64 stride[3]; // in reals, like every stride
    i64 channel;
    i64 offset;
} Field;

typedef struct {
    i64 offset, particle, channel, part, axis;
#if HESSIAN
    i64 second; // axis
#endif
} Values;

// Where the number of a particle is: of a channel and a part of it; of vectors, their first component.
DEVICE i64 number_at(PRIVATE const Values* layout, i64 particle, int channel, int part)
{
    return layout->offset + particle * layout->particle + channel * layout->channel + part * layout->part;
}

typedef struct {
    real table[SUPPORT * (DEGREE + 1)]; // coefficients of powers of the centred fraction, ascending, per node
} Window;

typedef struct {
    real row[9]; // d(node coordinate a) / d(position b)
} Jacobian;

DEVICE int wrapped(int node, int size)
{
    if (node >= size) {
        node -= size;
        if (node >= size) node %= size; // a mesh smaller than the support
    }
    return node;
}

// The node's place along one axis, or -1 if there is none.
DEVICE int place(int node, int size, int wraps)
{
    if (wraps) return wrapped(node, size);
    return (node >= 0 && node < size) ? node : -1;
}

DEVICE real weight_of(PRIVATE const Window* window, int j, real z)
{
    PRIVATE const real* c = window->table + j * (DEGREE + 1);
    real w = c[DEGREE];
    UNROLL for (int k = DEGREE - 1; k >= 0; k--) w = w * z + c[k];
    return w;
}

// d(weight) / d(particle's node coordinate)
DEVICE real slope_of(PRIVATE const Window* window, int j, real z)
{
    PRIVATE const real* c = window->table + j * (DEGREE + 1);
    real w = 0;
    UNROLL for (int k = DEGREE; k >= 1; k--) w = w * z + c[k] * (real)k;
    return w;
}

// d2(weight) / d(particle's node coordinate)2
DEVICE real curvature_of(PRIVATE const Window* window, int j, real z)
{
    PRIVATE const real* c = window->table + j * (DEGREE + 1);
    real w = 0;
    UNROLL for (int k = DEGREE; k >= 2; k--) w = w * z + c[k] * (real)(k * (k - 1));
    return w;
}

DEVICE real derivative_of(PRIVATE const Window* window, int order, int j, real z)
{
    return order == 0 ? weight_of(window, j, z) : order == 1 ? slope_of(window, j, z) : curvature_of(window, j, z);
}

#if HESSIAN
// The six second derivatives in node coordinates: zz, xz, yz, xx, xy, yy.
#define SECONDS 6
#define AXIS_FIRST(n) ((n) == 0 ? 2 : (n) == 2 || (n) == 5)
#define AXIS_SECOND(n) ((n) < 3 ? 2 : (n) > 3)

// d2(user coordinates b, c) of a field whose n-th second derivative is 1 and whose others are 0.
DEVICE real second_slope(PRIVATE const Jacobian* jacobian, int n, int b, int c)
{
    PRIVATE const real* first = jacobian->row + 3 * AXIS_FIRST(n);
    PRIVATE const real* second = jacobian->row + 3 * AXIS_SECOND(n);
    const real same = first[b] * second[c];
    return AXIS_FIRST(n) == AXIS_SECOND(n) ? same : same + second[b] * first[c];
}
#endif

// Of the k-th node along an axis; a missing axis has one node of weight one.
DEVICE real weight_along(PRIVATE const Window* window, int axis, int k, real z)
{
    return axis < 3 - SUPPORT_AXES ? (real)1 : weight_of(window, k, z);
}

DEVICE real slope_along(PRIVATE const Window* window, int axis, int k, real z)
{
    return axis < 3 - SUPPORT_AXES ? (real)0 : slope_of(window, k, z);
}

// ------------------------------------------------------------------------------------------------------
// A stencil is divided into rows along z, a row into slots of VECTOR reals that start at multiples of VECTOR. Up to
// LANES_ALL neighbouring lanes share a particle. Up to LANES_ROW of them share a row's slots; rows are dealt to such
// teams, so that the lanes of one instruction touch whole memory sectors.

#define ROW (SUPPORT_Z * PARTS)
#define SLACK (VECTOR > PARTS ? VECTOR - PARTS : 0)
#define SLOTS ((ROW + SLACK + VECTOR - 1) / VECTOR)
#define SLOTS_POWER (SLOTS > 4 ? 8 : SLOTS > 2 ? 4 : SLOTS) // SLOTS or more
#define LANES_Z (SLOTS_POWER < LANES_ROW ? SLOTS_POWER : LANES_ROW)
#define LANES_Y (SUPPORT_Y == 1 ? 1 : LANES_ALL / LANES_Z)
// Rows of wide windows stay a loop: unrolled, 16^3 nodes would take a compiler minutes.
#if SUPPORT > 8
#define UNROLL_ROWS ROLL
#else
#define UNROLL_ROWS UNROLL
#endif
#define LANES (LANES_Z * LANES_Y)
#define NOWHERE (-((i64)1 << 62)) // no node: with strides, an offset may be negative
#define LANE_SLOTS ((SLOTS + LANES_Z - 1) / LANES_Z)
#define LANE_ROWS ((SUPPORT_Y + LANES_Y - 1) / LANES_Y)

// One lane's part of a stencil. A missing node has zero weight and a valid place. [n] are n-th derivatives of weights.
typedef struct {
    real x[1 + ORDER][SUPPORT_X], y[1 + ORDER][LANE_ROWS], z[1 + ORDER][LANE_SLOTS * VECTOR];
    int at_x[SUPPORT_X];      // -1: no such node
    i64 at_y[LANE_ROWS];      // NOWHERE: no such node
    i64 at_z[LANE_SLOTS];     // NOWHERE: no such nodes
    int part[LANE_SLOTS * VECTOR];
} Stencil;

// Derivatives of products of weights, in node coordinates: by plane n so many along x and y, and the others along z.
#define WEIGHT_PRODUCTS (ORDER > 1 ? 6 : ORDER > 0 ? 3 : 1)
#define ALONG_X(n) ((n) == 3 ? 2 : (n) == 1 || (n) == 4)
#define ALONG_Y(n) ((n) == 5 ? 2 : (n) == 2 || (n) == 4)

// Of the particle whose stencil begins at node `first`, with centred fractions `z`; of three axes.
DEVICE void stencil_at(PRIVATE Stencil* s, PRIVATE const int* first, PRIVATE const real* z, int lane,
                       PRIVATE const Field* field, PRIVATE const Window* window)
{
    const int lane_z = lane % LANES_Z, lane_y = lane / LANES_Z;
    const int first_x = first[0], first_y = first[1], first_z = first[2];

    UNROLL for (int a = 0; a < SUPPORT_X; a++) s->at_x[a] = place(first_x + a, field->size[0], field->wraps[0]);
    UNROLL for (int a = 0; a < SUPPORT_X; a++)
        UNROLL for (int n = 0; n < 1 + ORDER; n++)
            s->x[n][a] = SUPPORT_AXES > 2 ? derivative_of(window, n, a, z[0]) : (real)(n == 0);

    UNROLL for (int b = 0; b < LANE_ROWS; b++) {
        UNROLL for (int n = 0; n < 1 + ORDER; n++) s->y[n][b] = SUPPORT_Y == 1 && n == 0;
        const int row = b * LANES_Y + lane_y;
        const int at = row < SUPPORT_Y ? place(first_y + row, field->size[1], field->wraps[1]) : -1;
        s->at_y[b] = at < 0 ? NOWHERE : at * field->stride[1];
    }
#if SUPPORT_AXES > 1
    UNROLL for (int j = 0; j < SUPPORT_Y; j++)
        UNROLL for (int n = 0; n < 1 + ORDER; n++) {
            const real w = derivative_of(window, n, j, z[1]);
            if (j % LANES_Y == lane_y) s->y[n][j / LANES_Y] = w;
        }
#endif

    // shift: how far the first slot starts before the first node
    const int start = first_z * PARTS;
    const int shift = VECTOR > PARTS ? (start & (VECTOR - 1)) : 0;
    int index[LANE_SLOTS * VECTOR]; // of the real's node in the stencil
    UNROLL for (int k = 0; k < LANE_SLOTS; k++) {
        const int slot = k * LANES_Z + lane_z;
        const int r = slot * VECTOR - shift;
        const int used = slot < SLOTS && r < ROW;
        UNROLL for (int v = 0; v < VECTOR; v++) {
            const int inside = used && r + v >= 0 && r + v < ROW;
            index[k * VECTOR + v] = inside ? (r + v) / PARTS : -1;
            s->part[k * VECTOR + v] = (r + v + shift) % PARTS;
            UNROLL for (int n = 0; n < 1 + ORDER; n++) s->z[n][k * VECTOR + v] = 0;
        }
        // r may be negative but not below -SLACK, and PARTS divides it then
        const int lead = r >= 0 ? r / PARTS : -((-r) / PARTS);
        int at = first_z + lead;
        if (field->wraps[2] && at < 0) at += field->size[2];
        at = used ? place(at, field->size[2], field->wraps[2]) : -1;
        s->at_z[k] = at < 0 ? NOWHERE : at * field->stride[2] + (VECTOR < PARTS ? s->part[k * VECTOR] : 0);
    }
    UNROLL for (int j = 0; j < SUPPORT_Z; j++)
        UNROLL for (int n = 0; n < 1 + ORDER; n++) {
            const real w = derivative_of(window, n, j, z[2]);
            UNROLL for (int v = 0; v < LANE_SLOTS * VECTOR; v++)
                if (index[v] == j) s->z[n][v] = w;
        }
}

DEVICE void stencil_of(PRIVATE Stencil* s, GLOBAL const int* node, GLOBAL const real* fraction, i64 i, i64 rows,
                       int lane, PRIVATE const Field* field, PRIVATE const Window* window)
{
    const int first[3] = {node[i], node[rows + i], node[2 * rows + i]};
    const real z[3] = {fraction[i], fraction[rows + i], fraction[2 * rows + i]};
    stencil_at(s, first, z, lane, field, window);
}

#if SCALAR_VECTOR_ATOMICS
DEVICE void atomic_add_2(GLOBAL real* p, PRIVATE const real* v)
{
    for (int k = 0; k < 2; k++)
        if (v[k] != 0) ATOMIC_ADD(p + k, v[k]);
}
DEVICE void atomic_add_4(GLOBAL real* p, PRIVATE const real* v)
{
    for (int k = 0; k < 4; k++)
        if (v[k] != 0) ATOMIC_ADD(p + k, v[k]);
}
#endif

DEVICE void atomic_add_vector(GLOBAL real* p, PRIVATE const real* v)
{
#if VECTOR == 4
    atomic_add_4(p, v);
#elif VECTOR == 2
    atomic_add_2(p, v);
#else
    ATOMIC_ADD(p, v[0]);
#endif
}

// Slots beyond the stencil have zero weight: what is not finite there must not count. `part` could say so, too, and would
// cost a register for each slot.
DEVICE real weighted(real value, real weight)
{
    return weight != 0 ? value * weight : 0;
}

// From a field that is constant during the kernel.
DEVICE void load_vector(GLOBAL const real* p, PRIVATE real* v)
{
#if VECTOR == 4
    const real4 t = READ_4(p);
    v[0] = t.x, v[1] = t.y, v[2] = t.z, v[3] = t.w;
#elif VECTOR == 2
    const real2 t = READ_2(p);
    v[0] = t.x, v[1] = t.y;
#else
    v[0] = READ_1(p);
#endif
}
