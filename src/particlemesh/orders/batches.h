// SPDX-License-Identifier: BSD-3-Clause
// Groups of channels that one launch handles one after the other, so that few particles fill the device. Compiled for
// one group (BATCHES 0), nothing of it is left.

#ifndef BATCHES
#define BATCHES 0
#endif

typedef struct {
    i64 count;                   // groups
    i64 field, values, gradient; // reals from those of one group to those of the next
} Batches;

#define GROUPS_OF(batches) (BATCHES ? (batches).count : 1)
#define BATCH_OF(turn, each) (BATCHES ? (turn) / (each) : 0) // the group that has the turn, if each has so many
