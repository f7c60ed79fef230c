"""Several figures in one PDF."""

from __future__ import annotations

import io
from typing import Any

from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure

from .plot_layout import METADATA, plot_settings


class PdfBook:
    """A PDF with a figure on each page: fonts are cut to size once for all of them, which takes longer than drawing."""

    def __init__(self) -> None:
        self._stream = io.BytesIO()
        with plot_settings():
            self._pages: Any = PdfPages(self._stream, metadata=METADATA["pdf"])
        self.count = 0

    def add(self, figure: Figure) -> int:
        """Draw the figure on a page of its own. Returns the page's number, from 1."""
        with plot_settings():
            self._pages.savefig(figure)
        self.count += 1
        return self.count

    def close(self) -> bytes:
        """Bytes of the file: the same for the same figures, on any day."""
        self._pages.close()
        return self._stream.getvalue()
