/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Adverts of global load balancing: what a neighbour says of the paths through it. */
#pragma once

#include "packet.h"
#include "queue.h"

#define ADVERT_MAGIC 0x474c4231		/* "GLB1" */

/* The UDP payload: followed by `leaves` qualities of one byte each. */
struct advert_header {
	__be32 magic;
	__be16 block;		/* of ADVERT_LEAVES leaves */
	__be16 leaves;		/* 1 to ADVERT_LEAVES */
};
_Static_assert(sizeof(struct advert_header) == 8, "struct advert_header has holes");

/* Keep what an advert says, by the port it came from; 0, or -1 if it makes no sense. */
static __always_inline int keep_advert(struct __sk_buff *skb, __u32 port_number, __u32 offset)
{
	struct advert_header header;
	struct advert *advert;
	__u32 block, leaves;

	offset += UDP_HEADER_BYTES;
	if (bpf_skb_load_bytes(skb, offset, &header, sizeof(header)) ||
	    header.magic != bpf_htonl(ADVERT_MAGIC))
		return -1;
	block = bpf_ntohs(header.block);
	leaves = bpf_ntohs(header.leaves);
	if (block >= advert_blocks || leaves < 1 || leaves > ADVERT_LEAVES)
		return -1;
	leaves = (leaves - 1) % ADVERT_LEAVES + 1;	/* says the same in the verifier's terms */
	block += port_number * advert_blocks;
	advert = bpf_map_lookup_elem(&adverts, &block);
	if (!advert ||
	    bpf_skb_load_bytes(skb, offset + sizeof(header), advert->quality, leaves))
		return -1;
	advert->heard_ns = bpf_ktime_get_ns();
	return 0;
}

/* The quality of the path to a leaf beyond a port, as last heard; -1 when that was too long ago. */
static __always_inline int remote_quality(__u32 port_number, __u32 leaf, __u64 ageing_ns,
					  __u64 now_ns)
{
	__u32 index = port_number * advert_blocks + leaf / ADVERT_LEAVES;
	const struct advert *advert = bpf_map_lookup_elem(&adverts, &index);

	if (!advert || !advert->heard_ns || (__s64)(now_ns - advert->heard_ns) > (__s64)ageing_ns)
		return -1;
	return advert->quality[leaf % ADVERT_LEAVES];
}
