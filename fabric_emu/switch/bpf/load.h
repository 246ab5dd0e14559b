/* SPDX-License-Identifier: GPL-2.0-or-later */
/* A port's load and quality.
 *
 * The load is a discounting rate estimator (Alizadeh et al., CONGA, SIGCOMM 2014, section 3.2): a
 * register gains the bytes of every packet and loses 2^-load_shift of itself each tick, so that it
 * settles near rate * tick * 2^load_shift. The ticks that have passed are made up for when somebody
 * looks. That is the exponentially weighted average of SAI's ARS profile, sampled every tick.
 */
#pragma once

#include "maps.h"

#define FULL_SHARE 1024		/* of a share in fixed point */
#define BEST_QUALITY 7		/* of the eight bands 0 to 7, as Juniper numbers them */
#define TICK_BITS 13

/* What `ticks` leave of the load: the factor (1 - 2^-shift)^ticks by squaring, in 16-bit fixed
 * point. After 2^TICK_BITS ticks nothing worth counting is left, with shifts up to 9.
 */
__noinline __u64 discounted(__u64 load, __u64 ticks, __u32 shift)
{
	__u64 factor = 0x10000 - (0x10000 >> (shift & 15));

	if (ticks >> TICK_BITS)
		return 0;
	for (int bit = 0; bit < TICK_BITS && ticks; bit++) {
		if (ticks & 1)
			load = load * factor >> 16;
		factor = factor * factor >> 16;
		ticks >>= 1;
	}
	return load;
}

static __always_inline __u64 ticks_since(const struct port *port, __u64 tick)
{
	__u64 last = port->load_tick;

	return tick > last ? tick - last : 0;
}

static __always_inline void count_load(struct port *port, const struct port_config *config,
				       __u64 bytes)
{
	__u64 tick_ns = config->load_tick_ns, tick, last, load;

	if (!tick_ns)
		return;
	tick = bpf_ktime_get_ns() / tick_ns;
	last = port->load_tick;
	/* Of several processors one does the discount. A tick before the last one can only mean
	 * that the length of ticks was changed.
	 */
	if (tick != last && __sync_val_compare_and_swap(&port->load_tick, last, tick) == last &&
	    tick > last) {
		load = port->load_bytes;
		__sync_fetch_and_add(&port->load_bytes,
				     discounted(load, tick - last, config->load_shift) - load);
	}
	__sync_fetch_and_add(&port->load_bytes, bytes);
}

/* Where a value stands between two bounds, in parts of FULL_SHARE. */
static __always_inline __u64 share_between(__u64 value, __u64 low, __u64 high)
{
	if (value <= low)
		return 0;
	if (value >= high)
		return FULL_SHARE;
	return (value - low) * FULL_SHARE / (high - low);
}

/* The quality of a port, 7 to 0, by load and queue. */
static __always_inline __u32 port_quality(const struct port *port, const struct port_config *config,
					  __u64 queue_bytes, __u64 now_ns)
{
	__u64 tick_ns = config->load_tick_ns, load = 0, queue, full;

	if (tick_ns) {
		load = discounted(port->load_bytes, ticks_since(port, now_ns / tick_ns),
				  config->load_shift);
		load = share_between(load, config->load_low_bytes, config->load_high_bytes);
	}
	queue = share_between(queue_bytes, config->queue_low_bytes, config->queue_high_bytes);
	full = (load * config->load_weight + queue * config->queue_weight) >> 8;
	return full >= FULL_SHARE ? 0 : BEST_QUALITY - full * (BEST_QUALITY + 1) / FULL_SHARE;
}
