"""What test_export_llmd.py asks of llmd-benchmark-report, in an environment of its own. Every answer is JSON."""

from typing import Any

from llmd_benchmark_report import import_benchmark_report
from llmd_benchmark_report.native_to_br0_2 import import_guidellm, import_vllm_benchmark

CONVERTERS = {"vllm_bench": import_vllm_benchmark, "guidellm": import_guidellm}


def validated(files: list[str]) -> Any:
    """Read reports by the official validator; give what it says of each that it refuses."""
    refused = {}
    for file in files:
        try:
            import_benchmark_report(file)
        except ValueError as error:
            refused[file] = str(error)
    return refused


def converted(natives: dict[str, str]) -> Any:
    """Give the official report of each tool's native file."""
    return {tool: CONVERTERS[tool](path).dump() for tool, path in natives.items()}
