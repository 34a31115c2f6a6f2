// SPDX-License-Identifier: BSD-3-Clause
// Steps with charges, dipoles and quadrupoles: what mesh and pairs take, and results.

#define VALUES 11   // charge, dipole, upper triangle of the quadrupole, squared width
#define MOMENTS 10  // of the mesh
// Of sums: potential, its first and second derivatives, force (10), slope by the squared width, virial (14), particles in
// one place.
#define COLUMNS 24
#define TERMS 10  // of rows: energy and virial; then particles in one place

// Words of status: ~i of the first particle i with a negative width, a charge that is not finite, a quadrupole that is not
// symmetric, a width that is too large, another number that is not finite; or 0.
#define NEGATIVE 2
#define BAD 3
#define ASYMMETRIC 5
#define WIDE 6
#define BAD_MOMENT 7

typedef struct {
    i64 charges, dipoles, quadrupoles, widths;
    i64 has_dipoles, has_quadrupoles, has_widths;
} Given;

typedef struct {
    real widest, rounding;
} Limits;

// Where the element (a, b) of a symmetric matrix is in its upper triangle.
DEVICE int place_of(const int a, const int b)
{
    const int low = a < b ? a : b, high = a < b ? b : a;
    return low == 0 ? high : low + high + 1;
}

// Write rows for pairs, and moments (MOMENTS, count) for the mesh; say which numbers are bad.
KERNEL pack(GLOBAL const real* RESTRICT charges, GLOBAL const real* RESTRICT dipoles,
            GLOBAL const real* RESTRICT quadrupoles, GLOBAL const real* RESTRICT widths, GLOBAL real* RESTRICT moments,
            GLOBAL real* RESTRICT values, GLOBAL u64* status, const i64 count, const Given at, const Limits limits)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        GLOBAL real* value = values + VALUES * i;
        const real q = charges[at.charges + i], width = at.has_widths ? widths[at.widths + i] : (real)0;
        real largest = 0, zero = width - width;
        value[0] = q;
        for (int a = 0; a < 3; a++) {
            value[1 + a] = at.has_dipoles ? dipoles[at.dipoles + 3 * i + a] : (real)0;
            zero += value[1 + a] - value[1 + a];
        }
        GLOBAL const real* matrix = quadrupoles + at.quadrupoles + 9 * i;
        for (int k = 0; k < (at.has_quadrupoles ? 9 : 0); k++) largest = fmax(largest, fabs(matrix[k]));
        for (int a = 0; a < 3; a++)
            for (int b = a; b < 3; b++) {
                real element = 0;
                if (at.has_quadrupoles) {
                    const real first = matrix[3 * a + b], second = matrix[3 * b + a];
                    element = (first + second) / 2;
                    if (fabs(first - second) > limits.rounding * largest) ATOMIC_MAX_U64(status + ASYMMETRIC, ~(u64)i);
                }
                value[4 + place_of(a, b)] = element;
                zero += element - element;
            }
        value[10] = width * width;
        for (int k = 0; k < MOMENTS; k++)
            moments[k * count + i] = k == 4 || k == 7 || k == 9 ? value[k] / 2 : value[k];
        if (width < 0) ATOMIC_MAX_U64(status + NEGATIVE, ~(u64)i);
        if (width > limits.widest) ATOMIC_MAX_U64(status + WIDE, ~(u64)i);
        if (!(q - q == 0)) ATOMIC_MAX_U64(status + BAD, ~(u64)i);
        if (!(zero == 0)) ATOMIC_MAX_U64(status + BAD_MOMENT, ~(u64)i);
    }
}

typedef struct {
    real coulomb, mesh, self, twist, bend;  // what the mesh gives a charge, a dipole and a quadrupole of themselves
} Factors;

typedef struct {
    i64 energies, forces, potentials, fields, torques, gradients;
} Places;

// Write the results of particles, and rows: energy, virial without that of waves on the mesh, particles in one place.
// Moments stay while the mesh is strained: their part of its slopes does not.
KERNEL assemble(GLOBAL const real* RESTRICT values, GLOBAL const real* RESTRICT sums, GLOBAL const real* RESTRICT mesh,
                GLOBAL const real* RESTRICT slopes, GLOBAL real* RESTRICT energies, GLOBAL real* RESTRICT forces,
                GLOBAL real* RESTRICT potentials, GLOBAL real* RESTRICT fields, GLOBAL real* RESTRICT torques,
                GLOBAL real* RESTRICT gradients, GLOBAL real* RESTRICT rows, const i64 count, const Places at,
                const Factors f)
{
    for (i64 i = GROUP_ID * GROUP_SIZE + LOCAL_ID; i < count; i += GROUP_COUNT * GROUP_SIZE) {
        GLOBAL const real* sum = sums + COLUMNS * i;
        GLOBAL const real* value = values + VALUES * i;
        GLOBAL real* row = rows + (TERMS + 1) * i;
        real matrix[9], bend[9], waves[MOMENTS], slope[3];
        const real q = value[0], trace = value[4] + value[7] + value[9];
        for (int k = 0; k < MOMENTS; k++) waves[k] = f.mesh * mesh[k * count + i];
        for (int a = 0; a < 3; a++)
            for (int b = 0; b < 3; b++) {
                const int k = 4 + place_of(a, b);
                matrix[3 * a + b] = value[k];
                bend[3 * a + b] = sum[k] + waves[k] - f.bend * value[k];
                if (a == b) bend[3 * a + b] += f.twist * q - f.bend * trace / 2;
                gradients[at.gradients + 9 * i + 3 * a + b] = -f.coulomb * bend[3 * a + b];
            }
        const real phi = sum[0] + waves[0] - f.self * q + f.twist * trace / 2;
        real energy = q * phi, turned[9];
        for (int a = 0; a < 3; a++) {
            slope[a] = sum[1 + a] + waves[1 + a] - f.twist * value[1 + a];
            energy += value[1 + a] * slope[a];
            fields[at.fields + 3 * i + a] = -f.coulomb * slope[a];
            real pull = 0;
            for (int k = 0; k < MOMENTS; k++)
                pull += (k == 4 || k == 7 || k == 9 ? value[k] / 2 : value[k]) * slopes[3 * (k * count + i) + a];
            forces[at.forces + 3 * i + a] = f.coulomb * (sum[MOMENTS + a] - f.mesh * pull);
            for (int b = 0; b < 3; b++) {
                real stays = waves[1 + a] * value[1 + b];
                turned[3 * a + b] = 0;
                for (int c = 0; c < 3; c++) {
                    stays += waves[4 + place_of(a, c)] * matrix[3 * c + b];
                    turned[3 * a + b] += matrix[3 * a + c] * bend[3 * c + b];
                }
                row[1 + 3 * a + b] = f.coulomb * (sum[14 + 3 * a + b] / 2 - stays);
            }
            energy += turned[4 * a] / 2;
        }
        for (int a = 0; a < 3; a++) {
            const int b = (a + 1) % 3, c = (a + 2) % 3;
            const real twist = value[1 + b] * slope[c] - value[1 + c] * slope[b] + turned[3 * b + c] - turned[3 * c + b];
            torques[at.torques + 3 * i + a] = -f.coulomb * twist;
        }
        potentials[at.potentials + i] = f.coulomb * phi;
        energies[at.energies + i] = row[0] = f.coulomb * energy / 2;
        row[TERMS] = sum[COLUMNS - 1];
    }
}
