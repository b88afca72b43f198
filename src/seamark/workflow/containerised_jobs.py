"""Loads in containers started by Snakemake: their image, the PATH shim of Apptainer, and the command inside.

`<image>/loads/bin/python isolated_main.py seamark.workflow.containerised_jobs OWNER CHECKOUT JOB ARGS...` runs a
function of rules_api.py there.
"""

import importlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from shlex import join, quote

from seamark.errors import SiteError, UserError
from seamark.planning.study import Study
from seamark.platform.container import engine
from seamark.platform.fork_server.client import ISOLATED_MAIN
from seamark.services.images.study_images import StudyImages
from seamark.services.runtimes.containers import INSIDE, PACKAGES
from seamark.services.supervisor.node_locks import node_folder
from seamark.storage.codec import encode
from seamark.storage.documents import write_text
from seamark.storage.paths import expanded
from seamark.telemetry.provenance.software import CHECKOUT, git

PYTHON = INSIDE / "loads" / "bin" / "python"
POLL_S = 0.5
NAME = "apptainer"
COMMAND = """\
#!/bin/sh
# Apptainer as Snakemake calls it for a load: after the site's modules, and with what the load needs bound in.
own={folder}
path=:$PATH:
while case $path in *":$own:"*) ;; *) false ;; esac; do
    path=${{path%%":$own:"*}}:${{path#*":$own:"}}
done
path=${{path#:}}
PATH=${{path%:}}
export PATH
case "$1 $2" in
    "exec --contain"*) exec apptainer "$@" ;;  # Seamark's call: a server, or a worker
    --version*) {engine} "$@" {or_else} ; exit ;;
esac
export APPTAINER_BINDPATH={binds}
exec {engine} "$@"
"""


def image_of(study: Study, scenario: str, deployment: str) -> str:
    """Return the image in which the loads of a deployment run as a whole."""
    image = StudyImages(study=study).of_job(study.deployment(scenario, deployment))
    assert image is not None
    return str(image.path)


def require_jobs_images(study: Study) -> None:
    """Raise UserError if the site does not run loads in images, SiteError if one is missing."""
    if not study.site.images.jobs:
        raise UserError(
            f"site '{study.site_name}': its loads have no image for Snakemake to run them in. Write"
            " 'images: {jobs: true}' into the site, and make it with `bench prepare`; or leave"
            " --software-deployment-method out."
        )
    if study.site.carrier != "local":
        raise UserError(
            f"site '{study.site_name}': 'carrier: {study.site.carrier}' starts workers outside of the container that"
            " a load with 'images: {jobs: true}' runs in. Write 'images: {client: true}' instead."
        )
    images = StudyImages(study=study)
    found = map(images.of_job, study.plan.deployments)
    if missing := dict.fromkeys(str(image.path) for image in found if image is not None and not image.exists()):
        raise SiteError(
            f"{', '.join(missing)}: the image that loads run in is not there. Make it:"
            f" bench prepare -c {study.scenario_path} --site {study.site_name}"
        )


def install_apptainer_shim(study: Study) -> None:
    """Write a PATH shim for `apptainer` and put its folder first in the PATH of this process and of its children.

    Snakemake calls `apptainer` by name, without the modules of a site and the binds of a load. Raises SiteError if
    there is neither Apptainer nor a module that provides it.
    """
    shims = study.root.resolve() / ".seamark" / "bin"
    scratch = expanded(study.site.paths.scratch, study.root)
    for folder in (scratch, study.results):
        folder.mkdir(parents=True, exist_ok=True)
    open_to = [study.root, study.results, scratch, *PACKAGES, Path(tempfile.gettempdir())]
    open_to += [study.data] if study.data.is_dir() else []
    open_to += [node_folder()]  # a load in a container takes the node's lock like any other
    open_to += [(study.root / study.scenario_path).parent, *map(study.file, ("config", "containers", "envs"))]
    binds = dict.fromkeys(str(path.resolve()) for path in open_to)
    images = f"{StudyImages(study=study).folder}:{StudyImages(study=study).folder}:ro"
    # with modules, Snakemake's machine may have no Apptainer: its jobs load theirs
    or_else = "|| echo apptainer version 1.0.0" if study.site.modules else ""
    text = COMMAND.format(
        folder=quote(str(shims)),
        engine=join(engine(study.site, ())),
        binds=quote(",".join([*binds, images, *map(os.path.expandvars, study.plan.binds)])),
        or_else=or_else,
    )
    write_text(shims / NAME, text)
    (shims / NAME).chmod(0o755)
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join([str(shims), *(entry for entry in path if Path(entry) != shims)])


def container_command(study: Study, job: str) -> list[str]:
    """Return the command that runs a job in its image; it ends when this process, Snakemake, has ended."""
    return [
        str(PYTHON),
        ISOLATED_MAIN,
        "seamark.workflow.containerised_jobs",
        str(os.getpid()),
        json.dumps(encode(git(study.root))),
        job,
    ]


def main(argv: list[str]) -> int:
    """Run the function `seamark.workflow.rules_api:JOB`: `OWNER CHECKOUT JOB ARGS...`."""
    owner, checkout, job, *arguments = argv
    os.environ[CHECKOUT] = checkout
    threading.Thread(target=_go_with, args=(int(owner),), daemon=True).start()
    getattr(importlib.import_module("seamark.workflow.rules_api"), job)(*arguments)
    return 0


def _go_with(owner: int) -> None:
    """End this process when its run has ended: its parent, the container's own process, does not notice."""
    while Path(f"/proc/{owner}").exists():
        time.sleep(POLL_S)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
