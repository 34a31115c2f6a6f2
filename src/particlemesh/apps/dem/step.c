// SPDX-License-Identifier: BSD-3-Clause
// A step of velocity Verlet for spheres: drift, then forces over lists of neighbours. cpu.py has the same in Python.
//
// Particles are rows of four reals: x (centre, radius), v (velocity, mass), w (spin, walls that it touches: a bit each),
// u and s (velocity and spin in the middle of the step), a and b (accelerations). A list has entries 2 j + f, where f
// says whether the particle is the first of the pair; ~entry stands for a pair that touched in the last step, and has a
// history of four reals: elastic tangential force on the first particle, tangential stiffness.

#define STOP 0  // status: the step after whose drift lists are too old
#define LIMIT 1 // and how many steps there are
#define OTHER(entry) (((entry) < 0 ? ~(entry) : (entry)) >> 1)

typedef struct {
    real step, half_step, reach2; // squared distance after which lists are too old
    real gravity[3], origin[3], length[3], per[3]; // of axes that repeat: length and its inverse, else 0
} Motion;

typedef struct {
    real normal, tangential, damping, friction, share; // force = share * slope * overlap
    real ratio;                                        // of the dampers across and along the normal
    real lag;                                          // see `contact`
} Law;

typedef struct {
    real by;
} Scale;

// Walls are rows of WALL reals: kind, point, axis, four sizes, a direction across the axis, velocity, spin about the
// axis, the law of contact, time of a step. walls.py says what the sizes are.
#define WALL 26
#define PLANE 0
#define REVOLVED 1

KERNEL begin(GLOBAL u32* status, const i64 limit)
{
    if (GROUP_ID == 0 && LOCAL_ID == 0) {
        status[STOP] = 0xffffffffu;
        status[LIMIT] = (u32)limit;
    }
}

// All groups of one launch go the same way: the word that they write is k itself.
KERNEL drift(GLOBAL real* x, GLOBAL const real* RESTRICT origin, GLOBAL const real* RESTRICT v,
             GLOBAL const real* RESTRICT w, GLOBAL const real* RESTRICT a, GLOBAL const real* RESTRICT b,
             GLOBAL real* u, GLOBAL real* s, GLOBAL u32* status, GLOBAL i64* clock, const i64 count, const i64 k,
             const Motion motion)
{
    if (k >= (i64)status[LIMIT] || (i64)status[STOP] < k) return;
    if (GROUP_ID == 0 && LOCAL_ID == 0) clock[0] += 1; // steps for which walls have moved
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        const real4 place = *(GLOBAL const real4*)(x + 4 * i); // written below: no verb for constant memory
        const real4 start = READ_4(origin + 4 * i), speed = READ_4(v + 4 * i);
        const real4 spin = READ_4(w + 4 * i), push = READ_4(a + 4 * i), turn = READ_4(b + 4 * i);
        const real t = motion.half_step;
        const real u0 = speed.x + t * push.x, u1 = speed.y + t * push.y, u2 = speed.z + t * push.z;
        real p[3] = {place.x + motion.step * u0, place.y + motion.step * u1, place.z + motion.step * u2};
        const real from[3] = {start.x, start.y, start.z};
        real moved = 0;
        for (int c = 0; c < 3; c++) {
            if (motion.length[c] > 0) {
                const real at = p[c] - motion.origin[c], turns = floor(at * motion.per[c]);
                if (at < 0) {
                    p[c] -= motion.length[c] * (turns < 0 ? turns : (real)-1);
                    if (p[c] - motion.origin[c] >= motion.length[c]) p[c] = motion.origin[c]; // rounding
                } else if (at >= motion.length[c]) p[c] -= motion.length[c] * (turns > 1 ? turns : (real)1);
            }
            real d = p[c] - from[c];
            d -= motion.length[c] * rint(d * motion.per[c]);
            moved += d * d;
        }
        if (!(moved <= motion.reach2)) POST_U32(status + STOP, (u32)k); // also what is not a number
        STORE_4(x + 4 * i, p[0], p[1], p[2], place.w);
        STORE_4(u + 4 * i, u0, u1, u2, speed.w);
        STORE_4(s + 4 * i, spin.x + t * turn.x, spin.y + t * turn.y, spin.z + t * turn.z, spin.w);
    }
}

// The distance of a wall from a place after a time, negative behind a plane. n is the unit vector from the wall to it,
// r the nearest point of the wall, seen from the wall's own point.
DEVICE real near(PRIVATE real* n, PRIVATE real* r, GLOBAL const real* wall, const real4 place, const real time)
{
    const real axis[3] = {wall[4], wall[5], wall[6]}, side[3] = {wall[11], wall[12], wall[13]};
    const real q[3] = {place.x - (wall[1] + time * wall[14]), place.y - (wall[2] + time * wall[15]),
                       place.z - (wall[3] + time * wall[16])};
    real distance = 0;
    if (wall[0] == PLANE) {
        const real offset = wall[7] + time * (axis[0] * wall[14] + axis[1] * wall[15] + axis[2] * wall[16]);
        distance = fma(axis[0], place.x, fma(axis[1], place.y, fma(axis[2], place.z, -offset)));
        for (int c = 0; c < 3; c++) n[c] = axis[c];
    } else {
        const real height = q[0] * axis[0] + q[1] * axis[1] + q[2] * axis[2];
        if (wall[0] == REVOLVED) { // the nearest point of a line in the plane of the axis
            real out[3], rho = 0;
            for (int c = 0; c < 3; c++) out[c] = q[c] - height * axis[c], rho += out[c] * out[c];
            rho = sqrt(rho);
            for (int c = 0; c < 3; c++) out[c] = rho > 0 ? out[c] / rho : side[c];
            const real along = wall[9] - wall[7], up = wall[10] - wall[8];
            real part = ((rho - wall[7]) * along + (height - wall[8]) * up) / (along * along + up * up);
            part = part < 0 ? 0 : part > 1 ? 1 : part;
            const real a = rho - wall[7] - part * along, b = height - wall[8] - part * up;
            for (int c = 0; c < 3; c++) n[c] = a * out[c] + b * axis[c];
        } else {
            const real other[3] = {axis[1] * side[2] - axis[2] * side[1], axis[2] * side[0] - axis[0] * side[2],
                                   axis[0] * side[1] - axis[1] * side[0]};
            real a = q[0] * side[0] + q[1] * side[1] + q[2] * side[2];
            real b = q[0] * other[0] + q[1] * other[1] + q[2] * other[2];
            a -= fmin(fmax(a, -wall[7]), wall[7]);
            b -= fmin(fmax(b, -wall[8]), wall[8]);
            for (int c = 0; c < 3; c++) n[c] = a * side[c] + b * other[c] + height * axis[c];
        }
        distance = sqrt(n[0] * n[0] + n[1] * n[1] + n[2] * n[2]);
        for (int c = 0; c < 3; c++) n[c] = distance > 0 ? n[c] / distance : axis[c];
    }
    for (int c = 0; c < 3; c++) r[c] = q[c] - distance * n[c];
    return distance;
}

// The force f on the first of two that touch. n points to it, v is its velocity at the contact relative to the second,
// twist the mean spin along n, h the history.
DEVICE void contact(PRIVATE real* f, PRIVATE real* h, const real overlap, const real radius, const real mass,
                    PRIVATE const real* n, PRIVATE const real* v, const real twist, const real step,
                    PRIVATE const Law* law)
{
#if HERTZ
    const real root = sqrt(radius * overlap);
#else
    const real root = 1;
#endif
    const real slope = law->normal * root, along = law->tangential * root;
    const real speed = v[0] * n[0] + v[1] * n[1] + v[2] * n[2];
    real damper = law->damping * sqrt(mass * slope);
    // A damper acts from the first to the last moment of a contact, which are between steps. So it grows from 0 to more
    // than its strength, and falls to that, while the overlap is less than two steps' way: its sums over the first steps
    // and over the last ones are then right in any phase, to the second order in the step.
    const real way = fabs(speed) * step;
    if (overlap < 2 * way) {
        const real q = overlap / way;
#if HERTZ // whose damper goes with q^(1/4)
        damper *= q > 0 ? (q < 1 ? (real)1.32803 * q : (real)1.46685 - (real)0.13882 * q) / sqrt(sqrt(q)) : 0;
#else
        damper *= q < 1 ? (real)1.5 * q : 2 - q / 2;
#endif
    }
    // It sees the speed of half a step before. To the first order, this is a smaller mass, for which it is too strong.
    damper /= 1 + law->lag * damper * step / mass;
    const real normal = law->share * slope * overlap - damper * speed;
    for (int c = 0; c < 3; c++) f[c] = normal * n[c];
    if (law->friction > 0) {
        const real most = normal > 0 ? law->friction * normal : 0;
        // The history turns with the contact, and shrinks with its stiffness.
        const real before = h[0] * h[0] + h[1] * h[1] + h[2] * h[2];
        const real out = h[0] * n[0] + h[1] * n[1] + h[2] * n[2], angle = step * twist;
        real g[3];
        for (int c = 0; c < 3; c++) h[c] -= out * n[c];
        g[0] = h[0] + angle * (n[1] * h[2] - n[2] * h[1]);
        g[1] = h[1] + angle * (n[2] * h[0] - n[0] * h[2]);
        g[2] = h[2] + angle * (n[0] * h[1] - n[1] * h[0]);
        const real after = g[0] * g[0] + g[1] * g[1] + g[2] * g[2];
        real keep = after > 0 ? sqrt(before / after) : 0;
        if (along < h[3]) keep *= along / h[3];
        real slip[3], dot = 0, rate = 0, size = 0;
        for (int c = 0; c < 3; c++) {
            slip[c] = v[c] - speed * n[c];
            h[c] = keep * g[c] - along * step * slip[c];
            size += h[c] * h[c];
        }
        if (size > most * most) { // slides
            const real less = most / sqrt(size);
            for (int c = 0; c < 3; c++) h[c] *= less;
        }
        h[3] = along;
        // The damper takes what friction leaves.
        const real drag = law->ratio * damper;
        size = 0;
        for (int c = 0; c < 3; c++) {
            slip[c] *= drag;
            dot += h[c] * slip[c], rate += slip[c] * slip[c], size += h[c] * h[c];
        }
        real part = 1;
        if (size - 2 * dot + rate > most * most && rate > 0) {
            const real left = most * most > size ? most * most - size : 0;
            part = (dot + sqrt(dot * dot + rate * left)) / rate;
            part = part < 0 ? 0 : part > 1 ? 1 : part;
        }
        for (int c = 0; c < 3; c++) f[c] += h[c] - part * slip[c];
    }
}

KERNEL forces(GLOBAL const real* RESTRICT x, GLOBAL const real* RESTRICT u, GLOBAL const real* RESTRICT s,
              GLOBAL const i64* RESTRICT start, GLOBAL const int* RESTRICT rows, GLOBAL int* list, GLOBAL real* history,
              GLOBAL const real* planes, GLOBAL const i64* RESTRICT clock, GLOBAL real* wall_history, GLOBAL real* v,
              GLOBAL real* w, GLOBAL real* a, GLOBAL real* b, GLOBAL const u32* RESTRICT status, const i64 count,
              const i64 walls, const i64 k, const Motion motion, const Law law)
{
    if (k >= (i64)status[LIMIT] || (i64)status[STOP] <= k) return;
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        const real4 mine = READ_4(x + 4 * i), speed = READ_4(u + 4 * i), spin = READ_4(s + 4 * i);
        real force[3] = {0, 0, 0}, torque[3] = {0, 0, 0}, n[3], r[3], f[3], h[4];
        const i64 begin = start[i], end = begin + rows[i];
        for (i64 at = begin; at < end; at++) {
            const int entry = list[at], code = entry < 0 ? ~entry : entry;
            const i64 j = code >> 1;
            const real4 other = READ_4(x + 4 * j);
            n[0] = mine.x - other.x, n[1] = mine.y - other.y, n[2] = mine.z - other.z;
            for (int c = 0; c < 3; c++) n[c] -= motion.length[c] * rint(n[c] * motion.per[c]);
            const real r2 = fma(n[0], n[0], fma(n[1], n[1], n[2] * n[2])), both = mine.w + other.w;
            if (!(r2 < both * both)) {
                if (entry < 0) list[at] = code;
                continue;
            }
            // Both ends compute the same numbers, those of the first particle.
            const real sign = code & 1 ? 1 : -1, distance = sqrt(r2);
            const real overlap = both > distance ? both - distance : 0; // rounding
            const real per = distance > 0 ? sign / distance : 0;
            for (int c = 0; c < 3; c++) n[c] *= per;
            if (distance == 0) n[0] = 1; // of one place: along x
            const real4 that = READ_4(u + 4 * j);
            const real share = 1 / both, arm = distance * (mine.w * share);
            real relative[3] = {sign * (speed.x - that.x), sign * (speed.y - that.y), sign * (speed.z - that.z)};
            real twist = 0;
            if (law.friction > 0) { // what spins add is across the normal
                const real4 twin = READ_4(s + 4 * j);
                const real far = distance * (other.w * share);
                const real one[3] = {code & 1 ? spin.x : twin.x, code & 1 ? spin.y : twin.y, code & 1 ? spin.z : twin.z};
                const real two[3] = {code & 1 ? twin.x : spin.x, code & 1 ? twin.y : spin.y, code & 1 ? twin.z : spin.z};
                const real first = code & 1 ? arm : far, second = code & 1 ? far : arm;
                for (int c = 0; c < 3; c++) r[c] = first * one[c] + second * two[c];
                relative[0] -= r[1] * n[2] - r[2] * n[1];
                relative[1] -= r[2] * n[0] - r[0] * n[2];
                relative[2] -= r[0] * n[1] - r[1] * n[0];
                twist = ((spin.x + twin.x) * n[0] + (spin.y + twin.y) * n[1] + (spin.z + twin.z) * n[2]) / 2;
            }
            for (int c = 0; c < 4; c++) h[c] = entry < 0 && law.friction > 0 ? history[4 * at + c] : 0;
            const real light = fmin(speed.w, that.w), heavy = fmax(speed.w, that.w);
            contact(f, h, overlap, mine.w * other.w * share, light / (1 + light / heavy), n, relative, twist,
                    motion.step, &law);
            if (law.friction > 0) STORE_4(history + 4 * at, h[0], h[1], h[2], h[3]);
            if (entry >= 0) list[at] = ~code;
            for (int c = 0; c < 3; c++) force[c] += sign * f[c];
            torque[0] -= arm * (n[1] * f[2] - n[2] * f[1]);
            torque[1] -= arm * (n[2] * f[0] - n[0] * f[2]);
            torque[2] -= arm * (n[0] * f[1] - n[1] * f[0]);
        }
        const int touched = (int)spin.w;
        int touches = 0;
        for (i64 p = 0; p < walls; p++) {
            GLOBAL const real* wall = planes + WALL * p;
            const real distance = near(n, r, wall, mine, (real)clock[0] * wall[25]);
            if (!(distance < mine.w)) continue;
            const i64 at = i * walls + p;
            const Law rule = {wall[18], wall[19], wall[20], wall[21], wall[22], wall[23], wall[24]};
            for (int c = 0; c < 4; c++) h[c] = touched >> p & 1 && rule.friction > 0 ? wall_history[4 * at + c] : 0;
            const real turn[3] = {wall[17] * wall[4], wall[17] * wall[5], wall[17] * wall[6]};
            const real relative[3] = {
                speed.x - distance * (spin.y * n[2] - spin.z * n[1]) - (wall[14] + turn[1] * r[2] - turn[2] * r[1]),
                speed.y - distance * (spin.z * n[0] - spin.x * n[2]) - (wall[15] + turn[2] * r[0] - turn[0] * r[2]),
                speed.z - distance * (spin.x * n[1] - spin.y * n[0]) - (wall[16] + turn[0] * r[1] - turn[1] * r[0])};
            const real twist =
                ((spin.x + turn[0]) * n[0] + (spin.y + turn[1]) * n[1] + (spin.z + turn[2]) * n[2]) / 2;
            contact(f, h, mine.w - distance, mine.w, speed.w, n, relative, twist, motion.step, &rule);
            if (rule.friction > 0) STORE_4(wall_history + 4 * at, h[0], h[1], h[2], h[3]);
            touches |= 1 << p;
            for (int c = 0; c < 3; c++) force[c] += f[c];
            torque[0] -= distance * (n[1] * f[2] - n[2] * f[1]);
            torque[1] -= distance * (n[2] * f[0] - n[0] * f[2]);
            torque[2] -= distance * (n[0] * f[1] - n[1] * f[0]);
        }
        const real inertia = (real)0.4 * speed.w * mine.w * mine.w, t = motion.half_step;
        for (int c = 0; c < 3; c++) {
            force[c] = force[c] / speed.w + motion.gravity[c];
            torque[c] = torque[c] / inertia;
        }
        STORE_4(a + 4 * i, force[0], force[1], force[2], 0);
        STORE_4(b + 4 * i, torque[0], torque[1], torque[2], 0);
        STORE_4(v + 4 * i, speed.x + t * force[0], speed.y + t * force[1], speed.z + t * force[2], speed.w);
        STORE_4(w + 4 * i, spin.x + t * torque[0], spin.y + t * torque[1], spin.z + t * torque[2], (real)touches);
    }
}

// The list of rows that a search returned, and the history of pairs that touched. A row is put in the order of the
// users' numbers, `name`, if that is wanted. IMAGES: a pair may have been found through several images.
KERNEL match(GLOBAL const i64* RESTRICT start, GLOBAL const int* RESTRICT found, GLOBAL const int* RESTRICT name,
             GLOBAL const i64* RESTRICT old_start, GLOBAL const int* RESTRICT old_rows,
             GLOBAL const int* RESTRICT old_list, GLOBAL const real* RESTRICT old_history, GLOBAL i64* new_start,
             GLOBAL int* rows, GLOBAL int* list, GLOBAL real* history, const i64 count, const i64 sorted,
             const i64 remembers)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        const i64 first = start[i];
        const int mine = name[i];
        GLOBAL int* row = list + first;
        int size = 0;
        for (i64 at = first; at < start[i + 1]; at++) {
            const int j = found[at];
#if IMAGES
            int known = j == (int)i;
            for (int m = 0; m < size; m++) known |= row[m] == j;
            if (known) continue;
#endif
            row[size++] = j;
        }
        if (sorted) {
            for (int gap = size > 32 ? 701 : 1; gap > 0; gap = gap == 1 ? 0 : gap < 9 ? 1 : gap * 4 / 9)
                for (int m = gap; m < size; m++) {
                    const int j = row[m], key = name[j];
                    int place = m;
                    for (; place >= gap && name[row[place - gap]] > key; place -= gap) row[place] = row[place - gap];
                    row[place] = j;
                }
        }
        for (int m = 0; m < size; m++) row[m] = 2 * row[m] + (mine < name[row[m]]);
        for (i64 at = old_start[i]; at < old_start[i] + old_rows[i]; at++) {
            const int entry = old_list[at];
            if (entry >= 0) continue;
            for (int m = 0; m < size; m++) {
                if (row[m] != ~entry) continue;
                row[m] = entry;
                for (int c = 0; c < 4 && remembers; c++) history[4 * (first + m) + c] = old_history[4 * at + c];
                break;
            }
        }
        new_start[i] = first;
        rows[i] = size;
    }
}

// Vectors of particles as columns of a message from `at` on: of those in `which`, or into the particles from `first` on.
KERNEL carry(GLOBAL real* packed, GLOBAL const int* RESTRICT which, GLOBAL real* message, const i64 count,
             const i64 width, const i64 at, const i64 first)
{
    for (i64 n = GROUP_ID * GROUP_SIZE + LOCAL_ID; n < 3 * count; n += GROUP_COUNT * GROUP_SIZE) {
        const i64 k = n / 3, c = n - 3 * k, place = width * k + at + c;
        if (first < 0) message[place] = packed[4 * (i64)which[k] + c];
        else packed[4 * (first + k) + c] = message[place];
    }
}

// Rows of four reals as the user's rows of three, in the user's unit.
KERNEL unpack(GLOBAL const real* RESTRICT packed, GLOBAL const int* RESTRICT name, GLOBAL real* rows, const i64 count,
              const Scale scale)
{
    for (i64 n = GROUP_ID * GROUP_SIZE + LOCAL_ID; n < 3 * count; n += GROUP_COUNT * GROUP_SIZE) {
        const i64 i = n / 3;
        rows[3 * (i64)name[i] + n - 3 * i] = scale.by * packed[4 * i + n - 3 * i];
    }
}
