// SPDX-License-Identifier: GPL-2.0
/*
 * Benchmark of the completion queue API of ib_core.
 *
 * The device consists of memory and does next to nothing, so what is measured is
 * the code between a ULP and a driver. Write "MEASURE CONTEXT COUNT" to
 * ib_cq_bench/run in debugfs and read the result from the same file.
 *
 *   alloc    pairs of ib_alloc_cq() and ib_free_cq()
 *   poll     completions, all there from the start, after one interrupt
 *   event    completions that come one by one, each of them announced
 *   pool     pairs of ib_cq_pool_get() and ib_cq_pool_put()
 *
 * With the name of a network interface behind COUNT, "alloc" uses the device
 * that is on it; then it is no measure of the core alone, but a test of both.
 */
#include <linux/completion.h>
#include <linux/debugfs.h>
#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/uaccess.h>
#include <rdma/ib_verbs.h>

/* More than that does not make it more exact. */
#define CQB_MAX_COUNT	100000000

struct cqb_cq {
	struct ib_cq ibcq;
	struct ib_cqe cqe;
	u64 ready;		/* Completions that poll_cq can hand out. */
	u64 left;		/* Until the end of the measurement. */
	bool chain;		/* Each completion makes the next event. */
	ktime_t end;
	struct completion done;
};

static struct ib_device *cqb_dev;
static DEFINE_MUTEX(cqb_mutex);
static char cqb_result[128];
static struct dentry *cqb_dir;

static struct cqb_cq *to_cqb(struct ib_cq *ibcq)
{
	return container_of(ibcq, struct cqb_cq, ibcq);
}

static void cqb_done(struct ib_cq *ibcq, struct ib_wc *wc)
{
	struct cqb_cq *cq = container_of(wc->wr_cqe, struct cqb_cq, cqe);

	if (!--cq->left) {
		cq->end = ktime_get();
		complete(&cq->done);
	}
}

static int cqb_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
			 struct uverbs_attr_bundle *attrs)
{
	struct cqb_cq *cq = to_cqb(ibcq);

	ibcq->cqe = attr->cqe;
	cq->cqe.done = cqb_done;
	init_completion(&cq->done);
	return 0;
}

static int cqb_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata)
{
	return 0;
}

static int cqb_poll_cq(struct ib_cq *ibcq, int num_entries, struct ib_wc *wc)
{
	struct cqb_cq *cq = to_cqb(ibcq);
	int i, n = min_t(u64, num_entries, cq->ready);

	for (i = 0; i < n; i++) {
		wc[i].wr_cqe = &cq->cqe;
		wc[i].status = IB_WC_SUCCESS;
	}
	cq->ready -= n;
	return n;
}

static int cqb_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags)
{
	struct cqb_cq *cq = to_cqb(ibcq);

	if (cq->chain && cq->left) {
		/* As if an interrupt came now. */
		cq->ready = 1;
		ib_cq_completion(ibcq);
	}
	return 0;
}

static int cqb_query_device(struct ib_device *ibdev, struct ib_device_attr *attr,
			    struct ib_udata *udata)
{
	attr->max_cq = INT_MAX;
	attr->max_cqe = 65536;
	return 0;
}

static int cqb_query_port(struct ib_device *ibdev, u32 port,
			  struct ib_port_attr *attr)
{
	attr->state = IB_PORT_ACTIVE;
	attr->max_mtu = IB_MTU_4096;
	attr->active_mtu = IB_MTU_4096;
	attr->active_width = IB_WIDTH_1X;
	attr->active_speed = IB_SPEED_SDR;
	return 0;
}

static int cqb_port_immutable(struct ib_device *ibdev, u32 port,
			      struct ib_port_immutable *immutable)
{
	immutable->core_cap_flags = RDMA_CORE_PORT_RAW_PACKET;
	return 0;
}

static enum rdma_link_layer cqb_link_layer(struct ib_device *ibdev, u32 port)
{
	return IB_LINK_LAYER_ETHERNET;
}

static const struct ib_device_ops cqb_ops = {
	.owner = THIS_MODULE,
	.driver_id = RDMA_DRIVER_UNKNOWN,

	.create_cq = cqb_create_cq,
	.destroy_cq = cqb_destroy_cq,
	.get_link_layer = cqb_link_layer,
	.get_port_immutable = cqb_port_immutable,
	.poll_cq = cqb_poll_cq,
	.query_device = cqb_query_device,
	.query_port = cqb_query_port,
	.req_notify_cq = cqb_req_notify_cq,

	INIT_RDMA_OBJ_SIZE(ib_cq, cqb_cq, ibcq),
};

/*
 * Each measurement has a device of its own: the resource tracker counts up, and
 * what it costs depends on how far it is.
 */
static int cqb_add_device(void)
{
	int ret;

	cqb_dev = _ib_alloc_device(sizeof(*cqb_dev), &init_net);
	if (!cqb_dev)
		return -ENOMEM;
	cqb_dev->node_type = RDMA_NODE_UNSPECIFIED;
	cqb_dev->phys_port_cnt = 1;
	cqb_dev->num_comp_vectors = 1;
	ib_set_device_ops(cqb_dev, &cqb_ops);
	ret = ib_register_device(cqb_dev, "cqbench%d", NULL);
	if (ret)
		ib_dealloc_device(cqb_dev);
	return ret;
}

static void cqb_remove_device(void)
{
	ib_unregister_device(cqb_dev);
	ib_dealloc_device(cqb_dev);
}

static int cqb_alloc(enum ib_poll_context ctx, unsigned int count, s64 *ns)
{
	ktime_t start = ktime_get();
	struct ib_cq *cq;
	unsigned int i;

	for (i = 0; i < count; i++) {
		cq = ib_alloc_cq(cqb_dev, NULL, 64, 0, ctx);
		if (IS_ERR(cq))
			return PTR_ERR(cq);
		ib_free_cq(cq);
		cond_resched();
		if (fatal_signal_pending(current))
			return -EINTR;
	}
	*ns = ktime_to_ns(ktime_sub(ktime_get(), start));
	return 0;
}

static int cqb_pool(enum ib_poll_context ctx, unsigned int count, s64 *ns)
{
	struct ib_cq *cq;
	unsigned int i;
	ktime_t start;

	if (ctx > IB_POLL_LAST_POOL_TYPE)
		return -EINVAL;

	/* The first one allocates; that is another measure. */
	cq = ib_cq_pool_get(cqb_dev, 1, 0, ctx);
	if (IS_ERR(cq))
		return PTR_ERR(cq);
	ib_cq_pool_put(cq, 1);

	start = ktime_get();
	for (i = 0; i < count; i++) {
		cq = ib_cq_pool_get(cqb_dev, 1, 0, ctx);
		if (IS_ERR(cq))
			return PTR_ERR(cq);
		ib_cq_pool_put(cq, 1);
	}
	*ns = ktime_to_ns(ktime_sub(ktime_get(), start));
	return 0;
}

/* Completions in one go, or with an event each. */
static int cqb_completions(enum ib_poll_context ctx, unsigned int count, bool chain,
			   s64 *ns)
{
	struct ib_cq *ibcq;
	struct cqb_cq *cq;
	ktime_t start;

	if (chain && ctx == IB_POLL_DIRECT)
		return -EINVAL;
	ibcq = ib_alloc_cq(cqb_dev, NULL, 64, 0, ctx);
	if (IS_ERR(ibcq))
		return PTR_ERR(ibcq);
	cq = to_cqb(ibcq);

	cq->left = count;
	cq->ready = chain ? 1 : count;
	cq->chain = chain;
	start = ktime_get();
	if (ctx == IB_POLL_DIRECT) {
		while (cq->left)
			ib_process_cq_direct(ibcq, min_t(u64, cq->left, INT_MAX));
	} else {
		local_bh_disable();
		ib_cq_completion(ibcq);
		local_bh_enable();
		wait_for_completion(&cq->done);
	}
	*ns = ktime_to_ns(ktime_sub(cq->end, start));

	/*
	 * The C code does not wait for the end of its softirq handler, and a
	 * benchmark is no place to find that out.
	 */
	synchronize_rcu();
	ib_free_cq(ibcq);
	return 0;
}

static const struct {
	const char *name;
	enum ib_poll_context ctx;
} cqb_ctxs[] = {
	{ "DIRECT", IB_POLL_DIRECT },
	{ "SOFTIRQ", IB_POLL_SOFTIRQ },
	{ "WORKQUEUE", IB_POLL_WORKQUEUE },
	{ "UNBOUND_WORKQUEUE", IB_POLL_UNBOUND_WORKQUEUE },
};

static int cqb_run(const char *measure, const char *name, unsigned int count)
{
	s64 ns = 0;
	int i, ret;

	for (i = 0; i < ARRAY_SIZE(cqb_ctxs); i++)
		if (!strcmp(name, cqb_ctxs[i].name))
			break;
	if (i == ARRAY_SIZE(cqb_ctxs) || !count || count > CQB_MAX_COUNT)
		return -EINVAL;

	if (!strcmp(measure, "alloc"))
		ret = cqb_alloc(cqb_ctxs[i].ctx, count, &ns);
	else if (!strcmp(measure, "poll"))
		ret = cqb_completions(cqb_ctxs[i].ctx, count, false, &ns);
	else if (!strcmp(measure, "event"))
		ret = cqb_completions(cqb_ctxs[i].ctx, count, true, &ns);
	else if (!strcmp(measure, "pool"))
		ret = cqb_pool(cqb_ctxs[i].ctx, count, &ns);
	else
		ret = -EINVAL;
	if (!ret)
		snprintf(cqb_result, sizeof(cqb_result),
			 "measure=%s ctx=%s n=%u ns=%lld\n", measure, name, count, ns);
	return ret;
}

/* On a device of somebody else, who has to let it live as long as this takes. */
static int cqb_run_on(const char *netdev, const char *measure, const char *ctx,
		      unsigned int count)
{
	struct net_device *ndev;
	int ret;

	if (strcmp(measure, "alloc"))
		return -EINVAL;
	ndev = dev_get_by_name(&init_net, netdev);
	if (!ndev)
		return -ENODEV;
	cqb_dev = ib_device_get_by_netdev(ndev, RDMA_DRIVER_UNKNOWN);
	dev_put(ndev);
	if (!cqb_dev)
		return -ENODEV;
	ret = cqb_run(measure, ctx, count);
	ib_device_put(cqb_dev);
	return ret;
}

static ssize_t cqb_write(struct file *file, const char __user *ubuf, size_t len,
			 loff_t *ppos)
{
	char buf[64], measure[16], ctx[24], netdev[IFNAMSIZ];
	unsigned int count;
	int ret, words;

	if (len >= sizeof(buf))
		return -EINVAL;
	if (copy_from_user(buf, ubuf, len))
		return -EFAULT;
	buf[len] = 0;
	words = sscanf(buf, "%15s %23s %u %15s", measure, ctx, &count, netdev);
	if (words < 3)
		return -EINVAL;

	mutex_lock(&cqb_mutex);
	if (words == 4) {
		ret = cqb_run_on(netdev, measure, ctx, count);
	} else {
		ret = cqb_add_device();
		if (!ret) {
			ret = cqb_run(measure, ctx, count);
			cqb_remove_device();
		}
	}
	mutex_unlock(&cqb_mutex);
	return ret ?: len;
}

static ssize_t cqb_read(struct file *file, char __user *ubuf, size_t len, loff_t *ppos)
{
	ssize_t ret;

	mutex_lock(&cqb_mutex);
	ret = simple_read_from_buffer(ubuf, len, ppos, cqb_result, strlen(cqb_result));
	mutex_unlock(&cqb_mutex);
	return ret;
}

static const struct file_operations cqb_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.read = cqb_read,
	.write = cqb_write,
	.llseek = default_llseek,
};

static int __init cqb_init(void)
{
	cqb_dir = debugfs_create_dir("ib_cq_bench", NULL);
	debugfs_create_file("run", 0600, cqb_dir, NULL, &cqb_fops);
	return 0;
}

static void __exit cqb_exit(void)
{
	debugfs_remove_recursive(cqb_dir);
}

module_init(cqb_init);
module_exit(cqb_exit);

MODULE_DESCRIPTION("Benchmark of the completion queue API of ib_core");
MODULE_LICENSE("GPL");
