"""Whether a driver's module has a hook at all, told from its source: asking a new interpreter takes a second."""

import ast
import importlib.util
from pathlib import Path


def offers(driver: str, hook: str) -> bool:
    """Return whether the source of `driver` (`module` or `module:Class`) defines or imports the name `hook`.

    The module itself is not imported: its SDK lives in another environment. True when there is no source to read.
    """
    spec = importlib.util.find_spec(driver.partition(":")[0])
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return True
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    return any(hook in _names(node) for node in ast.walk(tree)) or _takes_everything(tree)


def _names(node: ast.AST) -> tuple[str | None, ...]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return (node.name,)
    if isinstance(node, ast.alias):
        return (node.asname or node.name,)
    return (node.id,) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else ()


def _takes_everything(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.alias) and node.name == "*" for node in ast.walk(tree))
