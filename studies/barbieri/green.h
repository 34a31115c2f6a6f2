// SPDX-License-Identifier: BSD-3-Clause
// Green's forces [green2008] and the motion of spheres, in diameters: a cell is one diameter wide.
//
// A position is four reals, a velocity is four reals; the fourth of a velocity is the sphere's number.

#define RADIUS ((real)0.5)
#define COINCIDENT ((real)1e-12)

// Words of a status.
#define BAD 0         // spheres whose motion was no longer finite
#define LAST_BAD 1    // the greatest number of such a sphere, + 1
#define FULLEST 2     // particles of the fullest cell, if it has fewer places

typedef struct {
    real spring, dashpot, shear, restitution, time_step, gravity, most_speed;
} Green;

typedef struct {
    real x[3], v[3], push[3];
} Sphere;

DEVICE void read_sphere(PRIVATE Sphere* own, GLOBAL const real* positions, GLOBAL const real* velocities, const i64 i)
{
    const real4 x = READ_4(positions + 4 * i), v = READ_4(velocities + 4 * i);
    own->x[0] = x.x, own->x[1] = x.y, own->x[2] = x.z;
    own->v[0] = v.x, own->v[1] = v.y, own->v[2] = v.z;
    own->push[0] = own->push[1] = own->push[2] = 0;
}

// The vector to another centre, and its square. All kernels agree on which spheres touch.
DEVICE real apart(PRIVATE real* d, PRIVATE const Sphere* own, const real4 other)
{
    d[0] = other.x - own->x[0], d[1] = other.y - own->x[1], d[2] = other.z - own->x[2];
    return fma(d[0], d[0], fma(d[1], d[1], d[2] * d[2]));
}

#define IN_REACH(r2) ((r2) < 1 && (r2) > COINCIDENT)

DEVICE void collide(PRIVATE Sphere* own, PRIVATE const real* d, const real r2, const real4 velocity,
                    PRIVATE const Green* green)
{
    const real per_r = rsqrt(r2);
    const real w[3] = {velocity.x - own->v[0], velocity.y - own->v[1], velocity.z - own->v[2]};
    const real along = (w[0] * d[0] + w[1] * d[1] + w[2] * d[2]) * per_r;
    const real pull = (-green->spring * (1 - r2 * per_r) - green->shear * along) * per_r;
    const real friction = green->dashpot + green->shear;
    for (int a = 0; a < 3; a++) own->push[a] += fma(pull, d[a], friction * w[a]);
}

// Symplectic Euler, and walls. If the speed is not finite, the sphere stays and the status says so.
DEVICE void advance(PRIVATE Sphere* own, const real size, PRIVATE const Green* green, GLOBAL u32* status,
                    const i64 number)
{
    real v[3] = {own->v[0] + own->push[0], own->v[1] + own->push[1] - green->gravity * green->time_step,
                 own->v[2] + own->push[2]};
    const real square = v[0] * v[0] + v[1] * v[1] + v[2] * v[2];
    if (!(square - square == 0)) {
        ATOMIC_ADD_U32(status + BAD, 1);
        ATOMIC_MAX_U32(status + LAST_BAD, number + 1);
        return;
    }
    const real most = green->most_speed, slower = square > most * most ? most * rsqrt(square) : 1;
    for (int a = 0; a < 3; a++) {
        v[a] *= slower;
        real x = own->x[a] + v[a] * green->time_step;
        const real inside = fmin(fmax(x, RADIUS), size - RADIUS);
        if (x != inside) v[a] *= green->restitution;
        own->x[a] = inside, own->v[a] = v[a];
    }
}

// The cell of a coordinate, and of a point: the last axis is fastest.
DEVICE int cell_along(const real x, const int cells)
{
    const int cell = (int)x;
    return cell < cells ? cell : cells - 1;
}

DEVICE int cell_of(const real x, const real y, const real z, const int cells)
{
    return (cell_along(x, cells) * cells + cell_along(y, cells)) * cells + cell_along(z, cells);
}
