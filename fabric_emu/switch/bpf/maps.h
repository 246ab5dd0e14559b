/* SPDX-License-Identifier: GPL-2.0-or-later */
/* One set of maps for all ports of a fabric. User space sets the sizes before loading and maps
 * the memory, so that it reads counters and changes behaviour without a system call.
 */
#pragma once

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "structures.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);		/* port_count */
	__type(key, __u32);		/* port */
	__type(value, struct port);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);		/* port_count */
	__type(key, __u32);		/* port */
	__type(value, struct port_config);
} port_configs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);		/* flow_count * port_count */
	__type(key, __u32);		/* flow * port_count + port */
	__type(value, struct flow_port);
} flow_ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct icrc_tables);
} icrc_tables SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);		/* switches */
	__type(key, __u32);		/* switch */
	__type(value, struct switch_config);
} switch_configs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);		/* switches */
	__type(key, __u32);		/* switch */
	__type(value, struct switch_counters);
} switch_counters SEC(".maps");

/* The way to each leaf: the number of a group, from 1; 0 leaves it to the kernel, and so does a
 * group of fewer than two ports.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);		/* switches * leaf_count */
	__type(key, __u32);		/* switch * leaf_count + leaf, from 0 */
	__type(value, __u32);
} routes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);		/* group, from 0 */
	__type(value, struct group);
} groups SEC(".maps");

/* Whose turn it is: packets sent round robin over each group. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);		/* as groups */
	__type(key, __u32);
	__type(value, __u64);
} turns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);		/* switches * flowlet_entries */
	__type(key, __u32);		/* switch * flowlet_entries + entry */
	__type(value, struct flowlet);
} flowlets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);		/* port_count * advert_blocks */
	__type(key, __u32);		/* port * advert_blocks + leaf / ADVERT_LEAVES */
	__type(value, struct advert);
} adverts SEC(".maps");
