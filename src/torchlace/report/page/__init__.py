"""One self-contained page about some runs."""

from torchlace.report.page.write import Report, write_report

__all__ = ["Report", "write_report"]
