/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Reading a frame. bpf_skb_load_bytes checks every access against the real length and reads
 * through page fragments: a frame sent from a packet ring has only its Ethernet header in the
 * linear area. The lengths in the packet's own headers are never used to find anything.
 *
 * Here and elsewhere, functions that are not static are verified once, by themselves, with any
 * arguments, and not again for every call on every path: a program of many small decisions would
 * take the verifier longer than the fabric takes to build. Their pointers may be NULL for all that
 * the verifier knows.
 */
#pragma once

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "constants.h"

#define ROCE_UDP_PORT 4791
#define UET_UDP_PORT 4793
#define ROCE_STAMP_OFFSET 12		/* from the UDP header: BTH byte 4, which no ICRC covers */
#define UET_STAMP_OFFSET 20		/* the congestion control context, which nothing covers */
#define UET_HEADER_BYTES 16		/* packet delivery and congestion control */
#define ADVERT_UDP_PORT 1021		/* for experiments: RFC 4727, section 6.1 */
#define IPV6_HEADER_BYTES 40
#define UDP_HEADER_BYTES 8
#define VLAN_TAG_BYTES 4
#define NO_DSCP 0xff			/* not IP: equal to no DSCP */
#define ECN_BITS 3
#define IPV4_FRAGMENT 0x3fff		/* "more fragments" and the fragment offset */
#define PATH_STAMP 0x3f		/* the six reserved bits beside FECN and BECN */
#define LINK_LOCAL 0xfe80		/* fe80::/10 */
#define LINK_LOCAL_MASK 0xffc0

/* The Ethernet header and as much of the IP header as is needed. */
struct network_headers {
	__u8 addresses[12];
	__be16 ethertype;
	union {
		struct {
			__u8 version_length;
			__u8 traffic_class;
			__be16 total_length;
			__be16 identification;
			__be16 fragment;
			__u8 time_to_live;
			__u8 protocol;
		} v4;
		struct {
			__be16 version_class;	/* version 4, traffic class 8, flow label 4 of 20 */
			__be16 flow_label;
			__be16 payload_length;
			__u8 next_header;
			__u8 hop_limit;
			__be16 source;		/* its first two bytes */
		} v6;
	};
};
_Static_assert(sizeof(struct network_headers) == 24, "IP does not start at byte 14");

struct udp_header {
	__be16 source;
	__be16 destination;
	__be16 length;
	__be16 checksum;
};

/* InfiniBand base transport header: the first header in RoCEv2's UDP payload. */
struct bth_header {
	__u8 opcode;
	__u8 flags;
	__be16 partition_key;
	__be32 destination_qp;		/* FECN 1, BECN 1, reserved 6, queue pair 24 */
	__be32 sequence;
};
_Static_assert(sizeof(struct udp_header) + sizeof(struct bth_header) == 20, "UDP + BTH");

/* What the programs want to know of a frame. */
struct frame {
	__u32 transport_offset;		/* 0: not an unfragmented IP packet */
	__u8 version;			/* 4, 6, or 0: not IP */
	__u8 protocol;
	__u8 dscp;
	__u8 ecn;
	__u8 is_routing;		/* BGP, BFD, neighbour discovery: never leaves its link */
	__u8 is_rdma;			/* UDP to port 4791 (RoCEv2) or 4793 (Ultra Ethernet) */
	__u8 is_advert;			/* UDP to port 1021 in the control class */
	__u8 has_flow;			/* with headers that tell its flow, as follows */
	__u8 header_bytes;		/* of those headers, behind UDP */
	__u8 stamp_offset;		/* from the UDP header: the byte that carries the path stamp */
	__u8 stamp_byte;
	__u32 flow_number;		/* destination queue pair or packet delivery context */
	struct {
		struct udp_header udp;
		struct bth_header bth;
	} transport;
};

/* What a buffer amounts to on the wire. Local TCP hands down several segments at once and GRO
 * merges received ones, so one end of a link can see one buffer where the other sees many; and
 * the receiving end moves a VLAN tag out of the frame. Both ends must count the same.
 */
struct wire {
	__u64 bytes;
	__u32 packets;
	__u32 buffer_bytes;		/* of the frame that stands for them */
	__u32 tag_bytes;		/* VLAN tag kept beside the frame */
};

/* Whether an IPv6 packet's source says that it never leaves its link: a link-local address, or none
 * yet. BGP's sessions, BFD, router and neighbour discovery have such; no host's data has.
 */
static __always_inline __u8 is_link_local(__be16 source)
{
	return !source || (source & bpf_htons(LINK_LOCAL_MASK)) == bpf_htons(LINK_LOCAL);
}

/* Find the transport header. A tagged frame is not parsed: a routed fabric has none. */
__noinline int read_network(struct __sk_buff *skb, __u32 tag_bytes, struct frame *frame)
{
	struct network_headers headers;

	if (!frame)
		return 0;
	frame->transport_offset = 0;
	frame->version = 0;
	frame->protocol = 0;
	frame->dscp = NO_DSCP;
	frame->ecn = 0;
	frame->is_routing = 0;
	if (tag_bytes || bpf_skb_load_bytes(skb, 0, &headers, sizeof(headers)))
		return 0;
	if (headers.ethertype == bpf_htons(ETH_P_IP)) {
		__u32 header_bytes = (headers.v4.version_length & 0x0f) * 4;

		frame->version = 4;
		frame->dscp = headers.v4.traffic_class >> 2;
		frame->ecn = headers.v4.traffic_class & ECN_BITS;
		frame->protocol = headers.v4.protocol;
		if (header_bytes >= 20 && !(headers.v4.fragment & bpf_htons(IPV4_FRAGMENT)))
			frame->transport_offset = ETH_HLEN + header_bytes;
	} else if (headers.ethertype == bpf_htons(ETH_P_IPV6)) {
		frame->version = 6;
		frame->dscp = (bpf_ntohs(headers.v6.version_class) >> 6) & 0x3f;
		frame->ecn = (bpf_ntohs(headers.v6.version_class) >> 4) & ECN_BITS;
		frame->protocol = headers.v6.next_header;
		frame->is_routing = is_link_local(headers.v6.source);
		frame->transport_offset = ETH_HLEN + IPV6_HEADER_BYTES;
	}
	return 0;
}

static __always_inline __u8 is_control(const struct frame *frame)
{
	if (frame->is_routing)
		return 1;
	return frame->version && control_dscps >> (frame->dscp & 0x3f) & 1;
}

/* Tell the flow of a RoCEv2 packet, or of an Ultra Ethernet packet: its header has the packet
 * delivery context of the destination where a BTH has the low half of its last word.
 */
static __always_inline void read_flow(struct __sk_buff *skb, struct frame *frame)
{
	if (frame->transport.udp.destination == bpf_htons(ROCE_UDP_PORT)) {
		frame->has_flow = 1;
		frame->header_bytes = sizeof(frame->transport.bth);
		frame->stamp_offset = ROCE_STAMP_OFFSET;
		frame->stamp_byte = bpf_ntohl(frame->transport.bth.destination_qp) >> 24;
		frame->flow_number = bpf_ntohl(frame->transport.bth.destination_qp) & 0xffffff;
		return;
	}
	if (bpf_ntohs(frame->transport.udp.length) < UDP_HEADER_BYTES + UET_HEADER_BYTES)
		return;
	if (bpf_skb_load_bytes(skb, frame->transport_offset + UET_STAMP_OFFSET,
			       &frame->stamp_byte, 1))
		return;
	frame->has_flow = 1;
	frame->header_bytes = UET_HEADER_BYTES;
	frame->stamp_offset = UET_STAMP_OFFSET;
	frame->flow_number = bpf_ntohl(frame->transport.bth.sequence) & 0xffff;
}

/* Read the UDP header and, where there is one, the header that tells the flow; after
 * read_network.
 */
__noinline int read_rdma(struct __sk_buff *skb, struct frame *frame)
{
	__be16 destination;
	__u8 whole = 0;
	__u32 offset;

	if (!frame)
		return 0;
	offset = frame->transport_offset;
	frame->is_rdma = 0;
	frame->is_advert = 0;
	frame->has_flow = 0;
	if (!offset || frame->protocol != IPPROTO_UDP)
		return 0;
	if (!bpf_skb_load_bytes(skb, offset, &frame->transport, sizeof(frame->transport)))
		/* A UDP packet that says it is shorter ends in Ethernet padding, not in a BTH. */
		whole = bpf_ntohs(frame->transport.udp.length) >= sizeof(frame->transport);
	else if (bpf_skb_load_bytes(skb, offset, &frame->transport.udp, UDP_HEADER_BYTES))
		return 0;
	destination = frame->transport.udp.destination;
	frame->is_rdma = destination == bpf_htons(ROCE_UDP_PORT) ||
			 destination == bpf_htons(UET_UDP_PORT);
	frame->is_advert = is_control(frame) && destination == bpf_htons(ADVERT_UDP_PORT);
	if (whole && frame->is_rdma)
		read_flow(skb, frame);
	return 0;
}

/* The bytes before the payload, which every segment repeats. */
static __always_inline __u32 header_bytes(struct __sk_buff *skb, __u32 tag_bytes)
{
	struct frame frame;
	__u8 data_offset;

	read_network(skb, tag_bytes, &frame);
	if (!frame.transport_offset)
		return 0;
	if (frame.protocol != IPPROTO_TCP)
		return frame.transport_offset + UDP_HEADER_BYTES;
	if (bpf_skb_load_bytes(skb, frame.transport_offset + 12, &data_offset, 1))
		return 0;
	return frame.transport_offset + (data_offset >> 4) * 4;
}

/* Each field of the context is read in one place only: clang 14 keeps the address of a field that
 * is read in two, and the verifier allows no arithmetic on the context.
 */
__noinline int read_wire(struct __sk_buff *skb, struct wire *wire)
{
	if (!wire)
		return 0;
	wire->tag_bytes = skb->vlan_present ? VLAN_TAG_BYTES : 0;
	wire->packets = 1;
	wire->buffer_bytes = skb->len;
	wire->bytes = wire->buffer_bytes + wire->tag_bytes;
	if (skb->gso_size && skb->gso_segs > 1) {
		wire->packets = skb->gso_segs;
		wire->bytes += (__u64)(wire->packets - 1) *
			       (header_bytes(skb, wire->tag_bytes) + wire->tag_bytes);
	}
	return 0;
}
