"""Runs a module of seamark in a service's own environment, without the other packages of this environment.

Called as `<environment>/bin/python <this file> MODULE ARGS...`; MODULE's `main(argv)` returns the exit code. The
package is loaded from its folder, so a service keeps its own versions of libraries.
"""

import importlib
import importlib.util
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent


def load_packages() -> None:
    """Make `seamark` and its own plugins importable, without the packages beside them."""
    for folder in (PACKAGE, *(path.parent for path in PACKAGE.parent.glob("seamark_*/plugin.py"))):
        spec = importlib.util.spec_from_file_location(
            folder.name, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None
        assert spec.loader is not None
        package = importlib.util.module_from_spec(spec)
        sys.modules[folder.name] = package
        spec.loader.exec_module(package)


if __name__ == "__main__":
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]
    load_packages()
    sys.exit(importlib.import_module(sys.argv[1]).main(sys.argv[2:]))
