// SPDX-License-Identifier: BSD-3-Clause
// The size of a real as an integer, for sums of integers: magnitudes compare as the absolute values do.

#ifndef MAGNITUDE_H
#define MAGNITUDE_H

#if REAL_IS_DOUBLE
#define MAGNITUDE(x) (HIGH_BITS_OF_DOUBLE(x) & 0x7fffffffu)
#define EXPONENT_BITS 20
#define EXPONENT_ALL 2047
#define EXPONENT_BIAS 1022
#else
#define MAGNITUDE(x) (BITS_OF_FLOAT(x) & 0x7fffffffu)
#define EXPONENT_BITS 23
#define EXPONENT_ALL 255
#define EXPONENT_BIAS 126
#endif

#endif
