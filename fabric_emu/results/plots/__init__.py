"""The plots of a report, each made from results alone and drawn by plotly in the page."""

from __future__ import annotations
