/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Explicit congestion notification (RFC 3168) on the true length of the data class's queue: above
 * one threshold, or between two with a probability that rises as in RED.
 */
#pragma once

#include "maps.h"
#include "rewrite.h"

static __always_inline __u8 is_ecn_capable(const struct frame *frame)
{
	return frame->version && (frame->ecn == 1 || frame->ecn == 2);
}

static __always_inline __u8 per_million(__u64 chance)
{
	return ((__u64)bpf_get_prandom_u32() * 1000000 >> 32) < chance;
}

static __always_inline __u8 must_mark(const struct port_config *config, __u64 queue_after)
{
	__u64 low = config->mark_above_bytes, high = config->mark_all_above_bytes;

	if (!low || queue_after <= low)
		return 0;
	if (queue_after > high)
		return 1;
	return per_million(config->mark_per_million * (queue_after - low) / (high - low));
}
