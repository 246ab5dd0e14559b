"""Slots of rings, with an array in the place of the kernel's memory."""

from __future__ import annotations

import numpy as np
import pytest

from fabric_emu.nic import rings
from fabric_emu.nic.ring import AVAILABLE, FRAME_OFFSET, HEADER_BYTES, SEND_REQUEST, USER

HEADER = 20
SLOTS = 4


class Memory:
    """Rings of zeros."""

    def __init__(self, count: int, slot_bytes: int = 256) -> None:
        self.bytes = np.zeros((count, SLOTS, slot_bytes), np.uint8)
        self.halves, self.words = self.bytes.view(np.uint16), self.bytes.view(np.uint32)
        self.head = np.zeros(count, np.int64)

    @property
    def status(self) -> np.ndarray:
        return self.words[..., 0]


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 8, 40])
def test_slots_get_their_payload_back_whatever_its_size(size: int) -> None:
    draw = np.random.default_rng(size)
    memory, payload = Memory(1), draw.integers(0, 256, size, np.uint8)
    full = HEADER + size + 4
    memory.bytes[..., FRAME_OFFSET + HEADER : FRAME_OFFSET + HEADER + size] = payload
    stray = np.zeros((1, SLOTS), np.int64)
    for _ in range(60):
        lengths = draw.choice(np.arange(HEADER - 2, full + 1), draw.integers(1, SLOTS + 1))
        headers = draw.integers(0, 256, (len(lengths), HEADER), np.uint8)
        tails = draw.integers(0, 256, (len(lengths), 4), np.uint8)
        first, ring = int(memory.head[0]), np.zeros(len(lengths), np.int64)
        busy = rings._put(
            memory.bytes, memory.halves, memory.words, memory.head, stray, payload,
            ring, headers, lengths, tails, full,
        )  # fmt: skip
        assert busy.tolist() == [0]
        for i, length in enumerate(lengths.tolist()):
            slot = memory.bytes[0, (first + i) % SLOTS, FRAME_OFFSET:]
            whole = headers[i].tobytes() + payload.tobytes()
            assert slot[:length].tobytes() == whole[: length - 4] + tails[i].tobytes()
            assert not slot[full:].any()


def test_frames_are_queued_at_their_rings_until_the_kernel_lets_them_go() -> None:
    memory, tail = Memory(4), np.zeros(4, np.int64)
    payload = np.zeros(100, np.uint8)

    def put(ring: list[int]) -> list[int]:
        n = len(ring)
        return rings._put(
            memory.bytes, memory.halves, memory.words, memory.head, np.zeros((4, SLOTS), np.int64),
            payload, np.array(ring, np.int64), np.zeros((n, HEADER), np.uint8), np.full(n, 124),
            np.zeros((n, 4), np.uint8), 124,
        ).tolist()  # fmt: skip

    def queued() -> list[int]:
        return rings._queued(memory.words, memory.head, tail).tolist()

    assert put([]) == []
    assert put([0, 0, 0, 2, 3]) == [0, 2, 3]
    assert queued() == [3, 0, 1, 1]
    # Out of order they stay in the queue: the one before them is still there.
    memory.status[0, 1:3] = AVAILABLE
    memory.status[3, 0] = AVAILABLE
    assert queued() == [3, 0, 1, 0]
    memory.status[0, 0] = AVAILABLE
    assert queued() == [0, 0, 1, 0]
    assert put([0, 0, 0, 0]) == [0]
    assert queued() == [4, 0, 1, 0]
    assert (memory.status[0] == SEND_REQUEST).all()


def test_what_has_arrived_is_taken_up_to_the_first_empty_slot() -> None:
    memory, draw = Memory(3), np.random.default_rng(2)
    memory.bytes[:] = draw.integers(0, 256, memory.bytes.shape, np.uint8)
    memory.halves[..., 6] = 66
    memory.words[..., 1] = np.arange(3 * SLOTS).reshape(3, SLOTS)
    memory.words[..., 4:6] = 7, 999_999_999
    memory.head[:] = 3, 8, 6

    def take() -> tuple[np.ndarray, ...]:
        return rings._take(memory.bytes, memory.halves, memory.words, memory.head)

    # The ring that is full; one with nothing in it; one with a gap behind its second.
    memory.status[:] = AVAILABLE
    memory.status[0] = USER | 1 << 29
    memory.status[2, [2, 3, 1]] = USER
    at, headers, lengths, arrival_ns = take()
    assert at.tolist() == [0, 0, 0, 0, 2, 2]
    assert lengths.tolist() == [3, 0, 1, 2, 10, 11]
    rows = memory.bytes[at, lengths % SLOTS, 66 : 66 + HEADER_BYTES]
    assert headers.tobytes() == rows.tobytes()
    assert arrival_ns.tolist() == [7_999_999_999] * 6
    assert memory.head.tolist() == [7, 8, 8]
    assert memory.status.tolist() == [[0] * 4, [0] * 4, [0, USER, 0, 0]]
    assert [len(column) for column in take()] == [0] * 4
