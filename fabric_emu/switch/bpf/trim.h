/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Trimming: a packet that finds the queue too long goes on as its headers alone, in the control
 * class, so that its receiver learns of the loss at once (Ultra Ethernet specification 1.0, 4.1).
 *
 * The shaper bills a packet by a length that the kernel takes before the egress hook (qdisc_pkt_len
 * in net/core/dev.c, qdisc_pkt_len_init). So the cut packet is marked and sent to the same
 * interface again; it comes by a second time and is counted then, with its new length.
 */
#pragma once

#include "maps.h"
#include "rewrite.h"

#define TRIMMED_MARK 0x7472696d		/* skb->mark between the two visits: "trim" */
#define MINIMUM_UDP_PAYLOAD 16		/* kept of packets whose flow is not told */

/* Bytes left of a packet: never less than the headers that tell its flow and sequence number. */
static __always_inline __u32 kept_bytes(const struct port_config *config, const struct frame *frame)
{
	__u32 payload = frame->has_flow ? frame->header_bytes : MINIMUM_UDP_PAYLOAD;
	__u32 least = frame->transport_offset + UDP_HEADER_BYTES + payload;

	return config->trim_to_bytes > least ? config->trim_to_bytes : least;
}

/* Only UDP, whose lengths are known to follow; a fragment has no transport header here. */
static __always_inline __u8 may_trim(const struct port_config *config, const struct frame *frame,
				     const struct wire *wire)
{
	return config->trim_above_bytes && frame->transport_offset &&
	       frame->protocol == IPPROTO_UDP &&
	       config->trimmable_dscps >> (frame->dscp & 0x3f) & 1 &&
	       wire->packets == 1 && wire->bytes > kept_bytes(config, frame);
}

static __always_inline int trim(struct __sk_buff *skb, const struct port_config *config,
				const struct frame *frame)
{
	__u32 kept = kept_bytes(config, frame);

	if (bpf_skb_change_tail(skb, kept, 0))
		return -1;
	set_lengths(skb, frame, kept);
	set_traffic_class(skb, frame, config->trimmed_dscp << 2 | frame->ecn);
	return 0;
}
