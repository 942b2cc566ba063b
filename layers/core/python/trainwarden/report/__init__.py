"""A recorded run as one HTML page that needs nothing else: no scripts, no other files.

``read`` takes what the run recorded, ``Judged`` is what the rules say of it, and ``render`` makes
the page.
"""

from __future__ import annotations

from trainwarden.report.page import render
from trainwarden.report.reading import Recorded, read
from trainwarden.report.values import Judged

__all__ = ["Judged", "Recorded", "read", "render"]
