// SPDX-License-Identifier: GPL-2.0
/*
 * Selftest of the completion queue API: an RDMA device that consists of memory.
 *
 * It does what a correct driver does, plus what a device may do that nothing
 * forbids: raise a completion event at any moment while it knows the CQ. A
 * handler that would run into uninitialised memory is reported instead of
 * called, so that a defect of the CQ code makes a test fail and not the kernel.
 */
#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/workqueue.h>
#include <rdma/restrack.h>

#include "cq_kunit.h"

bool cqk_core_is_rust(void)
{
	static int rust = -1;
	struct file *file;
	char buf[8] = {};
	loff_t pos = 0;

	if (rust >= 0)
		return rust;

	rust = 0;
	file = filp_open("/sys/module/ib_core/parameters/cq_core", O_RDONLY, 0);
	if (!IS_ERR(file)) {
		if (kernel_read(file, buf, sizeof(buf) - 1, &pos) >= 4)
			rust = !strncmp(buf, "rust", 4);
		filp_close(file, NULL);
	}
	return rust;
}

static bool cqk_chance;
module_param_named(chance, cqk_chance, bool, 0444);
MODULE_PARM_DESC(chance, "Run also what the C core fails by chance");

/**
 * cqk_skip_chance - leave out a stress test with the C core
 * @test: the test
 *
 * Whether it passes there depends on chance. The defects that make it fail have
 * cases of their own, which show them each time.
 */
void cqk_skip_chance(struct kunit *test)
{
	if (!cqk_core_is_rust() && !cqk_chance)
		kunit_skip(test, "the C core fails here by chance; chance=1 tries");
}

int cqk_rounds(int n)
{
	/* The checkers make each round several times slower. */
	if (IS_ENABLED(CONFIG_KASAN) || IS_ENABLED(CONFIG_KCSAN) ||
	    IS_ENABLED(CONFIG_PROVE_LOCKING))
		n /= 10;
	return max(n, 1);
}

/*
 * Events.
 */

/**
 * cqk_is_ready - can the handler of a CQ run?
 * @cq: CQ to look at
 *
 * Return: whether all that the handler of this poll context uses exists.
 */
bool cqk_is_ready(struct cqk_cq *cq)
{
	struct ib_cq *ibcq = &cq->ibcq;

	switch (ibcq->poll_ctx) {
	case IB_POLL_DIRECT:
		return true;
	case IB_POLL_SOFTIRQ:
		return READ_ONCE(ibcq->iop.poll);
	case IB_POLL_WORKQUEUE:
	case IB_POLL_UNBOUND_WORKQUEUE:
		return READ_ONCE(ibcq->work.func) && READ_ONCE(ibcq->comp_wq);
	default:
		return false;
	}
}

/**
 * cqk_raise - raise a completion event in the current context
 * @cq: CQ that gets the event; its memory must not go away meanwhile
 *
 * Return: what happened.
 */
enum cqk_event cqk_raise(struct cqk_cq *cq)
{
	/* Pairs with the release that publishes the handler. */
	if (!smp_load_acquire(&cq->ibcq.comp_handler)) {
		atomic_inc(&cq->dev->ev_no_handler);
		return CQK_EVENT_NO_HANDLER;
	}
	if (!cqk_is_ready(cq)) {
		atomic_inc(&cq->dev->ev_not_ready);
		return CQK_EVENT_NOT_READY;
	}
	atomic_inc(&cq->dev->ev_called);
	/* As drivers do it. */
	ib_cq_completion(&cq->ibcq);
	return CQK_EVENT_CALLED;
}

struct cqk_remote {
	struct cqk_cq *cq;
	enum cqk_event ret;
};

static void cqk_raise_ipi(void *info)
{
	struct cqk_remote *remote = info;

	remote->ret = cqk_raise(remote->cq);
}

/**
 * cqk_raise_on - raise a completion event in hard interrupt context of a CPU
 * @cq: CQ that gets the event
 * @cpu: the CPU, online
 *
 * Return: what happened.
 */
enum cqk_event cqk_raise_on(struct cqk_cq *cq, int cpu)
{
	struct cqk_remote remote = { .cq = cq, .ret = CQK_EVENT_NO_HANDLER };

	smp_call_function_single(cpu, cqk_raise_ipi, &remote, 1);
	return remote.ret;
}

/**
 * cqk_raise_target - raise an event for the CQ that the device published last
 * @dev: the device
 *
 * Only one CPU at a time may do this. It never uses a CQ after destroy_cq, see
 * cqk_unpublish().
 *
 * Return: true if there was a CQ.
 */
bool cqk_raise_target(struct cqk_dev *dev)
{
	struct cqk_cq *cq;
	bool ret = false;

	/* Interrupt context for the handler, and destroy_cq spins for us. */
	local_bh_disable();
	/* Pairs with the release in cqk_publish(). */
	cq = smp_load_acquire(&dev->target);
	if (cq) {
		WRITE_ONCE(dev->busy, cq);
		smp_mb(); /* Either we see the CQ go or destroy_cq sees us. */
		if (READ_ONCE(dev->target) == cq) {
			cqk_raise(cq);
			ret = true;
		}
		/* Pairs with the acquire in cqk_unpublish(). */
		smp_store_release(&dev->busy, NULL);
	}
	local_bh_enable();
	return ret;
}

static void cqk_publish(struct cqk_cq *cq)
{
	struct cqk_dev *dev = cq->dev;

	spin_lock_irq(&dev->live_lock);
	list_add_tail(&cq->node, &dev->live);
	spin_unlock_irq(&dev->live_lock);

	/* Pairs with the acquire in cqk_raise_target(). */
	smp_store_release(&dev->target, cq);
}

static void cqk_unpublish(struct cqk_cq *cq)
{
	struct cqk_dev *dev = cq->dev;

	if (READ_ONCE(dev->target) == cq)
		WRITE_ONCE(dev->target, NULL);
	smp_mb(); /* Pairs with the barrier in cqk_raise_target(). */
	while (smp_load_acquire(&dev->busy) == cq)
		cpu_relax();

	spin_lock_irq(&dev->live_lock);
	list_del(&cq->node);
	spin_unlock_irq(&dev->live_lock);
}

int cqk_other_cpu(void)
{
	return cpumask_any_but(cpu_online_mask, raw_smp_processor_id());
}

/*
 * Completions.
 */

static void cqk_done(struct ib_cq *ibcq, struct ib_wc *wc)
{
	struct cqk_dev *dev = container_of(wc->wr_cqe, struct cqk_dev, cqe);
	struct cqk_cq *cq = to_cqk(ibcq);

	if (cq->next == dev->null_cqe_seq)
		cq->next++;
	if (wc->byte_len != (u32)cq->next)
		dev->disorder++;
	cq->next = wc->byte_len + 1;
	if (wc->status != IB_WC_SUCCESS)
		dev->bad_status++;
	if (dev->hooks.done)
		dev->hooks.done(cq, wc->byte_len);

	dev->done++;
	if (dev->done == dev->done_want)
		complete(&dev->all_done);
}

/**
 * cqk_expect - get ready to receive completions
 * @dev: the device
 * @n: number after which cqk_wait() returns
 */
void cqk_expect(struct cqk_dev *dev, u64 n)
{
	dev->done = 0;
	dev->done_want = n;
	dev->disorder = 0;
	dev->bad_status = 0;
	dev->n_polls = 0;
	dev->poll_max = 0;
	memset(dev->poll_log, 0, sizeof(dev->poll_log));
	reinit_completion(&dev->all_done);
}

/**
 * cqk_wait - wait for the completions that were announced to cqk_expect()
 * @dev: the device
 *
 * Return: false if they did not arrive in time.
 */
bool cqk_wait(struct cqk_dev *dev)
{
	return wait_for_completion_timeout(&dev->all_done, CQK_TIMEOUT);
}

/**
 * cqk_post_silent - let the device complete work without an event
 * @cq: CQ that gets the completions
 * @n: how many
 */
void cqk_post_silent(struct cqk_cq *cq, u64 n)
{
	unsigned long flags;

	spin_lock_irqsave(&cq->lock, flags);
	cq->posted += n;
	spin_unlock_irqrestore(&cq->lock, flags);
}

/**
 * cqk_post - let the device complete work, with an event if the CQ is armed
 * @cq: CQ that gets the completions
 * @n: how many
 */
void cqk_post(struct cqk_cq *cq, u64 n)
{
	unsigned long flags;
	unsigned int armed;

	spin_lock_irqsave(&cq->lock, flags);
	cq->posted += n;
	armed = cq->armed;
	cq->armed = 0;
	spin_unlock_irqrestore(&cq->lock, flags);

	if (armed) {
		local_bh_disable();
		cqk_raise(cq);
		local_bh_enable();
	}
}

static void cqk_enter(struct cqk_cq *cq)
{
	atomic_inc(&cq->in_callback);
	if (READ_ONCE(cq->state) != CQK_LIVE)
		atomic_inc(&cq->dev->late_calls);
}

static void cqk_leave(struct cqk_cq *cq)
{
	atomic_dec_return_release(&cq->in_callback);
}

static int cqk_poll_cq(struct ib_cq *ibcq, int num_entries, struct ib_wc *wc)
{
	struct cqk_cq *cq = to_cqk(ibcq);
	struct cqk_dev *dev = cq->dev;
	unsigned long flags;
	int i, n;

	cqk_enter(cq);
	if (dev->hooks.poll)
		dev->hooks.poll(cq, num_entries);

	spin_lock_irqsave(&cq->lock, flags);
	if (dev->n_polls < CQK_POLL_LOG)
		dev->poll_log[dev->n_polls] = num_entries;
	dev->n_polls++;
	dev->poll_max = max(dev->poll_max, num_entries);

	n = min_t(u64, max(num_entries, 0), cq->posted - cq->polled);
	for (i = 0; i < n; i++) {
		u64 seq = cq->polled + i;

		memset(&wc[i], 0, sizeof(wc[i]));
		wc[i].wr_cqe = &dev->cqe;
		wc[i].byte_len = seq;
		wc[i].status = IB_WC_SUCCESS;
		if (seq == dev->null_cqe_seq) {
			wc[i].wr_cqe = NULL;
			wc[i].status = dev->null_cqe_status;
		}
	}
	cq->polled += n;
	if (!n && dev->poll_err)
		n = dev->poll_err;
	if (n > 0)
		n += dev->poll_lie;
	spin_unlock_irqrestore(&cq->lock, flags);

	cqk_leave(cq);
	return n;
}

static int cqk_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags notify)
{
	struct cqk_cq *cq = to_cqk(ibcq);
	struct cqk_dev *dev = cq->dev;
	unsigned long flags;
	int ret = 0;

	cqk_enter(cq);
	if (atomic_inc_return(&dev->arm_calls) == 1)
		dev->first_arm_flags = notify;
	dev->last_arm_flags = notify;
	if (dev->hooks.arm)
		dev->hooks.arm(cq, notify);

	spin_lock_irqsave(&cq->lock, flags);
	if ((notify & IB_CQ_REPORT_MISSED_EVENTS) && cq->posted != cq->polled)
		ret = 1;
	else
		cq->armed |= notify & IB_CQ_SOLICITED_MASK;
	spin_unlock_irqrestore(&cq->lock, flags);

	cqk_leave(cq);
	return ret;
}

/*
 * Life of a CQ.
 */

static int cqk_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
			 struct uverbs_attr_bundle *attrs)
{
	struct cqk_dev *dev = to_cqk_dev(ibcq->device);
	struct cqk_cq *cq = to_cqk(ibcq);
	bool fail;

	atomic_inc(&dev->create_calls);
	if (!attr->cqe || attr->cqe > dev->ibdev.attrs.max_cqe)
		return -EINVAL;

	fail = dev->create_err && atomic_read(&dev->created) >= dev->create_err_after;
	if (fail && !dev->create_err_late)
		return dev->create_err;

	cq->ring = kmalloc(64, GFP_KERNEL);
	if (!cq->ring)
		return -ENOMEM;

	cq->dev = dev;
	cq->state = CQK_LIVE;
	spin_lock_init(&cq->lock);
	ibcq->cqe = attr->cqe;
	cqk_publish(cq);

	if (dev->hooks.create)
		dev->hooks.create(cq);

	if (fail) {
		cqk_unpublish(cq);
		kfree(cq->ring);
		return dev->create_err;
	}

	atomic_inc(&dev->created);
	return 0;
}

/*
 * The end of a CQ, in the order of a correct driver: no more events, then look
 * whether the core is done with the CQ, as it should be.
 */
static void cqk_end(struct cqk_cq *cq)
{
	struct cqk_dev *dev = cq->dev;

	atomic_inc(&dev->destroy_calls);
	WRITE_ONCE(cq->state, CQK_DESTROYING);
	if (cq->ibcq.res.valid)
		atomic_inc(&dev->late_tracked);
	if (atomic_read(&cq->in_callback))
		atomic_inc(&dev->late_calls);
	/* Pairs with the acquire of tests that wait in a callback. */
	smp_store_release(&dev->destroying, true);

	if (dev->hooks.destroy)
		dev->hooks.destroy(cq);

	cqk_unpublish(cq);

	/*
	 * An event after the core has stopped the work must not start it again.
	 * If it does, stop it here, where the memory still exists.
	 */
	if (cqk_is_wq(cq->ibcq.poll_ctx) && READ_ONCE(cq->ibcq.work.func)) {
		if (work_busy(&cq->ibcq.work))
			atomic_inc(&dev->late_work);
		cancel_work_sync(&cq->ibcq.work);
	}

	/*
	 * The C code does not wait for the last lines of its softirq handler.
	 * Do it in its place so that the test goes on, but not for others:
	 * that would hide what the test looks for.
	 */
	if (!cqk_core_is_rust() && cq->ibcq.poll_ctx == IB_POLL_SOFTIRQ)
		synchronize_rcu_expedited();
	while (atomic_read_acquire(&cq->in_callback))
		cpu_relax();

	WRITE_ONCE(cq->state, CQK_DEAD);
	kfree(cq->ring);
}

static int cqk_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata)
{
	struct cqk_cq *cq = to_cqk(ibcq);
	struct cqk_dev *dev = cq->dev;

	cqk_end(cq);
	return dev->destroy_err;
}

static int cqk_pre_destroy_cq(struct ib_cq *ibcq)
{
	struct cqk_cq *cq = to_cqk(ibcq);
	struct cqk_dev *dev = cq->dev;

	atomic_inc(&dev->pre_destroy_calls);
	if (ibcq->res.valid)
		atomic_inc(&dev->late_tracked);
	if (dev->hooks.pre_destroy)
		dev->hooks.pre_destroy(cq);
	return dev->pre_destroy_err;
}

static void cqk_post_destroy_cq(struct ib_cq *ibcq)
{
	cqk_end(to_cqk(ibcq));
}

static int cqk_modify_cq(struct ib_cq *ibcq, u16 count, u16 period)
{
	struct cqk_cq *cq = to_cqk(ibcq);
	struct cqk_dev *dev = cq->dev;

	if (READ_ONCE(cq->state) != CQK_LIVE)
		atomic_inc(&dev->late_calls);
	if (dev->hooks.modify)
		dev->hooks.modify(cq);
	atomic_inc(&dev->modify_calls);
	return 0;
}

/*
 * The device.
 */

static int cqk_query_device(struct ib_device *ibdev, struct ib_device_attr *attr,
			    struct ib_udata *udata)
{
	attr->max_cq = INT_MAX;
	attr->max_cqe = CQK_MAX_CQE;
	return 0;
}

static int cqk_query_port(struct ib_device *ibdev, u32 port,
			  struct ib_port_attr *attr)
{
	attr->state = IB_PORT_ACTIVE;
	attr->phys_state = IB_PORT_PHYS_STATE_LINK_UP;
	attr->max_mtu = IB_MTU_4096;
	attr->active_mtu = IB_MTU_4096;
	attr->active_width = IB_WIDTH_1X;
	attr->active_speed = IB_SPEED_SDR;
	return 0;
}

/* Neither InfiniBand nor RoCE nor iWARP: no GIDs, no MADs, no netdev. */
static int cqk_port_immutable(struct ib_device *ibdev, u32 port,
			      struct ib_port_immutable *immutable)
{
	immutable->core_cap_flags = RDMA_CORE_PORT_RAW_PACKET;
	return 0;
}

static enum rdma_link_layer cqk_link_layer(struct ib_device *ibdev, u32 port)
{
	return IB_LINK_LAYER_ETHERNET;
}

static const struct ib_device_ops cqk_ops = {
	.owner = THIS_MODULE,
	.driver_id = RDMA_DRIVER_UNKNOWN,

	.create_cq = cqk_create_cq,
	.destroy_cq = cqk_destroy_cq,
	.get_link_layer = cqk_link_layer,
	.get_port_immutable = cqk_port_immutable,
	.poll_cq = cqk_poll_cq,
	.query_device = cqk_query_device,
	.query_port = cqk_query_port,
	.req_notify_cq = cqk_req_notify_cq,

	INIT_RDMA_OBJ_SIZE(ib_cq, cqk_cq, ibcq),
};

static const struct ib_device_ops cqk_pre_post_ops = {
	.pre_destroy_cq = cqk_pre_destroy_cq,
	.post_destroy_cq = cqk_post_destroy_cq,
};

static const struct ib_device_ops cqk_dim_ops = {
	.modify_cq = cqk_modify_cq,
};

/**
 * cqk_dev_create - make and register a fake device
 * @flags: variant of the device
 *
 * Return: the device or an error pointer.
 */
struct cqk_dev *cqk_dev_create(unsigned int flags)
{
	struct cqk_dev *dev;
	int ret;

	dev = ib_alloc_device(cqk_dev, ibdev);
	if (!dev)
		return ERR_PTR(-ENOMEM);

	dev->flags = flags;
	dev->null_cqe_seq = U64_MAX;
	dev->cqe.done = cqk_done;
	spin_lock_init(&dev->live_lock);
	INIT_LIST_HEAD(&dev->live);
	init_completion(&dev->all_done);

	dev->ibdev.node_type = RDMA_NODE_UNSPECIFIED;
	dev->ibdev.phys_port_cnt = 1;
	dev->ibdev.num_comp_vectors = 2;
	ib_set_device_ops(&dev->ibdev, &cqk_ops);
	if (flags & CQK_PRE_POST)
		ib_set_device_ops(&dev->ibdev, &cqk_pre_post_ops);
	if (flags & CQK_DIM) {
		ib_set_device_ops(&dev->ibdev, &cqk_dim_ops);
		dev->ibdev.use_cq_dim = true;
	}

	ret = ib_register_device(&dev->ibdev, "cqkunit%d", NULL);
	if (ret) {
		ib_dealloc_device(&dev->ibdev);
		return ERR_PTR(ret);
	}
	dev->registered = true;
	return dev;
}

int cqk_live(struct cqk_dev *dev)
{
	int n;

	spin_lock_irq(&dev->live_lock);
	n = list_count_nodes(&dev->live);
	spin_unlock_irq(&dev->live_lock);
	return n;
}

u32 cqk_tracked(struct cqk_dev *dev)
{
	return rdma_restrack_count(&dev->ibdev, RDMA_RESTRACK_CQ, true);
}

/* The oldest live CQ or NULL. */
struct cqk_cq *cqk_first(struct cqk_dev *dev)
{
	struct cqk_cq *cq;

	spin_lock_irq(&dev->live_lock);
	cq = list_first_entry_or_null(&dev->live, struct cqk_cq, node);
	spin_unlock_irq(&dev->live_lock);
	return cq;
}

void cqk_dev_unregister(struct cqk_dev *dev)
{
	if (!dev->registered)
		return;
	dev->registered = false;
	ib_unregister_device(&dev->ibdev);
}

/**
 * cqk_dev_destroy - remove the device and whatever a failed test left behind
 * @dev: the device
 */
void cqk_dev_destroy(struct cqk_dev *dev)
{
	struct cqk_cq *cq, *n;

	memset(&dev->hooks, 0, sizeof(dev->hooks));
	dev->destroy_err = 0;
	dev->pre_destroy_err = 0;

	list_for_each_entry_safe(cq, n, &dev->live, node) {
		cq->ibcq.cqe_used = 0;
		atomic_set(&cq->ibcq.usecnt, 0);
		/* Unregistering frees those of the pools. */
		if (!cq->ibcq.shared)
			ib_free_cq(&cq->ibcq);
	}
	cqk_dev_unregister(dev);
	/* A pool CQ that the core gave up because it was in use. */
	list_for_each_entry_safe(cq, n, &dev->live, node) {
		cq->ibcq.shared = false;
		ib_free_cq(&cq->ibcq);
	}
	ib_dealloc_device(&dev->ibdev);
}

int cqk_suite_init(struct kunit *test)
{
	struct cqk_dev *dev = cqk_dev_create(0);

	if (IS_ERR(dev)) {
		kunit_err(test, "no device: %pe\n", dev);
		return PTR_ERR(dev);
	}
	test->priv = dev;
	return 0;
}

void cqk_suite_exit(struct kunit *test)
{
	if (test->priv)
		cqk_dev_destroy(test->priv);
	test->priv = NULL;
}
