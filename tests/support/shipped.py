"""The scenarios, recipes and sites that ship. What a user adds beside them is no matter of these tests."""

import json
from pathlib import Path
from types import MappingProxyType

from seamark.config.read import Recipes

ROOT = Path(__file__).resolve().parents[2]
RECORDED = json.loads((ROOT / "tests" / "fingerprint.json").read_text(encoding="utf-8"))
SCENARIOS = [ROOT / "config" / "scenarios" / name for name in RECORDED["scenarios"]]
SITES = [ROOT / "config" / "sites" / f"{name}.yaml" for name in RECORDED["sites"]]
_RECIPES = Recipes(ROOT / "config" / "services")
SERVICES = MappingProxyType({name: _RECIPES[name] for name in RECORDED["services"]})
