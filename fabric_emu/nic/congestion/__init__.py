"""Congestion control of NICs, over all queue pairs of a worker at a time.

Rate: ``Dcqcn`` with its ``Pacer``. Window: ``Nscc``. Receiver credit: ``CreditScheduler`` and
``CreditAccount``. None does input or output or asks for the time.
"""

from fabric_emu.nic.congestion.dcqcn import CnpGate, Dcqcn, DcqcnSettings
from fabric_emu.nic.congestion.nscc import Nscc
from fabric_emu.nic.congestion.nscc_settings import NsccSettings
from fabric_emu.nic.congestion.pacer import Pacer
from fabric_emu.nic.congestion.rccc import CreditScheduler
from fabric_emu.nic.congestion.rccc_account import CreditAccount

__all__ = [
    "CnpGate",
    "CreditAccount",
    "CreditScheduler",
    "Dcqcn",
    "DcqcnSettings",
    "Nscc",
    "NsccSettings",
    "Pacer",
]
