// SPDX-License-Identifier: GPL-2.0-or-later
/* The port table: three tc clsact programs (direct action) for the veth ends of a fabric.
 *
 *   port_egress    every end, egress: queue limit, faults, counters, path stamp, shaping class
 *   port_ingress   a switch's end, ingress: the packet has left the queue of the other end
 *   host_ingress   a host's end, ingress: the same, and RoCE packets end here
 *
 * A port's queue is what was enqueued at its egress and has not yet been seen at the other end,
 * wherever the kernel keeps it: shaper, driver ring or backlog.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "constants.h"
#include "maps.h"
#include "packet.h"

static __always_inline void add(__u64 *counter, __u64 amount)
{
	__sync_fetch_and_add(counter, amount);
}

static __always_inline __u64 queue_bytes(const struct port *port)
{
	__s64 depth = port->enqueued_bytes - port->departed_bytes - port->dropped_bytes[LINK_DOWN];

	/* Read one after the other while others count: may come out just below nothing. */
	return depth > 0 ? depth : 0;
}

static __always_inline struct flow_port *find_flow(struct port *port, __u32 port_number,
						   const struct frame *frame)
{
	__u32 flow, index;

	if (!frame->has_bth)
		return NULL;
	flow = (bpf_ntohl(frame->transport.bth.destination_qp) & 0xffffff) - qpn_base;
	if (flow >= flow_count) {
		add(&port->unknown_flow_packets, 1);
		return NULL;
	}
	index = flow * port_count + port_number;
	return bpf_map_lookup_elem(&flow_ports, &index);
}

static __always_inline enum drop_reason admit(const struct port_config *config, __u64 queue_after)
{
	__u32 loss_per_million = config->loss_per_million;
	__u64 drop_at_bytes = config->drop_at_bytes;

	if (config->blackhole)
		return BLACKHOLE;
	if (loss_per_million && ((__u64)bpf_get_prandom_u32() * 1000000 >> 32) < loss_per_million)
		return FAULT_LOSS;
	if (drop_at_bytes && queue_after > drop_at_bytes)
		return QUEUE_LIMIT;
	return ADMITTED;
}

static __always_inline void count_enqueued(struct port *port, const struct wire *wire,
					   __u64 queue_after)
{
	add(&port->enqueued_packets, wire->packets);
	add(&port->enqueued_bytes, wire->bytes);
	if (queue_after > port->high_water_bytes)
		port->high_water_bytes = queue_after;
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

/* Write the path into the BTH's reserved bits, unless an earlier switch has. The ICRC takes that
 * byte as all ones (InfiniBand Architecture Specification, annex A17), so it stays valid; a UDP
 * checksum, where the sender computed one, has to follow.
 */
static __always_inline void stamp_path(struct __sk_buff *skb, const struct frame *frame,
				       __u8 path_stamp)
{
	__u32 offset = frame->transport_offset;
	__u8 byte = bpf_ntohl(frame->transport.bth.destination_qp) >> 24;
	__u8 stamped = byte | (path_stamp & BTH_RESERVED);

	if (!frame->has_bth || byte & BTH_RESERVED || stamped == byte)
		return;
	if (frame->transport.udp.checksum)
		bpf_l4_csum_replace(skb, offset + 6, bpf_htons(byte << 8), bpf_htons(stamped << 8),
				    BPF_F_MARK_MANGLED_0 | 2);
	bpf_skb_store_bytes(skb, offset + UDP_HEADER_BYTES + 4, &stamped, 1, 0);
}

SEC("tc")
int port_egress(struct __sk_buff *skb)
{
	__u32 port_number = skb->ifindex - ifindex_base;
	struct port *port = bpf_map_lookup_elem(&ports, &port_number);
	struct port_config *config = bpf_map_lookup_elem(&port_configs, &port_number);
	enum drop_reason reason;
	struct flow_port *flow;
	struct frame frame;
	struct wire wire;
	__u64 queue_after;

	if (!port || !config)
		return TC_ACT_OK;
	read_wire(skb, &wire);
	read_network(skb, &wire, &frame);
	read_roce(skb, &frame);
	flow = find_flow(port, port_number, &frame);
	if (flow) {
		add(&flow->offered_packets, wire.packets);
		add(&flow->offered_bytes, wire.bytes);
	}
	queue_after = queue_bytes(port) + wire.bytes;
	reason = admit(config, queue_after);
	if (reason != ADMITTED) {
		count_dropped(port, flow, reason, &wire);
		return TC_ACT_SHOT;
	}
	count_enqueued(port, &wire, queue_after);
	stamp_path(skb, &frame, config->path_stamp);
	skb->priority = frame.dscp == control_dscp ? control_classid : data_classid;
	return TC_ACT_OK;
}

/* Count the packet out of the queue of the port at the other end; that port, or NULL. */
static __always_inline struct port *depart(struct __sk_buff *skb, struct wire *wire)
{
	__u32 port_number = (skb->ifindex - ifindex_base) ^ 1;
	struct port *port = bpf_map_lookup_elem(&ports, &port_number);

	if (port) {
		read_wire(skb, wire);
		add(&port->departed_bytes, wire->bytes);
		add(&port->departed_packets, wire->packets);
	}
	return port;
}

SEC("tc")
int port_ingress(struct __sk_buff *skb)
{
	struct wire wire;

	depart(skb, &wire);
	return TC_ACT_OK;
}

/* The host's packet ring has its copy by now; UDP would answer with "port unreachable". */
SEC("tc")
int host_ingress(struct __sk_buff *skb)
{
	struct wire wire;
	struct port *port = depart(skb, &wire);
	struct frame frame;

	if (!port)
		return TC_ACT_OK;
	read_network(skb, &wire, &frame);
	read_roce(skb, &frame);
	if (!frame.is_roce)
		return TC_ACT_OK;
	add(&port->delivered_bytes, wire.bytes);
	add(&port->delivered_packets, wire.packets);
	return TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "GPL";
