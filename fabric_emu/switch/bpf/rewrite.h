/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Changing a frame's headers and the checksums that cover them. */
#pragma once

#include "packet.h"

#define IPV4_CHECKSUM_OFFSET (ETH_HLEN + 10)
#define CE 3

/* Write DSCP and ECN: the second byte of IPv4, half each of the first two of IPv6. */
static __always_inline void set_traffic_class(struct __sk_buff *skb, const struct frame *frame,
					      __u8 traffic_class)
{
	__be16 before, after;

	if (bpf_skb_load_bytes(skb, ETH_HLEN, &before, sizeof(before)))
		return;
	if (frame->version == 4) {
		after = (before & bpf_htons(0xff00)) | bpf_htons(traffic_class);
		bpf_l3_csum_replace(skb, IPV4_CHECKSUM_OFFSET, before, after, sizeof(after));
	} else {
		after = (before & bpf_htons(0xf00f)) | bpf_htons(traffic_class << 4);
	}
	bpf_skb_store_bytes(skb, ETH_HLEN, &after, sizeof(after), 0);
}

/* Write the lengths that a frame of `length` bytes has. */
static __always_inline void set_lengths(struct __sk_buff *skb, const struct frame *frame,
					__u32 length)
{
	__be16 udp[2] = {bpf_htons(length - frame->transport_offset), 0};
	__be16 before, after;

	if (frame->version == 4) {
		if (bpf_skb_load_bytes(skb, ETH_HLEN + 2, &before, sizeof(before)))
			return;
		after = bpf_htons(length - ETH_HLEN);
		bpf_l3_csum_replace(skb, IPV4_CHECKSUM_OFFSET, before, after, sizeof(after));
		bpf_skb_store_bytes(skb, ETH_HLEN + 2, &after, sizeof(after), 0);
	} else {
		after = bpf_htons(length - ETH_HLEN - IPV6_HEADER_BYTES);
		bpf_skb_store_bytes(skb, ETH_HLEN + 4, &after, sizeof(after), 0);
	}
	/* No UDP checksum, over IPv4 or IPv6: the one of the whole packet cannot be mended without
	 * the bytes cut off, RoCEv2 has none anyway, and RFC 6935 allows it over IPv6 to protocols
	 * that check their headers themselves.
	 */
	bpf_skb_store_bytes(skb, frame->transport_offset + 4, udp, sizeof(udp), 0);
}
