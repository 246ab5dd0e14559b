"""Sends frames with scapy's ``sendp``, each with a source port of its own, as scripts do."""

import sys

from scapy.sendrecv import sendp

from fabric_emu.bench.course import frame
from fabric_emu.model.queue_pair import FIRST_SOURCE_PORT


def main(interface: str, payload_bytes: int, packets: int) -> None:
    """Send so many frames; scapy builds each, ICRC and all, when it is sent."""
    frames = [frame(payload_bytes, FIRST_SOURCE_PORT + i, psn=i) for i in range(packets)]
    sendp(frames, iface=interface, verbose=False)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
