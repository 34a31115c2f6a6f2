// SPDX-License-Identifier: BSD-3-Clause

typedef struct {
    real own, largest;
} Rule;

DEVICE real sum_of_weights(const Rule rule, const i64 neighbours)
{
    return rule.own + (real)neighbours;
}
