/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the programs and user space share. ports.py mirrors every structure; it compares names,
 * offsets and sizes with this object's BTF when it opens the maps.
 */
#pragma once

#include <linux/types.h>

/* Why a packet went no further. Each port counts packets and bytes per reason. */
enum drop_reason {
	QUEUE_LIMIT,	/* it would have made the queue longer than drop_at_bytes */
	FAULT_LOSS,	/* the fault "lossy link" took it */
	BLACKHOLE,	/* the fault "black hole" took it */
	CONTROL_LIMIT,	/* the control class was full */
	LINK_DOWN,	/* it was in the queue of a link that went down; only user space counts these */
	DROP_REASONS = 8,
	ADMITTED = DROP_REASONS,
};

/* The counters of one port: written by the programs alone, but for the LINK_DOWN entries. */
struct port {
	__u64 enqueued_bytes;		/* admitted at this port's egress */
	__u64 enqueued_packets;
	__u64 high_water_bytes;		/* longest the queue has been */
	__u64 unknown_flow_packets;	/* RoCE, but of no flow of this run */
	__u64 marked_packets;		/* reserved: set to CE */
	__u64 trimmed_packets;		/* reserved: cut to a header */
	__u64 departed_bytes;		/* seen by the other end of the link */
	__u64 departed_packets;
	__u64 delivered_bytes;		/* RoCE packets that the host at the other end took */
	__u64 delivered_packets;
	__u64 dropped_packets[DROP_REASONS];
	__u64 dropped_bytes[DROP_REASONS];
};
_Static_assert(sizeof(struct port) == (10 + 2 * DROP_REASONS) * 8, "struct port has holes");

/* How one port behaves: written by user space alone, at any time. */
struct port_config {
	__u64 drop_at_bytes;	/* 0: no limit */
	__u32 loss_per_million;	/* 0 to 1,000,000 */
	__u8 path_stamp;	/* 1 to 63, or 0: do not stamp */
	__u8 blackhole;		/* not 0: drop everything */
	__u8 padding[2];
};
_Static_assert(sizeof(struct port_config) == 16, "struct port_config has holes");

/* What one flow asked of one port's egress. */
struct flow_port {
	__u64 offered_packets;	/* with those dropped */
	__u64 offered_bytes;
	__u64 dropped_packets;
	__u64 dropped_bytes;
};
_Static_assert(sizeof(struct flow_port) == 32, "struct flow_port has holes");
