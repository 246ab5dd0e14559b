// SPDX-License-Identifier: GPL-2.0-or-later
/* The switch data plane: tc clsact programs (direct action) for the veth ends of a fabric.
 *
 *   port_egress     every end, egress: queue limit, trimming, ECN, faults, counters, path stamp,
 *                   shaping class
 *   port_ingress    a switch's end, ingress: the packet has left the queue of the other end
 *   switch_ingress  the same at a switch that chooses among equal next hops itself, or listens to
 *                   adverts
 *   host_ingress    a host's end, ingress: the same, and RoCE packets end here
 *   nic_receive     the packet ring of a host's NIC, as its socket's filter: no packet with a wrong
 *                   ICRC gets in
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "advert.h"
#include "balance.h"
#include "constants.h"
#include "ecn.h"
#include "forward.h"
#include "icrc.h"
#include "load.h"
#include "maps.h"
#include "packet.h"
#include "queue.h"
#include "trim.h"

static __always_inline struct flow_port *find_flow(struct port *port, __u32 port_number,
						   const struct frame *frame)
{
	__u32 flow, index;

	if (!frame->has_flow)
		return NULL;
	flow = frame->flow_number - qpn_base;
	if (flow >= flow_count) {
		add(&port->unknown_flow_packets, 1);
		return NULL;
	}
	index = flow * port_count + port_number;
	return bpf_map_lookup_elem(&flow_ports, &index);
}

/* Whether a packet may join the queue. The two classes have limits of their own: a packet to be
 * trimmed needs room in the control class.
 */
static __always_inline enum drop_reason admit(const struct port *port,
					      const struct port_config *config,
					      const struct frame *frame, const struct wire *wire,
					      __u64 class_after)
{
	__u64 control_limit = config->control_limit_bytes, drop_at = config->drop_at_bytes;
	__u64 control_after = class_after;

	if (config->dead == DARK)
		return NO_CARRIER;
	if (config->blackhole)
		return BLACKHOLE;
	if (config->loss_per_million && per_million(config->loss_per_million))
		return FAULT_LOSS;
	if (!is_control(frame)) {
		if (!may_trim(config, frame, wire) || class_after <= config->trim_above_bytes)
			return drop_at && class_after > drop_at ? QUEUE_LIMIT : ADMITTED;
		control_after = control_queue_bytes(port) + kept_bytes(config, frame);
	}
	if (control_limit && control_after > control_limit)
		return CONTROL_LIMIT;
	return is_control(frame) ? ADMITTED : TO_BE_TRIMMED;
}

/* What no host has sent is lost for a reason of its own. */
static __always_inline enum drop_reason named(enum drop_reason reason, const struct frame *frame)
{
	if (frame->is_advert)
		return ADVERT_LOST;
	return frame->is_routing ? ROUTING_LOST : reason;
}

/* Not inlined: drops are rare, and a function's signature keeps the reasons' names in BTF. */
static __noinline void count_dropped(struct port *port, struct flow_port *flow,
				     enum drop_reason reason, const struct wire *wire)
{
	if ((__u32)reason >= DROP_REASONS)
		return;
	add(&port->dropped_packets[reason], wire->packets);
	add(&port->dropped_bytes[reason], wire->bytes);
	if (!flow)
		return;
	add(&flow->dropped_packets, wire->packets);
	add(&flow->dropped_bytes, wire->bytes);
}

static __always_inline void count_trimmed(struct port *port, const struct port_config *config,
					  struct flow_port *flow, const struct frame *frame,
					  const struct wire *wire)
{
	add(&port->trimmed_packets, 1);
	add(&port->trimmed_bytes, wire->bytes - kept_bytes(config, frame));
	if (flow)
		add(&flow->trimmed_packets, 1);
}

static __always_inline void count_marked(struct port *port, struct flow_port *flow,
					 const struct wire *wire)
{
	add(&port->marked_packets, wire->packets);
	if (flow)
		add(&flow->marked_packets, wire->packets);
}

static __always_inline void count_enqueued(struct port *port, const struct frame *frame,
					   const struct wire *wire)
{
	__u64 queue_after = queue_bytes(port) + wire->bytes;

	add(&port->enqueued_packets, wire->packets);
	add(&port->enqueued_bytes, wire->bytes);
	if (is_control(frame))
		add(&port->control_enqueued_bytes, wire->bytes);
	if (frame->is_advert) {
		add(&port->advert_packets, wire->packets);
		add(&port->advert_bytes, wire->bytes);
	}
	if (frame->is_routing) {
		add(&port->routing_packets, wire->packets);
		add(&port->routing_bytes, wire->bytes);
	}
	if (queue_after > port->high_water_bytes)
		port->high_water_bytes = queue_after;
}

/* Write the path into six bits that nothing else uses, unless an earlier switch has. The ICRC takes
 * byte 4 of the BTH as all ones (InfiniBand Architecture Specification, annex A17), so it stays
 * valid; a UDP checksum, where the sender computed one, has to follow.
 */
static __always_inline void stamp_path(struct __sk_buff *skb, const struct frame *frame,
				       __u8 path_stamp)
{
	__u32 offset = frame->transport_offset;
	__u8 byte = frame->stamp_byte;
	__u8 stamped = byte | (path_stamp & PATH_STAMP);

	if (!frame->has_flow || byte & PATH_STAMP || stamped == byte)
		return;
	if (frame->transport.udp.checksum)
		bpf_l4_csum_replace(skb, offset + 6, bpf_htons(byte << 8), bpf_htons(stamped << 8),
				    BPF_F_MARK_MANGLED_0 | 2);
	bpf_skb_store_bytes(skb, offset + frame->stamp_offset, &stamped, 1, 0);
}

/* What becomes of a packet that is to join the queue of a port. */
__noinline int judge(struct __sk_buff *skb, __u32 port_number, const struct frame *frame,
		     const struct wire *wire)
{
	const struct port_config *config = bpf_map_lookup_elem(&port_configs, &port_number);
	struct port *port = bpf_map_lookup_elem(&ports, &port_number);
	enum drop_reason reason;
	struct flow_port *flow;
	__u64 class_after;

	if (!port || !config || !frame || !wire)
		return ADMITTED;
	flow = find_flow(port, port_number, frame);
	if (flow) {
		add(&flow->offered_packets, wire->packets);
		add(&flow->offered_bytes, wire->bytes);
	}
	class_after = wire->bytes;
	class_after += is_control(frame) ? control_queue_bytes(port) : data_queue_bytes(port);
	reason = admit(port, config, frame, wire, class_after);
	if (reason == TO_BE_TRIMMED) {
		if (!trim(skb, config, frame)) {
			count_trimmed(port, config, flow, frame, wire);
			return reason;
		}
		reason = QUEUE_LIMIT;
	}
	if (reason != ADMITTED) {
		count_dropped(port, flow, named(reason, frame), wire);
	} else if (!is_control(frame) && is_ecn_capable(frame) && must_mark(config, class_after)) {
		set_traffic_class(skb, frame, frame->dscp << 2 | CE);
		count_marked(port, flow, wire);
	}
	return reason;
}

SEC("tc")
int port_egress(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex, port_number = ifindex - ifindex_base;
	struct port *port = bpf_map_lookup_elem(&ports, &port_number);
	struct port_config *config = bpf_map_lookup_elem(&port_configs, &port_number);
	struct frame frame;
	struct wire wire;
	int reason;

	if (!port || !config)
		return TC_ACT_OK;
	read_wire(skb, &wire);
	read_network(skb, wire.tag_bytes, &frame);
	read_rdma(skb, &frame);
	if (skb->mark == TRIMMED_MARK && is_control(&frame)) {
		skb->mark = 0;
	} else {
		reason = judge(skb, port_number, &frame, &wire);
		if (reason == TO_BE_TRIMMED) {
			skb->mark = TRIMMED_MARK;
			return bpf_redirect(ifindex, 0);
		}
		/* A packet socket's ring sends again what it is told was not sent: a drop that
		 * the sender must not know of looks like success (tpacket_snd, af_packet.c).
		 */
		if (reason == BLACKHOLE || reason == FAULT_LOSS || reason == NO_CARRIER)
			return TC_ACT_STOLEN;
		if (reason != ADMITTED)
			return TC_ACT_SHOT;
	}
	count_enqueued(port, &frame, &wire);
	count_load(port, config, wire.bytes);
	stamp_path(skb, &frame, config->path_stamp);
	skb->priority = is_control(&frame) ? control_classid : data_classid;
	return TC_ACT_OK;
}

/* Count the packet out of the queue of the port at the other end; that port, or NULL. */
static __always_inline struct port *depart(struct __sk_buff *skb, __u32 port_number,
					   struct wire *wire, struct frame *frame)
{
	__u32 peer = port_number ^ 1;
	struct port *port = bpf_map_lookup_elem(&ports, &peer);

	if (port) {
		read_wire(skb, wire);
		read_network(skb, wire->tag_bytes, frame);
		add(&port->departed_bytes, wire->bytes);
		add(&port->departed_packets, wire->packets);
		if (is_control(frame))
			add(&port->control_departed_bytes, wire->bytes);
		if (frame->is_routing) {
			add(&port->routing_departed_packets, wire->packets);
			add(&port->routing_departed_bytes, wire->bytes);
		}
	}
	return port;
}

SEC("tc")
int port_ingress(struct __sk_buff *skb)
{
	struct frame frame;
	struct wire wire;

	depart(skb, skb->ifindex - ifindex_base, &wire, &frame);
	return TC_ACT_OK;
}

/* Take an advert of the switch at the other end out of the packet stream. */
static __always_inline int take_advert(struct __sk_buff *skb, struct port *sender,
				       struct switch_counters *counters, __u32 port_number,
				       const struct frame *frame)
{
	add(&sender->advert_departed_packets, 1);
	if (keep_advert(skb, port_number, frame->transport_offset))
		add(&counters->adverts_refused, 1);
	else
		add(&counters->adverts_received, 1);
	return TC_ACT_SHOT;
}

/* The group of equal next hops to a leaf; 0 where there is nothing to choose. */
static __always_inline __u32 find_route(__u32 switch_number, __u32 leaf)
{
	__u32 index = switch_number * leaf_count + leaf;
	const __u32 *route = bpf_map_lookup_elem(&routes, &index);
	const struct group *group;

	if (!route || !*route)
		return 0;
	group = group_of(*route);
	return group && group->size > 1 ? *route : 0;
}

/* Forward a packet by the switch's policy, or leave it to the kernel: where there is one way only
 * without a word, where there might be more it counts.
 */
static __always_inline int balance(struct __sk_buff *skb, __u32 switch_number,
				   const struct switch_config *policy,
				   struct switch_counters *counters, const struct frame *frame,
				   const struct wire *wire)
{
	__u32 length = frame->version == 4 ? sizeof(struct ipv4_header) : IPV6_HEADER_BYTES;
	__u32 transport_ports, leaf, route, port_number;
	union network ip = {};

	if (!frame->version || bpf_skb_load_bytes(skb, ETH_HLEN, &ip, length))
		goto fallback;
	leaf = leaf_of(&ip, frame, policy->plane);
	if (leaf >= leaf_count)
		goto fallback;
	route = find_route(switch_number, leaf);
	if (!route)
		return TC_ACT_OK;
	if (!is_plain(&ip, frame, wire) ||
	    bpf_skb_load_bytes(skb, frame->transport_offset, &transport_ports,
			       sizeof(transport_ports)))
		goto fallback;
	port_number = choose_port(switch_number, leaf, route,
				  flow_hash(&ip, frame, transport_ports, policy->hash_seed));
	if (port_number == NO_PORT)
		goto fallback;
	add(&counters->balanced, wire->packets);
	return forward(skb, &ip, frame, port_number);
fallback:
	add(&counters->fallbacks, 1);
	return TC_ACT_OK;
}

SEC("tc")
int switch_ingress(struct __sk_buff *skb)
{
	__u32 switch_number, port_number = skb->ifindex - ifindex_base;
	struct port_config *config = bpf_map_lookup_elem(&port_configs, &port_number);
	struct switch_counters *counters;
	struct switch_config *policy;
	struct port *sender;
	struct frame frame;
	struct wire wire;

	sender = depart(skb, port_number, &wire, &frame);
	if (!sender || !config)
		return TC_ACT_OK;
	switch_number = config->switch_number;
	policy = bpf_map_lookup_elem(&switch_configs, &switch_number);
	counters = bpf_map_lookup_elem(&switch_counters, &switch_number);
	if (!policy || !counters)
		return TC_ACT_OK;
	if (is_control(&frame)) {
		read_rdma(skb, &frame);
		if (frame.is_advert)
			return take_advert(skb, sender, counters, port_number, &frame);
	}
	if (policy->mode == KERNEL || skb->pkt_type != PACKET_HOST)
		return TC_ACT_OK;
	return balance(skb, switch_number, policy, counters, &frame, &wire);
}

/* The host's packet ring has its copy by now; UDP would answer with "port unreachable". */
SEC("tc")
int host_ingress(struct __sk_buff *skb)
{
	__u32 port_number = skb->ifindex - ifindex_base;
	struct frame frame;
	struct wire wire;
	struct port *port = depart(skb, port_number, &wire, &frame);

	if (!port)
		return TC_ACT_OK;
	read_rdma(skb, &frame);
	if (!frame.is_rdma)
		return TC_ACT_OK;
	add(&port->delivered_bytes, wire.bytes);
	add(&port->delivered_packets, wire.packets);
	return TC_ACT_SHOT;
}

/* A packet socket's filter answers with the bytes to keep: all, or none. A trimmed packet has lost
 * its ICRC with its payload.
 */
SEC("socket")
int nic_receive(struct __sk_buff *skb)
{
	__u32 port_number = (skb->ifindex - ifindex_base) ^ 1;
	struct port *sender = bpf_map_lookup_elem(&ports, &port_number);
	__u32 all = skb->len;
	struct frame frame;

	read_network(skb, 0, &frame);
	read_rdma(skb, &frame);
	if (!sender || !frame.is_rdma ||
	    frame.transport.udp.destination != bpf_htons(ROCE_UDP_PORT) ||
	    trimmed_dscps >> (frame.dscp & 0x3f) & 1)
		return all;
	if (frame.has_flow && has_right_icrc(skb, &frame))
		return all;
	add(&sender->icrc_errors, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
