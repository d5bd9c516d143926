/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Bugs for the sanitizers to find, see seed.c: those that are in Rust.
 */
#ifndef IB_SEED_H
#define IB_SEED_H

#include <linux/types.h>

int seed_kasan(void);
int seed_leak(void);
int seed_lockdep(void);
int seed_atomic_sleep(void);

void seed_race_write(void);
void seed_race_read(void);
void seed_order_write(bool ordered);
void seed_order_read(void);

#endif /* IB_SEED_H */
