"""What tests of containers stand on: a real Apptainer, a base of this machine's Python, studies on such a site."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from in_process import ended
from once import alone

from seamark.planning.study import Study
from seamark.services.images.images import Image

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CACHE = Path(os.environ.get("SEAMARK_CACHE") or Path.home() / ".cache" / "seamark")
CLUSTER = CACHE / "cluster"
BENCH = Path(sys.executable).parent / "bench"


def why_no_apptainer() -> str | None:
    """Install Apptainer if it is not there; return why tests cannot have it, None when they can."""
    done = subprocess.run([HERE / "install_apptainer.sh"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return f"no Apptainer: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'unknown'}"
    ran = subprocess.run(["unshare", "--map-root-user", "true"], capture_output=True, text=True, check=False)
    return None if ran.returncode == 0 else "no Apptainer: this kernel gives users no namespaces"


def python_base() -> Path:
    """Return the root of a small system with this Python, made on first use."""
    folder = CLUSTER / f"python-base-{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"
    with alone(folder):
        if not folder.is_dir():
            unfinished = folder.with_name(f".{folder.name}.{os.getpid()}")
            shutil.rmtree(unfinished, ignore_errors=True)
            subprocess.run([sys.executable, HERE / "python_base.py", unfinished], check=True)
            unfinished.rename(folder)
    return folder


@dataclass(frozen=True, kw_only=True)
class Boxed:
    """A study in a folder of its own whose sites run containers. Recipes are the shipped ones and a test's."""

    root: Path

    def site(self, name: str = "boxes", *, containers: Path | None = None, **images: Any) -> None:
        """Write a site: images are built on this machine's Python, and kept from one test run to the next."""
        kept = containers or CLUSTER / "images"
        settings = {"build": ["postgres", "triton"], "base": str(python_base()), **images}
        document = {
            "name": name,
            "summary": "containers of this machine",
            "runtime": "apptainer",
            "paths": {"containers": str(kept), "environments": str(CACHE / "envs")},
            "images": settings,
        }
        (self.root / "config" / "sites" / f"{name}.yaml").write_text(yaml.safe_dump(document))

    def scenario(self, *services: str, **more: Any) -> str:
        """Write a scenario of a second's load on each service; return its file."""
        document = {
            "scenario": "boxed",
            "repetitions": 1,
            "defaults": {"duration_s": 1.0, "warmup_s": 0.3},
            "workloads": [{"name": name, "service": name, "concurrency": [2]} for name in services],
            **more,
        }
        (self.root / "boxed.yaml").write_text(yaml.safe_dump(document))
        return "boxed.yaml"

    def study(self, site: str = "boxes") -> Study:
        return Study.at(self.root, scenario="boxed.yaml", site=site)

    def study_of(self, *services: str) -> Study:
        """Return the study with a scenario of these services."""
        self.scenario(*services)
        return self.study()

    def bench(
        self,
        *words: str,
        before: tuple[str, ...] = (),
        environment: dict[str, str] | None = None,
        code: int | None = None,
    ) -> "subprocess.CompletedProcess[str]":
        """Call `bench` in the study, which ends with the `code` that is given; `before` are words in front of it."""
        command = [*before, str(BENCH), *words]
        variables = {**os.environ, "COLUMNS": "200", **(environment or {})}
        done = subprocess.run(
            command, cwd=self.root, env=variables, capture_output=True, text=True, timeout=600, check=False
        )
        return ended(done, code)

    def image(self, service: str) -> Image:
        """Return the image that a shipped service is served from, made if it is not there."""
        from seamark.services.images.prepare import prepare
        from seamark.services.images.study_images import StudyImages

        study = self.study_of(service)
        failed = [step.why for step in prepare(study) if step.state == "failed"]
        assert failed == []
        image = StudyImages(study=study).of_server(study.plan.deployments[0])
        assert image is not None
        return image


def boxed(root: Path) -> Boxed:
    """Make a study with the shipped recipes."""
    for name in ("config/services", "config/sites"):
        shutil.copytree(ROOT / name, root / name)
    study = Boxed(root=root)
    study.site()
    return study
