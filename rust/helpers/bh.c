// SPDX-License-Identifier: GPL-2.0

#include <linux/bottom_half.h>
#include <linux/irqflags.h>
#include <linux/preempt.h>

__rust_helper void rust_helper_local_bh_disable(void)
{
	local_bh_disable();
}

__rust_helper void rust_helper_local_bh_enable(void)
{
	local_bh_enable();
}

__rust_helper bool rust_helper_bh_may_toggle(void)
{
	return !in_hardirq() && !in_nmi() && !irqs_disabled();
}
