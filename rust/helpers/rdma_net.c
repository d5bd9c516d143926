// SPDX-License-Identifier: GPL-2.0

/*
 * Inline functions of the network stack and of XArrays that software RDMA
 * devices need.
 */

#include <linux/if_vlan.h>
#include <linux/igmp.h>
#include <linux/inetdevice.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <linux/xarray.h>
#include <net/dst.h>
#include <net/gso.h>
#include <net/ip.h>
#include <net/ip6_fib.h>
#include <net/ip6_route.h>
#include <net/net_namespace.h>
#include <net/route.h>
#include <net/sock.h>

__rust_helper void rust_helper_xa_init_alloc_irq(struct xarray *xa)
{
	xa_init_flags(xa, XA_FLAGS_ALLOC | XA_FLAGS_LOCK_IRQ);
}

__rust_helper unsigned long rust_helper_xa_lock_irqsave(struct xarray *xa)
{
	unsigned long flags;

	xa_lock_irqsave(xa, flags);
	return flags;
}

__rust_helper void rust_helper_xa_unlock_irqrestore(struct xarray *xa, unsigned long flags)
{
	xa_unlock_irqrestore(xa, flags);
}

#ifdef CONFIG_INET

/* Socket buffers */

__rust_helper struct sk_buff *rust_helper_alloc_skb(unsigned int size, gfp_t gfp)
{
	return alloc_skb(size, gfp);
}

__rust_helper void rust_helper_kfree_skb(struct sk_buff *skb)
{
	kfree_skb(skb);
}

__rust_helper void rust_helper_consume_skb(struct sk_buff *skb)
{
	consume_skb(skb);
}

__rust_helper void rust_helper_skb_reserve(struct sk_buff *skb, int len)
{
	skb_reserve(skb, len);
}

__rust_helper int rust_helper_skb_linearize(struct sk_buff *skb)
{
	return skb_linearize(skb);
}

__rust_helper unsigned int rust_helper_skb_headlen(const struct sk_buff *skb)
{
	return skb_headlen(skb);
}

__rust_helper int rust_helper_skb_network_offset(const struct sk_buff *skb)
{
	return skb_network_offset(skb);
}

__rust_helper void rust_helper_skb_set_network_header(struct sk_buff *skb, int offset)
{
	skb_set_network_header(skb, offset);
}

__rust_helper void rust_helper_skb_set_transport_header(struct sk_buff *skb, int offset)
{
	skb_set_transport_header(skb, offset);
}

__rust_helper void rust_helper_skb_orphan(struct sk_buff *skb)
{
	skb_orphan(skb);
}

__rust_helper void rust_helper_nf_reset_ct(struct sk_buff *skb)
{
	nf_reset_ct(skb);
}

__rust_helper void rust_helper_skb_set_sw_hash(struct sk_buff *skb, u32 hash)
{
	__skb_set_sw_hash(skb, hash, true);
}

__rust_helper struct skb_shared_info *rust_helper_skb_shinfo(const struct sk_buff *skb)
{
	return skb_shinfo(skb);
}

__rust_helper void rust_helper_skb_queue_head_init(struct sk_buff_head *list)
{
	skb_queue_head_init(list);
}

__rust_helper void rust_helper_skb_dst_drop(struct sk_buff *skb)
{
	skb_dst_drop(skb);
}

__rust_helper void rust_helper_skb_dst_set_noref(struct sk_buff *skb, struct dst_entry *dst)
{
	skb_dst_set_noref(skb, dst);
}

__rust_helper int rust_helper_skb_tailroom(const struct sk_buff *skb)
{
	return skb_tailroom(skb);
}

__rust_helper unsigned int rust_helper_skb_headroom(const struct sk_buff *skb)
{
	return skb_headroom(skb);
}

__rust_helper void rust_helper_skb_set_inner_headers(struct sk_buff *skb, int offset)
{
	skb_set_inner_mac_header(skb, offset);
	skb_set_inner_network_header(skb, offset);
	skb_set_inner_transport_header(skb, offset);
}

__rust_helper void rust_helper_skb_set_inner_protocol(struct sk_buff *skb, __be16 protocol)
{
	skb_set_inner_protocol(skb, protocol);
}

__rust_helper void rust_helper_skb_set_encapsulation(struct sk_buff *skb)
{
	skb->encapsulation = 1;
	skb->ip_summed = CHECKSUM_UNNECESSARY;
}

__rust_helper bool rust_helper_skb_has_inner_protocol(const struct sk_buff *skb, __be16 protocol)
{
	return skb->encapsulation && skb->inner_protocol_type == ENCAP_TYPE_ETHER &&
	       skb->inner_protocol == protocol;
}

__rust_helper void rust_helper_skb_gso_reset(struct sk_buff *skb)
{
	skb_gso_reset(skb);
}

__rust_helper int rust_helper_skb_tnl_header_len(const struct sk_buff *skb)
{
	return skb_tnl_header_len(skb);
}

__rust_helper bool rust_helper_dev_takes_trains(const struct net_device *dev)
{
	const netdev_features_t needed = NETIF_F_GSO_UDP_TUNNEL | NETIF_F_GSO_SCTP;

	return !(needed & ~(dev->features & dev->hw_enc_features));
}

__rust_helper bool rust_helper_dev_is_loopback(const struct net_device *dev)
{
	return dev->flags & IFF_LOOPBACK;
}

__rust_helper u32 rust_helper_dst_mtu(const struct dst_entry *dst)
{
	return dst_mtu(dst);
}

/* Routes */

__rust_helper struct dst_entry *rust_helper_dst_check(struct dst_entry *dst, u32 cookie)
{
	return dst_check(dst, cookie);
}

__rust_helper struct net_device *rust_helper_dst_dev_rcu(const struct dst_entry *dst)
{
	return dst_dev_rcu(dst);
}

__rust_helper struct dst_entry *rust_helper_ip_route_output_dst(struct net *net, struct flowi4 *fl4)
{
	struct rtable *rt = ip_route_output_key(net, fl4);

	return IS_ERR(rt) ? ERR_CAST(rt) : &rt->dst;
}

__rust_helper void rust_helper_flowi4_init_output(struct flowi4 *fl4, int oif, __u8 tos, __u8 proto,
						  __be32 daddr, __be32 saddr, __be16 dport,
						  __be16 sport)
{
	flowi4_init_output(fl4, oif, 0, tos, RT_SCOPE_UNIVERSE, proto, 0, daddr, saddr, dport,
			   sport, GLOBAL_ROOT_UID);
}

#ifdef CONFIG_IPV6
__rust_helper u32 rust_helper_dst_rt6_cookie(struct dst_entry *dst)
{
	return rt6_get_cookie(dst_rt6_info(dst));
}

__rust_helper __be32 rust_helper_ip6_make_flowinfo(unsigned int tclass, __be32 flowlabel)
{
	return ip6_make_flowinfo(tclass, flowlabel);
}
#endif

/* Devices and name spaces */

__rust_helper unsigned int rust_helper_ll_reserved_space(const struct net_device *dev)
{
	return LL_RESERVED_SPACE(dev);
}

__rust_helper void rust_helper_dev_hold(struct net_device *dev)
{
	dev_hold(dev);
}

__rust_helper void rust_helper_dev_put(struct net_device *dev)
{
	dev_put(dev);
}

__rust_helper struct net *rust_helper_dev_net_rcu(const struct net_device *dev)
{
	return dev_net_rcu(dev);
}

__rust_helper bool rust_helper_is_vlan_dev(const struct net_device *dev)
{
	return is_vlan_dev(dev);
}

__rust_helper struct net_device *rust_helper_vlan_dev_real_dev(const struct net_device *dev)
{
	return vlan_dev_real_dev(dev);
}

__rust_helper struct in_device *rust_helper___in_dev_get_rtnl(const struct net_device *dev)
{
	return __in_dev_get_rtnl(dev);
}

__rust_helper void rust_helper_ip_mc_dec_group(struct in_device *in_dev, __be32 addr)
{
	ip_mc_dec_group(in_dev, addr);
}

__rust_helper bool rust_helper_netif_running(const struct net_device *dev)
{
	return netif_running(dev);
}

__rust_helper bool rust_helper_netif_carrier_ok(const struct net_device *dev)
{
	return netif_carrier_ok(dev);
}

__rust_helper struct net *rust_helper_get_net(struct net *net)
{
	return get_net(net);
}

__rust_helper struct net *rust_helper_maybe_get_net(struct net *net)
{
	return maybe_get_net(net);
}

__rust_helper void rust_helper_put_net(struct net *net)
{
	put_net(net);
}

/* Sockets */

__rust_helper void *rust_helper_rcu_dereference_sk_user_data(struct sock *sk)
{
	return rcu_dereference_sk_user_data(sk);
}

#endif /* CONFIG_INET */
