/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Whether a received RoCEv2 frame ends in the invariant CRC that it should (InfiniBand Architecture
 * Specification, annex A17.3.3).
 *
 * Behind the send time a payload is one byte over and over, and what that does to a CRC is known
 * beforehand. So the CRC of most frames is told from their headers; only where that is not what
 * the frame says, or where payloads are not to be trusted, are all bytes read.
 */
#pragma once

#include "maps.h"
#include "packet.h"

#define ICRC_BYTES 4
#define IPV4_HEADER_BYTES 20
#define CRC_POLYNOMIAL 0xedb88320
#define PIECE_BYTES 32			/* holds all extension headers and the send time */
#define STRETCH_BYTES 1024
#define FRAME_MOST 0x10000

/* The CRC after four more bytes. */
static __always_inline __u32 add_word(const struct icrc_tables *tables, __u32 crc, __u32 word)
{
	__u32 sum = 0;

	crc ^= word;
	for (int i = 0; i < 8; i++)
		sum ^= tables->nibble[i * 16 + (crc >> i * 4 & 15)];
	return sum;
}

static __always_inline const struct icrc_tables *find_tables(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&icrc_tables, &first);
}

/* Go on over some bytes of the frame, a multiple of four and at most PIECE_BYTES. */
__noinline __u32 add_piece(struct __sk_buff *skb, __u32 at, __u32 bytes, __u32 crc)
{
	const struct icrc_tables *tables = find_tables();
	__u32 words[PIECE_BYTES / 4];

	if (!tables || bytes < 4 || bytes > PIECE_BYTES ||
	    bpf_skb_load_bytes(skb, at, words, bytes))
		return crc;
	for (int i = 0; i < PIECE_BYTES / 4 && i * 4 < bytes; i++)
		crc = add_word(tables, crc, words[i]);
	return crc;
}

/* Go on over the bytes of the frame up to an end, a multiple of four and at most STRETCH_BYTES. */
__noinline __u32 add_stretch(struct __sk_buff *skb, __u32 at, __u32 end, __u32 crc)
{
	for (int i = 0; i < STRETCH_BYTES / PIECE_BYTES && at < end; i++, at += PIECE_BYTES)
		crc = add_piece(skb, at, end - at < PIECE_BYTES ? end - at : PIECE_BYTES, crc);
	return crc;
}

/* The same of any number of bytes that is a multiple of four. */
__noinline __u32 add_bytes(struct __sk_buff *skb, __u32 at, __u32 end, __u32 crc)
{
	for (int i = 0; i < FRAME_MOST / STRETCH_BYTES && at < end; i++, at += STRETCH_BYTES)
		crc = add_stretch(skb, at, end, crc);
	return crc;
}

/* The product of two polynomials modulo the CRC's, the highest power in the lowest bit. */
__noinline __u32 product(__u32 a, __u32 b)
{
	__u32 sum = 0;

#pragma nounroll
	for (int i = 0; i < 32; i++) {
		sum ^= b & -(a >> 31);
		a <<= 1;
		b = b >> 1 ^ (CRC_POLYNOMIAL & -(b & 1));
	}
	return sum;
}

/* Go on over as many bytes of payload without a look at them: 2^k bytes are one product, and mostly
 * their number is near a power of two. So it is taken as a sum of few powers with signs, those of
 * its non-adjacent form: 3n and n differ where it has one, and n has the sign.
 */
__noinline __u32 add_payload(__u32 bytes, __u32 crc)
{
	const struct icrc_tables *tables = find_tables();
	__u32 thrice = bytes * 3, digits = (thrice ^ bytes) >> 1, negative = bytes >> 1 & digits;

	if (!tables)
		return crc;
#pragma nounroll
	for (int i = 0; i < PAYLOAD_POWERS; i++) {
		const struct payload_power *power = &tables->powers[i];

		if (!(digits >> i & 1))
			continue;
		if (negative >> i & 1)
			crc = product(crc ^ power->filled, power->back);
		else
			crc = product(crc, power->forth) ^ power->filled;
	}
	return crc;
}

/* Go on over the headers up to the BTH; what may change on the way counts as ones. */
__noinline __u32 add_headers(struct __sk_buff *skb, const struct frame *frame, __u32 crc)
{
	const struct icrc_tables *tables = find_tables();
	__u32 network_words[IPV6_HEADER_BYTES / 4], transport_words[5], length;
	__u8 *ip = (__u8 *)network_words, *transport = (__u8 *)transport_words;

	if (!tables || !frame)
		return crc;
	length = frame->version == 4 ? IPV4_HEADER_BYTES : IPV6_HEADER_BYTES;
	if (bpf_skb_load_bytes(skb, ETH_HLEN, ip, length))
		return crc;
	if (frame->version == 4) {
		ip[1] = 0xff;			/* type of service */
		ip[8] = 0xff;			/* time to live */
		ip[10] = ip[11] = 0xff;		/* checksum */
	} else {
		ip[0] |= 0x0f;			/* traffic class and flow label */
		ip[1] = ip[2] = ip[3] = 0xff;
		ip[7] = 0xff;			/* hop limit */
	}
	for (int i = 0; i < IPV6_HEADER_BYTES / 4 && i * 4 < length; i++)
		crc = add_word(tables, crc, network_words[i]);
	__builtin_memcpy(transport_words, &frame->transport, sizeof(transport_words));
	transport[6] = transport[7] = 0xff;	/* UDP checksum */
	transport[ROCE_STAMP_OFFSET] = 0xff;
	for (int i = 0; i < 5; i++)
		crc = add_word(tables, crc, transport_words[i]);
	return crc;
}

/* Of a frame whose headers are whole as far as the BTH. */
static __always_inline int has_right_icrc(struct __sk_buff *skb, const struct frame *frame)
{
	__u32 at = frame->transport_offset + sizeof(frame->transport);
	__u32 end = frame->transport_offset + bpf_ntohs(frame->transport.udp.length) - ICRC_BYTES;
	const struct icrc_tables *tables = find_tables();
	__u32 crc, found, piece;

	if (!tables || end < at || (end - at) & 3 ||
	    bpf_skb_load_bytes(skb, end, &found, sizeof(found)))
		return 0;
	piece = end - at < PIECE_BYTES ? end - at : PIECE_BYTES;
	crc = add_piece(skb, at, piece, add_headers(skb, frame, tables->start));
	at += piece;
	if (!check_payloads && ~add_payload(end - at, crc) == found)
		return 1;
	return ~add_bytes(skb, at, end, crc) == found;
}
