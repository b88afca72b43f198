"""Tables, figures and pages made from results. Reads files; measures nothing."""

from seamark.report.pages import write_report
from seamark.report.terminal import summary_table

__all__ = ["summary_table", "write_report"]
