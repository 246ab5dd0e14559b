/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The queue of a port and its two classes: what was enqueued at its egress and has not been seen at
 * the other end, wherever the kernel keeps it: shaper, driver ring or backlog.
 */
#pragma once

#include "maps.h"

static __always_inline void add(__u64 *counter, __u64 amount)
{
	__sync_fetch_and_add(counter, amount);
}

/* Counters are read one after the other while others count: may come out just below nothing. */
static __always_inline __u64 not_negative(__s64 depth)
{
	return depth > 0 ? depth : 0;
}

static __always_inline __s64 control_depth(const struct port *port)
{
	return port->control_enqueued_bytes - port->control_departed_bytes -
	       port->control_written_off_bytes;
}

static __always_inline __s64 depth(const struct port *port)
{
	return port->enqueued_bytes - port->departed_bytes - port->dropped_bytes[LINK_DOWN];
}

static __always_inline __u64 queue_bytes(const struct port *port)
{
	return not_negative(depth(port));
}

static __always_inline __u64 control_queue_bytes(const struct port *port)
{
	return not_negative(control_depth(port));
}

static __always_inline __u64 data_queue_bytes(const struct port *port)
{
	return not_negative(depth(port) - not_negative(control_depth(port)));
}
