// SPDX-License-Identifier: BSD-3-Clause
// Sums over a work-group, in one order.

// Write what the work-items of a group have in all; scratch has a place for each.
DEVICE void gather(LOCAL real* scratch, const real value, GLOBAL real* target)
{
    scratch[LOCAL_ID] = value;
    BARRIER();
    for (int reach = GROUP_SIZE / 2; reach > 0; reach /= 2) {
        if (LOCAL_ID < reach) scratch[LOCAL_ID] += scratch[LOCAL_ID + reach];
        BARRIER();
    }
    if (LOCAL_ID == 0) *target = scratch[0];
    BARRIER();
}
