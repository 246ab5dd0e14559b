/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What the programs and user space share. ports.py and switches.py mirror every structure; they
 * compare names, offsets and sizes with this object's BTF when they open the maps.
 */
#pragma once

#include <linux/types.h>

#define GROUP_PORTS 64		/* equal next hops that a switch can choose from */
#define ADVERT_LEAVES 64	/* leaves that one advert tells of */
#define PAYLOAD_POWERS 17	/* of two, up to the longest frame */

/* Why a packet went no further. Each port counts packets and bytes per reason. */
enum drop_reason {
	QUEUE_LIMIT,	/* it would have made the queue longer than drop_at_bytes */
	FAULT_LOSS,	/* the fault "lossy link" took it */
	BLACKHOLE,	/* the fault "black hole" took it */
	CONTROL_LIMIT,	/* the control class was full */
	LINK_DOWN,	/* it was in the queue of a link that went down; only user space counts these */
	ADVERT_LOST,	/* an advert of a switch, for whatever reason: no host sent it */
	ROUTING_LOST,	/* what routers say to each other, likewise */
	NO_CARRIER,	/* sent into a link that was down */
	DROP_REASONS = 8,
	ADMITTED = DROP_REASONS,
	TO_BE_TRIMMED,
};

/* The counters of one port: written by the programs alone, but for the LINK_DOWN entries and what
 * is written off with them.
 */
struct port {
	__u64 enqueued_bytes;		/* admitted at this port's egress */
	__u64 enqueued_packets;
	__u64 high_water_bytes;		/* longest the queue has been */
	__u64 unknown_flow_packets;	/* RoCE, but of no flow of this run */
	__u64 marked_packets;		/* set to CE */
	__u64 trimmed_packets;		/* cut to a header */
	__u64 trimmed_bytes;		/* cut off */
	__u64 departed_bytes;		/* seen by the other end of the link */
	__u64 departed_packets;
	__u64 delivered_bytes;		/* RoCE packets that the host at the other end took */
	__u64 delivered_packets;
	__u64 icrc_errors;		/* RoCE packets that its NIC refused: a wrong ICRC */
	__u64 control_enqueued_bytes;	/* the part of these that is of the control class */
	__u64 control_departed_bytes;
	__u64 control_written_off_bytes;
	__u64 advert_packets;		/* the part of the enqueued that is adverts */
	__u64 advert_bytes;
	__u64 advert_departed_packets;
	__u64 advert_written_off_packets;
	__u64 routing_packets;		/* the part of the enqueued that routers say to each other */
	__u64 routing_bytes;
	__u64 routing_departed_packets;
	__u64 routing_departed_bytes;
	__u64 routing_written_off_packets;
	__u64 load_bytes;		/* enqueued lately: see load.h */
	__u64 load_tick;		/* when load_bytes was last discounted */
	__u64 dropped_packets[DROP_REASONS];
	__u64 dropped_bytes[DROP_REASONS];
};
_Static_assert(sizeof(struct port) == (26 + 2 * DROP_REASONS) * 8, "struct port has holes");

#define DARK 2

/* How one port behaves: written by user space alone, at any time. */
struct port_config {
	__u64 drop_at_bytes;		/* of the data class; 0: no limit */
	__u64 control_limit_bytes;	/* of the control class; 0: no limit */
	__u64 mark_above_bytes;		/* nothing is marked up to here; 0: nothing at all */
	__u64 mark_all_above_bytes;
	__u64 trim_above_bytes;		/* 0: nothing is trimmed */
	__u64 trimmable_dscps;		/* one bit each */
	__u64 load_tick_ns;		/* 0: the load is not measured */
	__u64 load_low_bytes;		/* load_bytes of a port that counts as idle */
	__u64 load_high_bytes;		/* and of one that counts as full */
	__u64 queue_low_bytes;		/* the same of the queue */
	__u64 queue_high_bytes;
	__u32 mark_per_million;		/* just below mark_all_above_bytes */
	__u32 loss_per_million;		/* 0 to 1,000,000 */
	__u16 trim_to_bytes;
	__u16 load_weight;		/* the two weights make 256 */
	__u16 queue_weight;
	__u16 switch_number;		/* of the switch whose port this is */
	__u8 load_shift;		/* a tick takes 2^-load_shift off the load */
	__u8 trimmed_dscp;
	__u8 path_stamp;		/* 1 to 63, or 0: do not stamp */
	__u8 blackhole;			/* not 0: drop everything */
	__u8 dead;			/* not 0: no policy chooses this port; DARK: and nothing gets out */
	__u8 padding[3];
};
_Static_assert(sizeof(struct port_config) == 112, "struct port_config has holes");

/* What one flow asked of one port's egress. */
struct flow_port {
	__u64 offered_packets;	/* with those dropped and trimmed */
	__u64 offered_bytes;
	__u64 dropped_packets;
	__u64 dropped_bytes;
	__u64 trimmed_packets;
	__u64 marked_packets;
};
_Static_assert(sizeof(struct flow_port) == 48, "struct flow_port has holes");

/* 2^k bytes of payload: the factor that they multiply a CRC with, its inverse, and their own CRC. */
struct payload_power {
	__u32 forth;
	__u32 back;
	__u32 filled;
};
_Static_assert(sizeof(struct payload_power) == 12, "struct payload_power has holes");

/* What CRCs are worked out with; small, because the cache mostly holds other things. */
struct icrc_tables {
	__u32 nibble[8 * 16];	/* what each nibble of a CRC, from the lowest, becomes after 4 bytes */
	__u32 start;		/* the CRC before the IP header */
	struct payload_power powers[PAYLOAD_POWERS];
};
_Static_assert(sizeof(struct icrc_tables) == 516 + 12 * PAYLOAD_POWERS, "holes");

/* How a switch chooses among equal next hops. */
enum balancing_mode {
	KERNEL,			/* it does not: the kernel's hash does */
	FLOWLET_QUALITY,
	FLOWLET_RANDOM,
	PER_PACKET_QUALITY,
	PER_PACKET_RANDOM,
	FIXED,
	ROUND_ROBIN,
};

/* How one switch behaves: written by user space alone, at any time. */
struct switch_config {
	__u64 flowlet_gap_ns;
	__u64 advert_ageing_ns;	/* 0: adverts do not count */
	__u32 table_entries;	/* 1 to flowlet_entries */
	__u32 hash_seed;
	enum balancing_mode mode;
	__u8 plane;
	__u8 padding[3];
};
_Static_assert(sizeof(struct switch_config) == 32, "struct switch_config has holes");

/* What one switch has done. */
struct switch_counters {
	__u64 balanced;		/* packets that the programs forwarded */
	__u64 flowlets;		/* that a port was chosen for */
	__u64 reassignments;	/* those that got another port than the one before */
	__u64 fallbacks;	/* packets left to the kernel although there was a choice, or nobody
				 * could tell */
	__u64 adverts_received;
	__u64 adverts_refused;	/* not understood */
	__u64 stale;		/* choices that lacked a fresh advert */
};
_Static_assert(sizeof(struct switch_counters) == 56, "struct switch_counters has holes");

/* Equal next hops: the ports to choose from. */
struct group {
	__u32 size;
	__u32 ports[GROUP_PORTS];
};
_Static_assert(sizeof(struct group) == 4 + 4 * GROUP_PORTS, "struct group has holes");

/* One entry of a flowlet table: where packets of this hash go. */
struct flowlet {
	__u64 last_ns;		/* when the last one came */
	__u32 port;
	__u32 route;		/* the group that the port was chosen from, from 1; 0: unused */
};
_Static_assert(sizeof(struct flowlet) == 16, "struct flowlet has holes");

/* The last advert that came in by a port: qualities of the paths through the other end. */
struct advert {
	__u64 heard_ns;		/* CLOCK_MONOTONIC; 0: never */
	__u8 quality[ADVERT_LEAVES];
};
_Static_assert(sizeof(struct advert) == 72, "struct advert has holes");
