"""Results for the eye: tables for the terminal, progress, and a self-contained HTML page."""

from allocator.report.html import render_report, write_report
from allocator.report.progress import policy_progress
from allocator.report.terminal import allocation_table, comparison_table

__all__ = ["allocation_table", "comparison_table", "policy_progress", "render_report", "write_report"]
