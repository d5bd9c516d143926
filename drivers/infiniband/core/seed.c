// SPDX-License-Identifier: GPL-2.0-only
/*
 * Bugs on purpose, one for each sanitizer: a test that says that nothing was
 * reported is worth something only where a report would have come. Loading the
 * module commits the bugs that its parameter names, and then succeeds, so that
 * the reports are all that shows it. The kernel is not to be used afterwards.
 *
 * Those that Rust lets one write, with or without unsafe, are in seed_rust.rs:
 * whether the sanitizers see Rust code is half of the question.
 */
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/timer.h>

#include "seed.h"

static char *bug[8];
static int bug_count;
module_param_array(bug, charp, &bug_count, 0444);
MODULE_PARM_DESC(bug, "What to do wrong, one after the other, see the names in seed.c");

static unsigned int seconds = 5;
module_param(seconds, uint, 0444);
MODULE_PARM_DESC(seconds, "How long the threads of the races run");

struct seed_object {
	struct timer_list timer;
};

static void seed_timer(struct timer_list *timer)
{
}

/* Frees a timer that runs. In Rust a timer is stopped when it is dropped. */
static noinline int seed_objects(void)
{
	struct seed_object *object = kzalloc_obj(*object);

	if (!object)
		return -ENOMEM;
	timer_setup(&object->timer, seed_timer, 0);
	mod_timer(&object->timer, jiffies + 1000 * HZ);
	kfree(object);
	return 0;
}

struct seed_side {
	void (*step)(bool ordered);
	bool ordered;
};

/* The functions in Rust do one step each, so that none is moved out of a loop. */
static int seed_thread(void *data)
{
	struct seed_side *side = data;

	while (!kthread_should_stop()) {
		side->step(side->ordered);
		cond_resched();
	}
	return 0;
}

static int seed_threads(void (*write)(bool), void (*read)(bool), bool ordered)
{
	struct seed_side sides[] = { { write, ordered }, { read, ordered } };
	struct task_struct *writer, *reader;

	writer = kthread_run(seed_thread, &sides[0], "seed_writer");
	if (IS_ERR(writer))
		return PTR_ERR(writer);
	reader = kthread_run(seed_thread, &sides[1], "seed_reader");
	if (!IS_ERR(reader)) {
		msleep(seconds * MSEC_PER_SEC);
		kthread_stop(reader);
	}
	kthread_stop(writer);
	return PTR_ERR_OR_ZERO(reader);
}

static void race_write(bool ordered)
{
	seed_race_write();
}

static void race_read(bool ordered)
{
	seed_race_read();
}

static void order_read(bool ordered)
{
	seed_order_read();
}

/* Two threads use the same memory, and nothing says when. */
static int seed_race(void)
{
	return seed_threads(race_write, race_read, false);
}

/* Each has its turn, but the turn is given away without a release. */
static int seed_order(void)
{
	return seed_threads(seed_order_write, order_read, false);
}

/* The same without the bug: nothing may be reported. */
static int seed_ordered(void)
{
	return seed_threads(seed_order_write, order_read, true);
}

static const struct {
	const char *name;
	int (*commit)(void);
} bugs[] = {
	{ "kasan", seed_kasan },
	{ "leak", seed_leak },
	{ "lockdep", seed_lockdep },
	{ "atomic_sleep", seed_atomic_sleep },
	{ "objects", seed_objects },
	{ "race", seed_race },
	{ "order", seed_order },
	{ "ordered", seed_ordered },
};

static int __init seed_one(const char *name)
{
	for (int i = 0; i < ARRAY_SIZE(bugs); i++)
		if (!strcmp(name, bugs[i].name))
			return bugs[i].commit();
	return -EINVAL;
}

static int __init seed_init(void)
{
	int ret = bug_count ? 0 : -EINVAL;

	for (int i = 0; !ret && i < bug_count; i++)
		ret = seed_one(bug[i]);
	return ret;
}

static void __exit seed_exit(void)
{
}

module_init(seed_init);
module_exit(seed_exit);
MODULE_DESCRIPTION("Bugs on purpose, to test the tests");
MODULE_LICENSE("GPL");
