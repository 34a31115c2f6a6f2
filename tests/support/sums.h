// SPDX-License-Identifier: BSD-3-Clause

typedef struct {
    real self_weight, largest;
} Rule;

DEVICE real sum_of_weights(const Rule rule, const i64 neighbours)
{
    return rule.self_weight + (real)neighbours;
}
