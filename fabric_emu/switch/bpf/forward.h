/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Forwarding without the kernel: what a router checks and changes (RFC 1812, section 5.2), for the
 * packets that a policy may choose a next hop for.
 */
#pragma once

#include <linux/if_packet.h>

#include "packet.h"

#define HOST_NETWORK4 10		/* 10.0.0.0/8: plane in 4 bits, leaf, host */
#define HOST_NETWORK6 0xfd00		/* fd00::/16: plane, leaf, ..., host in 16 bits each */
#define MAC_PREFIX 0x02fe

struct ipv4_header {
	__u8 version_length;
	__u8 traffic_class;
	__be16 total_length;
	__be16 identification;
	__be16 fragment;
	__u8 time_to_live;
	__u8 protocol;
	__u16 checksum;
	__be32 source;
	__be32 destination;
};
_Static_assert(sizeof(struct ipv4_header) == 20, "IPv4 header without options");

struct ipv6_header {
	__be32 version_class_label;
	__be16 payload_length;
	__u8 next_header;
	__u8 hop_limit;
	__be16 source[8];
	__be16 destination[8];
};
_Static_assert(sizeof(struct ipv6_header) == IPV6_HEADER_BYTES, "IPv6 header");

/* An IP header in whole words, for its address arithmetic. */
union network {
	struct ipv4_header v4;
	struct ipv6_header v6;
	__u32 words[10];
};

/* The destination's leaf, from 0; at least leaf_count for what is no host of the plane. */
static __always_inline __u32 leaf_of(const union network *ip, const struct frame *frame,
				     __u8 plane)
{
	__u32 address;

	if (frame->version == 4) {
		address = bpf_ntohl(ip->v4.destination);
		if (address >> 20 != (HOST_NETWORK4 << 4 | plane))
			return leaf_count;
		return ((address & 0xfffff) >> host_bits) - 1;
	}
	if (ip->v6.destination[0] != bpf_htons(HOST_NETWORK6) ||
	    ip->v6.destination[1] != bpf_htons(plane))
		return leaf_count;
	return (__u32)bpf_ntohs(ip->v6.destination[2]) - 1;
}

static __always_inline __u8 is_ipv4_sum_right(const union network *ip)
{
	__u64 sum = 0;

	for (int i = 0; i < 5; i++)
		sum += ip->words[i];
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum == 0xffff;
}

/* What only the kernel knows how to handle: options, extension headers, fragments, other transports
 * than UDP and TCP, the end of a time to live, anything that contradicts itself.
 */
static __always_inline __u8 is_plain(const union network *ip, const struct frame *frame,
				     const struct wire *wire)
{
	__u32 after_ethernet = wire->buffer_bytes - ETH_HLEN;

	if (frame->protocol != IPPROTO_UDP && frame->protocol != IPPROTO_TCP)
		return 0;
	if (frame->version == 4)
		return ip->v4.version_length == 0x45 && frame->transport_offset &&
		       ip->v4.time_to_live > 1 && is_ipv4_sum_right(ip) &&
		       bpf_ntohs(ip->v4.total_length) == after_ethernet;
	return (bpf_ntohl(ip->v6.version_class_label) >> 28) == 6 && ip->v6.hop_limit > 1 &&
	       bpf_ntohs(ip->v6.payload_length) == after_ethernet - IPV6_HEADER_BYTES;
}

static __always_inline __u32 mixed(__u32 hash, __u32 word)
{
	word *= 0xcc9e2d51;
	word = (word << 15 | word >> 17) * 0x1b873593;
	hash ^= word;
	return (hash << 13 | hash >> 19) * 5 + 0xe6546b64;
}

/* The hash of the five-tuple (MurmurHash3, 32 bits). */
static __always_inline __u32 flow_hash(const union network *ip, const struct frame *frame,
				       __u32 ports, __u32 seed)
{
	__u32 hash = mixed(mixed(seed, ports), frame->protocol);

	if (frame->version == 4) {
		hash = mixed(mixed(hash, ip->v4.source), ip->v4.destination);
	} else {
		for (int i = 2; i < 10; i++)
			hash = mixed(hash, ip->words[i]);
	}
	hash = (hash ^ hash >> 16) * 0x85ebca6b;
	hash = (hash ^ hash >> 13) * 0xc2b2ae35;
	return hash ^ hash >> 16;
}

/* Send a packet out of a port, as from one router to the next. */
static __always_inline int forward(struct __sk_buff *skb, union network *ip,
				   const struct frame *frame, __u32 port_number)
{
	__u32 peer = port_number ^ 1;
	__be16 addresses[6] = {
		bpf_htons(MAC_PREFIX), bpf_htons(peer >> 16), bpf_htons(peer),
		bpf_htons(MAC_PREFIX), bpf_htons(port_number >> 16), bpf_htons(port_number),
	};

	if (frame->version == 4) {
		/* RFC 1141: the sum of the other words gains what this one loses. */
		__u32 sum = ip->v4.checksum + bpf_htons(0x0100);

		ip->v4.time_to_live--;
		ip->v4.checksum = sum + (sum >= 0xffff);
		bpf_skb_store_bytes(skb, ETH_HLEN + 8, &ip->v4.time_to_live, 4, 0);
	} else {
		ip->v6.hop_limit--;
		bpf_skb_store_bytes(skb, ETH_HLEN + 7, &ip->v6.hop_limit, 1, 0);
	}
	bpf_skb_store_bytes(skb, 0, addresses, sizeof(addresses), 0);
	return bpf_redirect(ifindex_base + port_number, 0);
}
