// SPDX-License-Identifier: GPL-2.0
/*
 * Completion events that nobody asked for, on the devices of real drivers.
 *
 * Each RDMA device that is there or comes while this module is loaded has its
 * methods for completion queues wrapped. A thread calls ib_cq_completion() for
 * all queues that it learns of in this way, again and again, from before the
 * driver creates a queue until before it destroys it, with interrupts disabled
 * as an interrupt has them. Meanwhile the driver raises its own events. The
 * thread that creates or destroys a queue raises some, too, in the middle of
 * that.
 *
 * Not for queues in the context DIRECT, of which the core says that there must be
 * no event, nor for those of ib_create_cq(), whose handler is the consumer's own.
 *
 * A queue of user space gets a limited number of events, since each one is kept
 * until it is read. If its driver does not create it after such an event, uverbs
 * forgets to take that from the list: so this is not to be used where creation is
 * to fail.
 *
 * What was done is in ib_cq_storm/state in debugfs.
 */
#include <linux/cpumask.h>
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/srcu.h>
#include <rdma/ib_verbs.h>

static unsigned int cpu;
module_param(cpu, uint, 0444);
MODULE_PARM_DESC(cpu, "CPU of the thread that raises events");

static unsigned int within = 4;
module_param(within, uint, 0644);
MODULE_PARM_DESC(within, "Events from within creation and destruction of a queue, each");

static unsigned int user_events = 64;
module_param(user_events, uint, 0644);
MODULE_PARM_DESC(user_events, "Events for each queue of user space");

static unsigned int pause_us = 20;
module_param(pause_us, uint, 0644);
MODULE_PARM_DESC(pause_us, "Microseconds between two rounds");

/* The driver's methods. */
struct cqs_dev {
	int (*create_cq)(struct ib_cq *cq, const struct ib_cq_init_attr *attr,
			 struct uverbs_attr_bundle *attrs);
	int (*create_user_cq)(struct ib_cq *cq, const struct ib_cq_init_attr *attr,
			      struct uverbs_attr_bundle *attrs);
	int (*destroy_cq)(struct ib_cq *cq, struct ib_udata *udata);
	bool gone;
};

struct cqs_slot {
	spinlock_t lock;	/* Held while the handler runs. */
	struct ib_cq *cq;
	bool user;
	bool created;
	unsigned int left;	/* Events for user space. */
};

#define CQS_SLOTS 512
static struct cqs_slot cqs_slots[CQS_SLOTS];
static unsigned int cqs_used;

static atomic64_t cqs_queues[2];	/* Of the kernel, of user space. */
static atomic64_t cqs_early[2];		/* Events before the queue was created. */
static atomic64_t cqs_live[2];		/* Events after that. */
static atomic64_t cqs_raced;		/* Early ones that came from the thread. */
static atomic64_t cqs_missed;		/* Queues for which there was no room. */

/* For calls of a driver's method, which may sleep. */
DEFINE_STATIC_SRCU(cqs_srcu);

static struct dentry *cqs_dir;
static struct task_struct *cqs_task;
static struct ib_client cqs_client;

static bool cqs_raise(struct cqs_slot *slot)
{
	unsigned long flags;
	bool early = false;

	spin_lock_irqsave(&slot->lock, flags);
	if (slot->cq && (!slot->user || slot->left)) {
		early = !slot->created;
		atomic64_inc(early ? &cqs_early[slot->user] : &cqs_live[slot->user]);
		if (slot->user)
			slot->left--;
		ib_cq_completion(slot->cq);
	}
	spin_unlock_irqrestore(&slot->lock, flags);
	return early;
}

static void cqs_raise_within(struct cqs_slot *slot)
{
	unsigned int i;

	for (i = 0; slot && i < READ_ONCE(within); i++)
		cqs_raise(slot);
}

static int cqs_thread(void *unused)
{
	unsigned int i, us;

	while (!kthread_should_stop()) {
		for (i = 0; i < READ_ONCE(cqs_used); i++)
			if (READ_ONCE(cqs_slots[i].cq) && cqs_raise(&cqs_slots[i]))
				atomic64_inc(&cqs_raced);
		us = READ_ONCE(pause_us);
		if (us)
			usleep_range(us, 2 * us);
		else
			cond_resched();
	}
	return 0;
}

/* The slot for a queue; NULL if it is to have no events. */
static struct cqs_slot *cqs_claim(struct ib_cq *cq, struct cqs_dev *dev)
{
	struct cqs_slot *slot;
	unsigned int i;

	if (dev->gone)
		return NULL;
	if (!cq->uobject && (!cq->wc || cq->poll_ctx == IB_POLL_DIRECT))
		return NULL;

	for (i = 0; i < CQS_SLOTS; i++) {
		slot = &cqs_slots[i];
		spin_lock_irq(&slot->lock);
		if (slot->cq) {
			spin_unlock_irq(&slot->lock);
			continue;
		}
		slot->user = cq->uobject;
		slot->created = false;
		slot->left = slot->user ? READ_ONCE(user_events) : 0;
		WRITE_ONCE(slot->cq, cq);
		spin_unlock_irq(&slot->lock);

		if (i >= READ_ONCE(cqs_used))
			WRITE_ONCE(cqs_used, i + 1);
		atomic64_inc(&cqs_queues[slot->user]);
		return slot;
	}
	atomic64_inc(&cqs_missed);
	return NULL;
}

static struct cqs_slot *cqs_find(struct ib_cq *cq)
{
	unsigned int i;

	for (i = 0; i < READ_ONCE(cqs_used); i++)
		if (READ_ONCE(cqs_slots[i].cq) == cq)
			return &cqs_slots[i];
	return NULL;
}

/* No handler runs after this. */
static void cqs_drop(struct cqs_slot *slot)
{
	spin_lock_irq(&slot->lock);
	WRITE_ONCE(slot->cq, NULL);
	spin_unlock_irq(&slot->lock);
}

static int cqs_create(struct ib_cq *cq, const struct ib_cq_init_attr *attr,
		      struct uverbs_attr_bundle *attrs, bool user)
{
	int idx = srcu_read_lock(&cqs_srcu), ret;
	struct cqs_dev *dev = ib_get_client_data(cq->device, &cqs_client);
	struct cqs_slot *slot = NULL;
	typeof(dev->create_cq) create;

	if (dev) {
		create = user ? dev->create_user_cq : dev->create_cq;
		slot = cqs_claim(cq, dev);
	} else {
		create = user ? cq->device->ops.create_user_cq : cq->device->ops.create_cq;
	}

	cqs_raise_within(slot);
	ret = create(cq, attr, attrs);
	if (slot && ret) {
		cqs_drop(slot);
	} else if (slot) {
		spin_lock_irq(&slot->lock);
		slot->created = true;
		spin_unlock_irq(&slot->lock);
		cqs_raise_within(slot);
	}
	srcu_read_unlock(&cqs_srcu, idx);
	return ret;
}

static int cqs_create_cq(struct ib_cq *cq, const struct ib_cq_init_attr *attr,
			 struct uverbs_attr_bundle *attrs)
{
	return cqs_create(cq, attr, attrs, false);
}

static int cqs_create_user_cq(struct ib_cq *cq, const struct ib_cq_init_attr *attr,
			      struct uverbs_attr_bundle *attrs)
{
	return cqs_create(cq, attr, attrs, true);
}

static int cqs_destroy_cq(struct ib_cq *cq, struct ib_udata *udata)
{
	int idx = srcu_read_lock(&cqs_srcu), ret;
	struct cqs_dev *dev = ib_get_client_data(cq->device, &cqs_client);
	struct cqs_slot *slot = cqs_find(cq);

	if (slot) {
		cqs_raise_within(slot);
		cqs_drop(slot);
	}
	/* If the driver refuses, the queue lives on without events. */
	ret = (dev ? dev->destroy_cq : cq->device->ops.destroy_cq)(cq, udata);
	srcu_read_unlock(&cqs_srcu, idx);
	return ret;
}

static int cqs_add(struct ib_device *ibdev)
{
	struct cqs_dev *dev = kzalloc_obj(*dev);

	if (!dev)
		return -ENOMEM;
	dev->create_cq = ibdev->ops.create_cq;
	dev->create_user_cq = ibdev->ops.create_user_cq;
	dev->destroy_cq = ibdev->ops.destroy_cq;
	ib_set_client_data(ibdev, &cqs_client, dev);

	/*
	 * What is created by the driver's method may be destroyed by ours, which
	 * finds no slot then, but not the other way round.
	 */
	WRITE_ONCE(ibdev->ops.destroy_cq, cqs_destroy_cq);
	/* Pairs with the dependency of whoever calls these. */
	smp_wmb();
	if (dev->create_cq)
		WRITE_ONCE(ibdev->ops.create_cq, cqs_create_cq);
	if (dev->create_user_cq)
		WRITE_ONCE(ibdev->ops.create_user_cq, cqs_create_user_cq);
	return 0;
}

static void cqs_remove(struct ib_device *ibdev, void *client_data)
{
	struct cqs_dev *dev = client_data;
	unsigned int i;

	/* No new events first, while destruction still waits for those that are. */
	WRITE_ONCE(dev->gone, true);
	synchronize_srcu(&cqs_srcu);
	for (i = 0; i < CQS_SLOTS; i++) {
		spin_lock_irq(&cqs_slots[i].lock);
		if (cqs_slots[i].cq && cqs_slots[i].cq->device == ibdev)
			WRITE_ONCE(cqs_slots[i].cq, NULL);
		spin_unlock_irq(&cqs_slots[i].lock);
	}

	WRITE_ONCE(ibdev->ops.create_cq, dev->create_cq);
	WRITE_ONCE(ibdev->ops.create_user_cq, dev->create_user_cq);
	WRITE_ONCE(ibdev->ops.destroy_cq, dev->destroy_cq);
	ib_set_client_data(ibdev, &cqs_client, NULL);
	synchronize_srcu(&cqs_srcu);
	kfree(dev);
}

static struct ib_client cqs_client = {
	.name = "cq_storm",
	.add = cqs_add,
	.remove = cqs_remove,
};

static int cqs_show(struct seq_file *m, void *unused)
{
	static const char * const who[] = { "kernel", "user" };
	int i;

	for (i = 0; i < ARRAY_SIZE(who); i++)
		seq_printf(m, "%s queues %lld early %lld live %lld\n", who[i],
			   atomic64_read(&cqs_queues[i]), atomic64_read(&cqs_early[i]),
			   atomic64_read(&cqs_live[i]));
	seq_printf(m, "thread raced %lld missed %lld\n", atomic64_read(&cqs_raced),
		   atomic64_read(&cqs_missed));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(cqs);

static int __init cqs_init(void)
{
	int i, ret;

	if (cpu >= nr_cpu_ids || !cpu_online(cpu))
		return -EINVAL;
	for (i = 0; i < CQS_SLOTS; i++)
		spin_lock_init(&cqs_slots[i].lock);

	cqs_task = kthread_create(cqs_thread, NULL, "cq_storm");
	if (IS_ERR(cqs_task))
		return PTR_ERR(cqs_task);
	kthread_bind(cqs_task, cpu);
	ret = ib_register_client(&cqs_client);
	if (ret) {
		kthread_stop(cqs_task);
		return ret;
	}
	cqs_dir = debugfs_create_dir("ib_cq_storm", NULL);
	debugfs_create_file("state", 0400, cqs_dir, NULL, &cqs_fops);
	wake_up_process(cqs_task);
	return 0;
}

static void __exit cqs_exit(void)
{
	debugfs_remove_recursive(cqs_dir);
	kthread_stop(cqs_task);
	ib_unregister_client(&cqs_client);
}

module_init(cqs_init);
module_exit(cqs_exit);

MODULE_DESCRIPTION("Completion events that nobody asked for");
MODULE_LICENSE("GPL");
