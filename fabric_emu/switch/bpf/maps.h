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
