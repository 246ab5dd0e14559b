/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Choosing one of equal next hops: by quality, at random, in turn; per flowlet or per packet. */
#pragma once

#include "advert.h"
#include "load.h"
#include "queue.h"

#define NO_PORT 0xffffffffu
#define QUALITY_BITS 7
#define STALE 8		/* beside a quality or, in the upper half, a port: an advert was missing */

/* What a choice depends on. */
struct choice {
	const struct switch_config *policy;
	struct switch_counters *counters;
	__u32 switch_number;
	__u32 leaf;		/* destination, from 0 */
	__u32 route;		/* number of the group, from 1 */
	__u64 now_ns;
};

static __always_inline __u8 is_alive(__u32 port_number)
{
	const struct port_config *config = bpf_map_lookup_elem(&port_configs, &port_number);

	return config && !config->dead;
}

static __always_inline const struct group *group_of(__u32 route)
{
	__u32 index = route - 1;

	return bpf_map_lookup_elem(&groups, &index);
}

/* The quality of the path beyond a port: the worse of its own and, where adverts count, of what the
 * other end says; with STALE where it has not said anything lately; -1: not to be used.
 */
__noinline int path_quality(__u32 port_number, __u32 leaf, __u64 ageing_ns, __u64 now_ns)
{
	const struct port_config *config = bpf_map_lookup_elem(&port_configs, &port_number);
	const struct port *port = bpf_map_lookup_elem(&ports, &port_number);
	int local, remote;

	if (!config || !port || config->dead)
		return -1;
	local = port_quality(port, config, queue_bytes(port), now_ns);
	if (!ageing_ns)
		return local;
	remote = remote_quality(port_number, leaf, ageing_ns, now_ns);
	if (remote < 0)
		return local | STALE;
	return remote < local ? remote : local;
}

/* The port of the best quality; with adverts that are too old to count, STALE in the upper half.
 * Each port gets a random number below its quality, from one draw, so that ties are broken evenly.
 */
__noinline __u64 best_port(__u32 route, __u32 leaf, __u64 ageing_ns, __u64 now_ns)
{
	const struct group *group = group_of(route);
	__u32 draw = bpf_get_prandom_u32(), best = 0, found = NO_PORT;
	__u64 is_stale = 0;

	if (!group)
		return NO_PORT;
	for (__u32 i = 0; i < GROUP_PORTS && i < group->size; i++) {
		int quality = path_quality(group->ports[i], leaf, ageing_ns, now_ns);
		__u32 key = (draw ^ (i + 1) * 0x9e3779b1) * 0x85ebca6b;

		if (quality < 0)
			continue;
		is_stale |= quality & STALE;
		key = (__u32)((quality & QUALITY_BITS) + 1) << 28 | (key ^ key >> 15) >> 4;
		if (key > best) {
			best = key;
			found = group->ports[i];
		}
	}
	return is_stale << 32 | found;
}

/* Any port, each as likely. A dead one is drawn again; if luck runs out, there is none. */
__noinline __u32 random_port(__u32 route)
{
	const struct group *group = group_of(route);

	for (__u32 i = 0; i < GROUP_PORTS && group && group->size; i++) {
		__u32 place = (__u64)bpf_get_prandom_u32() * group->size >> 32;
		__u32 port_number = group->ports[place % GROUP_PORTS];

		if (is_alive(port_number))
			return port_number;
	}
	return NO_PORT;
}

/* The next port in turn. A dead one passes its turn on, so that the others stay even. */
__noinline __u32 next_port(__u32 route)
{
	const struct group *group = group_of(route);
	__u32 index = route - 1;
	__u64 *turn = bpf_map_lookup_elem(&turns, &index);

	for (__u32 i = 0; i < GROUP_PORTS && group && turn && group->size; i++) {
		__u32 place = __sync_fetch_and_add(turn, 1) % group->size;
		__u32 port_number = group->ports[place % GROUP_PORTS];

		if (is_alive(port_number))
			return port_number;
	}
	return NO_PORT;
}

static __always_inline struct flowlet *find_flowlet(const struct choice *choice, __u32 hash)
{
	__u32 entries = choice->policy->table_entries, index;

	if (entries > flowlet_entries)
		entries = flowlet_entries;
	index = choice->switch_number * flowlet_entries + ((__u64)hash * entries >> 32);
	return bpf_map_lookup_elem(&flowlets, &index);
}

/* A flowlet goes on unless a gap, or a port gone dead, ends it; fixed ones take no notice of gaps. */
static __always_inline __u8 goes_on(struct flowlet *flowlet, const struct choice *choice, __u8 fixed)
{
	/* The clocks of two processors may differ a little: that is no gap. */
	__s64 gap_ns = choice->now_ns - flowlet->last_ns;

	flowlet->last_ns = choice->now_ns;
	return flowlet->route == choice->route &&
	       (fixed || gap_ns <= (__s64)choice->policy->flowlet_gap_ns) &&
	       is_alive(flowlet->port);
}

static __always_inline void begin_flowlet(struct flowlet *flowlet, const struct choice *choice,
					  __u32 port_number)
{
	add(&choice->counters->flowlets, 1);
	if (flowlet->route == choice->route && flowlet->port != port_number)
		add(&choice->counters->reassignments, 1);
	flowlet->port = port_number;
	flowlet->route = choice->route;
}

static __always_inline __u32 choose_by_quality(const struct choice *choice)
{
	__u64 found = best_port(choice->route, choice->leaf, choice->policy->advert_ageing_ns,
				choice->now_ns);

	if (found >> 32)
		add(&choice->counters->stale, 1);
	return found;
}

static __always_inline __u32 choose_for_flowlet(const struct choice *choice, __u32 hash,
						enum balancing_mode mode)
{
	struct flowlet *flowlet = find_flowlet(choice, hash);
	__u32 port_number;

	if (!flowlet)
		return NO_PORT;
	if (goes_on(flowlet, choice, mode == FIXED))
		return flowlet->port;
	port_number = mode == FLOWLET_RANDOM ? random_port(choice->route) :
					       choose_by_quality(choice);
	if (port_number != NO_PORT)
		begin_flowlet(flowlet, choice, port_number);
	return port_number;
}

/* The port for a packet of this hash to a leaf; NO_PORT when all are dead. */
__noinline __u32 choose_port(__u32 switch_number, __u32 leaf, __u32 route, __u32 hash)
{
	struct choice choice = {
		.policy = bpf_map_lookup_elem(&switch_configs, &switch_number),
		.counters = bpf_map_lookup_elem(&switch_counters, &switch_number),
		.switch_number = switch_number,
		.leaf = leaf,
		.route = route,
	};
	enum balancing_mode mode;

	if (!choice.policy || !choice.counters)
		return NO_PORT;
	mode = choice.policy->mode;
	choice.now_ns = bpf_ktime_get_ns();
	switch (mode) {
	case KERNEL:
		return NO_PORT;
	case ROUND_ROBIN:
		return next_port(route);
	case PER_PACKET_RANDOM:
		return random_port(route);
	case PER_PACKET_QUALITY:
		return choose_by_quality(&choice);
	case FLOWLET_QUALITY:
	case FLOWLET_RANDOM:
	case FIXED:
		return choose_for_flowlet(&choice, hash, mode);
	}
	return NO_PORT;
}
