/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What is fixed before the programs are loaded. User space sets these by name in the object's
 * read-only data, so that the verifier sees them as constants.
 */
#pragma once

#include <linux/types.h>

/* A port's number is its interface index less this base; the two ends of a link differ in the
 * last bit of the number, so the other end of port k is k ^ 1.
 */
const volatile __u32 ifindex_base = 0;
const volatile __u32 port_count = 0;

/* A flow's number is the destination queue pair of its packets less this base. */
const volatile __u32 qpn_base = 0;
const volatile __u32 flow_count = 0;

/* The DSCPs that put a packet into the control class, one bit each, and the two classes as the
 * shaper numbers them (major << 16 | minor): HTB takes a skb->priority that names one of its
 * classes as the choice of that class.
 */
const volatile __u64 control_dscps = 0;
const volatile __u32 control_classid = 0;
const volatile __u32 data_classid = 0;

/* The DSCPs of packets that switches have trimmed, one bit each. */
const volatile __u64 trimmed_dscps = 0;

/* Whether NICs read payloads to the last byte, or take them for what NICs send. */
const volatile __u8 check_payloads = 0;

/* The address plan: a plane's leaves, numbered from 1, and the low bits of an IPv4 host address
 * that number the host on its leaf.
 */
const volatile __u32 leaf_count = 0;
const volatile __u32 host_bits = 0;

/* Flowlets that each switch has memory for. */
const volatile __u32 flowlet_entries = 0;

/* Adverts that it takes to tell the qualities of leaf_count leaves. */
const volatile __u32 advert_blocks = 0;
