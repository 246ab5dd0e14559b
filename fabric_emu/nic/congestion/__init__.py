"""Congestion control of NICs, over all queue pairs of a worker at a time.

Rate: ``dcqcn.Dcqcn`` with its ``pacer.Pacer``. Window: ``nscc.Nscc``. Receiver credit:
``rccc.CreditScheduler`` and ``rccc_account.CreditAccount``. None does input or output or asks for
the time.
"""
