"""What the product does, timed beside what does the same; ``scripts/bench`` runs it.

Each subject is a module with ``measure(quick, tell)``, which yields rows: ``packets``, ``build``,
``predict``. Everything a row compares ran within the same minute, turn and turn about, and a row
gives medians: machines are noisy, ratios less so.
"""
