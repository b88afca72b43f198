"""The command lines that runtimes make, and what a fake `apptainer` on PATH gets of them."""

import json
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from server_bench import HERE, Bench

from seamark.dispatch.placement import Place
from seamark.errors import SiteError, UserError
from seamark.model.service import Container, ResetCall, Server
from seamark.model.site import Site
from seamark.platform.container import with_modules
from seamark.services.images.images import Image, image_file
from seamark.services.runtimes.containers import image_path
from seamark.services.runtimes.runtimes import external_ports, launch_of
from seamark.services.supervisor import deployment as servers
from seamark.services.supervisor.launch_spec import Launch, ProcessSlot
from seamark.storage.documents import write

FAKE_APPTAINER = """#!{python}
import json, os, sys
json.dump(sys.argv[1:], open({record!r}, "w"))
words = sys.argv[2:]
environment = dict(os.environ)
while words[0].startswith("-"):
    option = words.pop(0)
    if option in ("-B", "--env", "--pwd"):
        value = words.pop(0)
        if option == "--env":
            environment.update([value.split("=", 1)])
image, *command = words
open(image).close()
os.execvpe(command[0], command, environment)
"""


@pytest.fixture
def apptainer(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put an `apptainer` on PATH that records its arguments and runs the command where it stands."""
    folder, record = bench.root / "bin", bench.root / "apptainer.json"
    folder.mkdir()
    (folder / "apptainer").write_text(FAKE_APPTAINER.format(python=sys.executable, record=str(record)))
    (folder / "apptainer").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return record


@pytest.fixture
def contained(bench: Bench) -> Bench:
    """A bench whose site runs containers, with an image at its place."""
    image = bench.root / "tiny.sif"
    image.touch()
    container = Container(
        image=str(image),
        binds=("/etc/hosts:/etc/hosts:ro",),
        command=(sys.executable, str(HERE / "tiny_server.py"), "{ports[main]}", "--host", "{host}"),
        environment={"GREETING": "hello {settings[whom]}"},
    )
    return bench.with_service(container=container).with_site(runtime="apptainer")


def image_of(bench: Bench, path: Path) -> Image:
    """Return an image that is a file of somebody's own."""
    return Image(name="tiny", origin="file", source=str(path), digest=None, licence="none", path=path)


def launch(bench: Bench, *, gpus: int = 0, **changes: object) -> Launch:
    container = bench.service.container
    image = image_of(bench, Path(container.image)) if container else None
    spec = bench.spec(**{"image": image, **changes})
    deployment = replace(spec.deployment, gpus=gpus, settings={"whom": "world", "on": True, "none": None})
    slot = ProcessSlot(node="here", host="127.0.0.1", ports={"main": 12345})
    return launch_of(replace(spec, deployment=deployment), slot)


def test_templates_are_filled_as_a_command_line_wants_them(bench: Bench):
    words = ("{settings[on]}", "<{settings[none]}>", "{ports[main]}", "{python}", "{data}", "{{}}")
    command = launch(bench.with_service(server=Server(command=words))).command
    assert command == ("true", "<>", "12345", sys.executable, str(bench.data()), "{}")


@pytest.mark.covers("D8")
def test_a_server_is_started_for_its_reset_call_only_with_the_setting_of_it(bench: Bench):
    def started(setting: str) -> str | None:
        call = ResetCall(path="/reset", setting=setting, environment={"DEV_MODE": "1"})
        return launch(bench.with_service(server=Server(command=("x",), reset_caches=call))).environment.get(
            "DEV_MODE"
        )

    assert (started("on"), started("none")) == ("1", None)


def test_a_setting_that_is_true_or_false_is_a_switch_and_another_is_none(bench: Bench):
    words = ("{switches[on]}", "{switches[so_called]}")
    settings = {"on": True, "so_called": False, "count": 1}
    spec = bench.spec(deployment=replace(bench.deployment(), settings=settings))
    slot = ProcessSlot(node="here", host="127.0.0.1", ports={})

    def filled(*words: str) -> tuple[str, ...]:
        server = Server(command=words)
        return launch_of(replace(spec, service=replace(spec.service, server=server)), slot).command

    assert filled(*words) == ("--on", "--no-so-called")
    with pytest.raises(UserError, match="count"):
        filled("{switches[count]}")


def test_a_setting_that_is_an_object_is_an_option_for_each_entry(bench: Bench):
    settings = {"own": '{"a_b":"{x} y","c":false,"d":1.5}', "none": None}
    server = Server(command=("x", "{options[own]}", "{options[none]}"))
    spec = bench.spec(deployment=replace(bench.deployment(), settings=settings))
    spec = replace(spec, service=replace(spec.service, server=server))
    command = launch_of(spec, ProcessSlot(node="here", host="127.0.0.1", ports={})).command
    assert command == ("x", "--a_b={x} y", "--c=false", "--d=1.5")


def test_a_server_without_gpus_sees_none_and_one_with_two_sees_two(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert launch(bench).environment["CUDA_VISIBLE_DEVICES"] == ""
    assert launch(bench, gpus=2).environment["CUDA_VISIBLE_DEVICES"] == "0,1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert launch(bench, gpus=2).environment["CUDA_VISIBLE_DEVICES"] == "3,5"


@pytest.mark.parametrize(("gpus", "seen"), [(0, ""), (1, "3"), (2, "3,5")])
def test_more_gpus_in_the_environment_than_asked_for_are_hidden(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, gpus: int, seen: str
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, 5,6,7")
    assert launch(bench, gpus=gpus).environment["CUDA_VISIBLE_DEVICES"] == seen


@pytest.mark.parametrize(
    ("gpus", "seen"),
    [
        (0, "--env CUDA_VISIBLE_DEVICES="),
        (1, "--env CUDA_VISIBLE_DEVICES=3"),
        (2, "env APPTAINERENV_CUDA_VISIBLE_DEVICES=3,5"),
    ],
)
def test_a_container_sees_as_many_gpus_as_were_asked_for(
    contained: Bench, apptainer: Path, monkeypatch: pytest.MonkeyPatch, gpus: int, seen: str
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,6,7")
    assert f" {seen} " in f" {' '.join(launch(contained, gpus=gpus).command)} "


def test_a_container_in_a_lane_gets_the_variables_of_its_device(
    contained: Bench, apptainer: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert "OMP_NUM_THREADS" not in " ".join(launch(contained).command)
    monkeypatch.setenv("SEAMARK_DEVICE", '{"kind": "gpu", "id": "3", "slot": 0}')
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    command = " ".join(launch(contained, gpus=1).command)
    assert "OMP_NUM_THREADS=7" in command
    assert "CUDA_VISIBLE_DEVICES=3" in command
    assert "SEAMARK_DEVICE=" in command


def test_a_container_gets_the_threads_and_the_gpus_of_its_place(contained: Bench, apptainer: Path):
    command = " ".join(launch(contained, place=Place(threads=3, gpus=(2,)), gpus=1).command)
    assert "--env CUDA_VISIBLE_DEVICES=2 " in command
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        assert f"--env {name}=3 " in command


@pytest.mark.covers("E-FR05", "E-MR04", "E-MR05")
def test_a_container_gets_binds_environment_image_and_command(contained: Bench, apptainer: Path):
    command = launch(contained, binds=("/srv/data:/data",)).command
    start = command.index("apptainer")  # root is given a user namespace first
    assert command[start + 1 : start + 3] == ("exec", "--containall")
    assert "--nv" not in command
    assert "--writable" not in command
    pairs = list(pairwise(command))
    data = contained.data()
    binds = [value for option, value in pairs if option == "-B"]
    assert binds == [f"{data}:{data}", "/etc/hosts:/etc/hosts:ro", "/srv/data:/data"]
    assert ("--env", "GREETING=hello world") in pairs
    image = command.index(str(contained.root / "tiny.sif"))
    assert command[image + 1 :] == (sys.executable, str(HERE / "tiny_server.py"), "12345", "--host", "127.0.0.1")


@pytest.mark.covers("E-FR05")
@pytest.mark.parametrize("gpus", [0, 1, 4])
def test_nv_is_given_exactly_to_deployments_with_gpus(contained: Bench, apptainer: Path, gpus: int):
    assert ("--nv" in launch(contained, gpus=gpus).command) == (gpus > 0)


@pytest.mark.covers("E-MR03")
@pytest.mark.parametrize("place", ["init", "it's; touch P; echo '", "$(touch P)"])
def test_modules_are_loaded_before_a_command_whatever_their_names_hold(tmp_path: Path, place: str):
    init = tmp_path / place
    init.write_text('module() { echo "$@"; LOADED="$LOADED[$2]"; export LOADED; }\n')
    site = Site(name="here", summary="here", modules=("env/2024.1", "$(touch P)", "a'b c"), module_init=str(init))
    told = with_modules(
        site, ("sh", "-c", 'echo "$LOADED" "$GREETING" "$@"', "x", "--", "it's"), {"GREETING": "a'b,c"}
    )
    done = subprocess.run(told, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        *("load env/2024.1", "load $(touch P)", "load a'b c"),
        "[env/2024.1][$(touch P)][a'b c] a'b,c -- it's",
    ]
    assert not (tmp_path / "P").exists()


@pytest.mark.covers("E-MR03")
def test_a_module_that_cannot_be_loaded_ends_the_command_before_it_starts(tmp_path: Path):
    init = tmp_path / "init"
    init.write_text("module() { return 7; }\n")
    site = Site(name="here", summary="here", modules=("none",), module_init=str(init))
    assert subprocess.run(with_modules(site, ("touch", str(tmp_path / "P")), {}), check=False).returncode == 7
    assert not (tmp_path / "P").exists()


def test_a_variable_that_apptainer_would_split_reaches_the_container_another_way(contained: Bench, apptainer: Path):
    assert contained.service.container is not None
    container = replace(contained.service.container, environment={"LIST": 'a,b "c"'})
    command = launch(contained.with_service(container=container)).command
    assert command[:2] == ("env", 'APPTAINERENV_LIST=a,b "c"')


@pytest.mark.covers("E-FR06", "E-FR13")
def test_a_pinned_image_is_found_by_its_digest_and_a_missing_one_says_how_to_get_it(bench: Bench):
    digest = "sha256:" + "0123456789abcdef" * 4
    wanted = image_file(bench.root / "images", "tiny", digest)
    assert wanted.name == "tiny-0123456789ab.sif"
    image = replace(image_of(bench, wanted), origin="registry", source="docker://docker.io/tiny:1", digest=digest)
    assert image.address == f"docker://docker.io/tiny@{digest}"
    with pytest.raises(SiteError, match="bench prepare --site here"):
        image_path(bench.spec(image=image))
    wanted.parent.mkdir()
    wanted.touch()
    with pytest.raises(SiteError, match="not the image 'tiny' that was prepared"):
        image_path(bench.spec(image=image))
    write(image.record, image.new_record())
    assert image_path(bench.spec(image=image)) == wanted


def test_a_variable_in_an_images_path_that_is_not_set_is_said(contained: Bench):
    with pytest.raises(SiteError, match="NOWHERE"):
        image_path(contained.spec(image=image_of(contained, Path("$NOWHERE/own.sif"))))


def test_a_recipe_without_a_container_cannot_run_on_a_site_of_containers(bench: Bench, apptainer: Path):
    with pytest.raises(UserError, match="no `container`"):
        launch(bench.with_site(runtime="apptainer"))


def test_no_apptainer_is_a_site_error_with_a_remedy(contained: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(contained.root))
    with pytest.raises(SiteError, match="modules"):
        launch(contained)


@pytest.mark.services
@pytest.mark.covers("E-FR05", "E-FR21")
def test_a_contained_server_is_served_and_ended_like_any_other(contained: Bench, apptainer: Path):
    image = image_of(contained, contained.root / "tiny.sif")
    answer = contained.with_service(driver="seamark.platform.isolated_main").serve(image=image, whom="you")
    assert answer["status"] == "ok", answer
    assert answer["runtime"] == "apptainer"
    assert json.loads(apptainer.read_text())[0] == "exec"
    environment = Path(f"/proc/{answer['server_pid']}/environ").read_bytes()
    assert b"GREETING=hello you\0" in environment
    servers.stop(contained.folder())
    assert contained.end()["returncode"] == -15


@pytest.mark.parametrize(
    ("address", "settings", "expected"),
    [
        ("db.example:5432", {}, ("db.example", {"main": 5432})),
        ("here:1", {"address": "there:2"}, ("there", {"main": 2})),
        ("db.example", {"main_port": 99}, ("db.example", {"main": 99})),
        ("[2001:db8::7]:5432", {}, ("2001:db8::7", {"main": 5432})),
        ("::1", {"main_port": 99}, ("::1", {"main": 99})),
        ("[::1]", {"main_port": 99}, ("::1", {"main": 99})),
    ],
)
def test_an_external_address_names_host_and_ports(bench: Bench, address, settings, expected):
    spec = bench.with_site(runtime="external", address=address).spec()
    spec = replace(spec, deployment=replace(spec.deployment, settings=settings))
    assert external_ports(spec, Server(command=())) == expected


def test_an_address_with_a_scheme_is_refused_with_the_setting_that_is_meant(bench: Bench):
    spec = bench.with_site(runtime="external", address="https://llm.example:443").spec()
    with pytest.raises(SiteError, match="host:port; for https set tls: verified"):
        external_ports(spec, Server(command=()))


@pytest.mark.parametrize("address", ["db.example", "[::1]", "::1:8080", "[::1:8080", "[db.example]:8080"])
def test_an_external_address_without_a_port_says_so(bench: Bench, address: str):
    spec = bench.with_site(runtime="external", address=address).spec()
    with pytest.raises(SiteError, match="no port for main"):
        external_ports(spec, Server(command=()))


@pytest.mark.covers("E-FR24")
def test_of_somebody_elses_server_the_ports_that_only_it_uses_are_not_asked(bench: Bench):
    spec = bench.with_site(runtime="external", address="db.example:19530").spec()
    spec = replace(spec, deployment=replace(spec.deployment, settings={"metrics_port": 9091}))
    server = Server(command=(), ports=("main", "metrics", "etcd"), inner_ports=("etcd",))
    assert external_ports(spec, server) == ("db.example", {"main": 19530, "metrics": 9091})
    with pytest.raises(SiteError, match="no port for etcd"):
        external_ports(spec, replace(server, inner_ports=()))
