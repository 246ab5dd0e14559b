"""Entropy: which UDP source port, and so which path, each packet gets.

All policies follow ``policy.EntropyPolicy``: ``ev_set.EvSet`` (MRC), ``reps.Reps`` and
``oblivious.Oblivious`` (Ultra Ethernet), ``oblivious.RandomEntropy``.
"""
