"""The scenarios, recipes and sites that ship. What a user adds beside them is no matter of these tests."""

import json
from pathlib import Path

from seamark.config.read import read_services

ROOT = Path(__file__).resolve().parents[2]
RECORDED = json.loads((ROOT / "tests" / "fingerprint.json").read_text(encoding="utf-8"))
SCENARIOS = [ROOT / "config" / "scenarios" / name for name in RECORDED["scenarios"]]
SITES = [ROOT / "config" / "sites" / f"{name}.yaml" for name in RECORDED["sites"]]
_RECIPES = read_services(ROOT / "config" / "services")
SERVICES = {name: _RECIPES[name] for name in RECORDED["services"]}
