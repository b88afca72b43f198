"""Commands: exit code, figures, kept files, time limit; and no process of one is left, wherever it has gone."""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from processes import eventually
from study_folder import StudyFolder

from seamark.analysis.comparison.metric_names import metric_of
from seamark.drivers.command import Command, _end_of_process, figure
from seamark.errors import UserError
from seamark.load.coordinator.coordinator import LoadJob
from seamark.load.driver import Target, TaskFailure
from seamark.model.sample import Failure
from seamark.planning.study import Study
from seamark.trials.measure import MeasuredLoad, measure

ESCAPES = "setsid sh -c 'exec -a escaped-{name} sleep 600' & setsid setsid sleep 600 & "


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., MeasuredLoad]:
    """Run a command in a load: its document as keywords, settings and limit beside."""

    def measured(
        settings: dict[str, Any] | None = None,
        limit_s: float = 20.0,
        on_tick: Callable[[], str | None] = lambda: None,
        **command: Any,
    ) -> MeasuredLoad:
        job = LoadJob(
            driver="seamark.drivers.command:Command",
            workers="processes",
            settings={"command": json.dumps(command), "limit_s": limit_s, **(settings or {})},
            seed=1,
            data=tmp_path,
            kind="program",
        )
        return measure(job, tmp_path / "parts", on_tick=on_tick)

    return measured


def left(folder: Path) -> list[psutil.Process]:
    """Return live processes that belong to a command in this folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("SEAMARK_PROGRAM") == str(folder) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.services
def test_figures_are_read_from_output_and_files_and_what_is_to_be_kept_is_kept(
    run: Callable[..., MeasuredLoad], tmp_path: Path
) -> None:
    script = "sleep 0.2; echo rate 5.5; echo rate 7.25; mkdir d; echo x >&2; "
    script += 'echo "{{\\"a\\": [{{\\"b\\": $N}}]}}" > d/r.json'
    done = run(
        {"count": 3},
        argv=["sh", "-c", script],
        environment={"N": "{settings[count]}"},
        keep=["d/*.json", "nothing*"],
        figures={"rate": {"regex": r"rate ([\d.]+)"}, "b": {"json": "a.0.b", "of": "d/r.json"}},
    )
    assert done.failure is None
    quality = dict(done.outcome.quality)
    assert 0 <= quality.pop("cpu_time_s") < 1
    assert 0.5 < quality.pop("peak_rss_mb") < 200
    assert quality.pop("run_time_s") == pytest.approx(1.2, abs=1.0)
    assert quality == {"rate": 7.25, "b": 3.0}
    [sample] = done.samples()
    assert (sample["status"], sample["failure"], sample["units"]) == (0, 0, 1)
    assert (sample["last_ns"] - sample["sent_ns"]) / 1e9 == pytest.approx(done.outcome.quality["run_time_s"])
    files = tmp_path / "parts" / "files"
    assert (files / "d/r.json").read_text() == '{"a": [{"b": 3}]}\n'
    assert (files / "stdout").read_text() == "rate 5.5\nrate 7.25\n"
    assert (files / "stderr").read_text() == "x\n"
    assert list(tmp_path.glob("command-*")) == [], "the command's own folder is gone"


@pytest.mark.services
@pytest.mark.parametrize(
    ("command", "category", "said"),
    [
        (
            {"argv": ["sh", "-c", "echo one >&2; echo two >&2; exit 3"]},
            "program_failed",
            "ended with exit code 3: one | two",
        ),
        ({"argv": ["sh", "-c", "kill -SEGV $$"]}, "program_failed", "was ended by SIGSEGV"),
        ({"argv": ["sh", "-c", "exit 0"], "success": [3]}, "program_failed", "ended with exit code 0"),
        ({"argv": ["/no/such/program"]}, "program_failed", "cannot be started"),
        (
            {"argv": ["true"], "figures": {"x": {"regex": "(x)"}}},
            "figure_missing",
            "'x' cannot be read: nothing matches",
        ),
        ({"argv": ["true"], "figures": {"x": {"json": "a", "of": "r"}}}, "figure_missing", "no such file: r"),
        ({"argv": ["echo", "nan?"], "figures": {"x": {"regex": "(.*)n\\?"}}}, "figure_missing", "could not convert"),
    ],
)
def test_a_command_that_fails_is_a_result_with_a_category_and_a_reason(
    run: Callable[..., MeasuredLoad], command: dict[str, Any], category: str, said: str
) -> None:
    failure = run(**command).failure
    assert failure is not None
    assert failure.category == category
    assert said in failure.reason


@pytest.mark.services
def test_other_exit_codes_may_mean_success(run: Callable[..., MeasuredLoad]) -> None:
    done = run(argv=["sh", "-c", "exit 3"], success=[0, 3])
    assert done.failure is None
    [sample] = done.samples()
    assert (sample["status"], sample["failure"]) == (3, Failure.NONE)


@pytest.mark.services
@pytest.mark.parametrize("deaf", [False, True])
def test_a_command_that_hangs_past_its_limit_has_timed_out_and_nothing_of_it_is_left(
    run: Callable[..., MeasuredLoad], tmp_path: Path, deaf: bool
) -> None:
    began_s = time.monotonic()
    trap = "trap '' TERM; " if deaf else ""
    failure = run(argv=["sh", "-c", f"{trap}{ESCAPES.format(name='limit')}sleep 600; sleep 600"], limit_s=1.0).failure
    assert failure is not None
    assert (failure.category, failure.reason) == ("timeout", "it had not ended after limit_s (1 s)")
    assert time.monotonic() - began_s < (25 if deaf else 15)
    assert eventually(lambda: not left(tmp_path))


@pytest.mark.services
def test_what_escapes_into_a_session_of_its_own_ends_with_the_command(
    run: Callable[..., MeasuredLoad], tmp_path: Path
) -> None:
    assert run(argv=["sh", "-c", f"{ESCAPES.format(name='end')}exit 0"]).failure is None
    assert eventually(lambda: not left(tmp_path))


@pytest.mark.services
def test_a_command_ends_with_its_run(run: Callable[..., MeasuredLoad], tmp_path: Path) -> None:
    ticks = iter(range(10**6))
    failure = run(
        argv=["sh", "-c", f"{ESCAPES.format(name='run')}sleep 600"],
        on_tick=lambda: "interrupted: gone" if next(ticks) > 30 else None,
    ).failure
    assert failure is not None
    assert failure.category == "interrupted"
    assert eventually(lambda: not left(tmp_path))


@pytest.mark.serial
def test_a_kernel_that_cannot_tell_of_a_childs_end_is_asked_often(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(pid: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("os.pidfd_open", unknown)
    began_s = time.monotonic()
    with _end_of_process(1) as wait:
        wait()
    assert 0.001 < time.monotonic() - began_s < 1


def test_a_long_output_is_kept_from_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seamark.drivers.command.MOST_OUTPUT_BYTES", 5)
    (tmp_path / "place").mkdir()
    for name in ("stdout", "stderr"):
        (tmp_path / "place" / name).write_text("0123456789")
    driver = Command(Target(settings={"command": '{"argv": ["x"]}'}, data=tmp_path))
    driver._keep(tmp_path / "place", tmp_path / "kept")
    assert (tmp_path / "kept" / "stdout").read_text() == "56789"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"json": "a.1"}, "no '1' of 'a.1'"),
        ({"json": "b.c"}, "no 'b'"),
        ({"json": "t"}, "it is True"),
        ({"json": "a"}, ""),
        ({"json": "huge"}, "it is inf"),
        ({"regex": "(nan)"}, "it is nan"),
        ({"regex": "text(x)?"}, "it is None"),
        ({"json": "a", "of": "none.json"}, "no such file: none.json"),
    ],
)
def test_a_figure_that_is_no_number_says_what_is_there(tmp_path: Path, source: dict[str, str], said: str) -> None:
    (tmp_path / "work").mkdir()
    text = '{"a": [4], "t": true, "text": "5.5", "huge": 1e999, "n": "nan"}'
    for path in (tmp_path / "stdout", tmp_path / "work" / "r.json"):
        path.write_text(text)
    assert figure("x", {"json": "text", "of": "r.json"}, tmp_path) == 5.5
    with pytest.raises(TaskFailure, match="cannot be read") as caught:
        figure("x", source, tmp_path)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("ways", "better"), [(("less", "less"), "lower"), (("more", "higher"), "higher"), (("more", "less"), None)]
)
def test_a_figure_that_says_which_values_are_better_can_be_compared(
    tmp_path: Path, ways: tuple[str, str], better: str | None
) -> None:
    folder = StudyFolder.new(tmp_path / "study")
    commands = [
        {"name": way + str(at), "argv": ["echo", "v 1"], "figures": {"v": {"regex": r"v (\S+)", "better": way}}}
        for at, way in enumerate(ways)
    ]
    asked = {
        "scenario": "try",
        "workload": {"service": "command", "command": commands},
        "compare": {"metrics": ["v"]},
    }
    (folder.root / "config/scenarios/try.yaml").write_text(json.dumps(asked))
    if better is None:
        with pytest.raises(UserError, match="'v' is no metric that can be compared"):
            Study.at(folder.root, scenario="config/scenarios/try.yaml")
        return
    plan = Study.at(folder.root, scenario="config/scenarios/try.yaml").plan
    assert metric_of("v", (), plan.qualities).better == better


@pytest.mark.services
def test_run_time_and_cpu_time_are_those_of_the_command(run: Callable[..., MeasuredLoad]) -> None:
    times_s, plain_s = [], []
    for _ in range(5):  # in turns, so that other work on the machine meets both
        times_s.append(run(argv=["sleep", "0.1"]).outcome.quality["run_time_s"])
        began_s = time.perf_counter()
        subprocess.run(["sleep", "0.1"], check=True)
        plain_s.append(time.perf_counter() - began_s)
    assert 0.1 <= min(times_s) < min(plain_s) + 0.02, "its end is seen at once"
    busy = run(argv=["python3", "-c", "b = bytearray(150_000_000); sum(range(8_000_000))"]).outcome
    assert 0.02 < busy.quality["cpu_time_s"] < 10
    assert 150 < busy.quality["peak_rss_mb"] < 300
    assert run(argv=["sleep", "0.3"]).outcome.quality["peak_rss_mb"] < 8, "not that of the launcher, which is Python"


@pytest.mark.services
def test_a_command_that_ends_before_its_memory_was_read_has_no_peak_unless_it_is_above_its_launchers(
    run: Callable[..., MeasuredLoad],
) -> None:
    short = (set(run(argv=["true"]).outcome.quality) for _ in range(5))  # on a busy machine it may take long
    assert any(names == {"run_time_s", "cpu_time_s"} for names in short)
    above_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024 + 200  # the launcher is forked from here
    filled = f"mmap.mmap(-1, {above_mb} << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)"
    large = run(argv=[sys.executable, "-ISc", f"import mmap; {filled}"])
    assert above_mb * 1.04 < large.outcome.quality["peak_rss_mb"] < above_mb * 1.05 + 100


@pytest.mark.serial
def test_the_resources_of_the_client_are_those_of_the_command(
    run: Callable[..., MeasuredLoad], tmp_path: Path
) -> None:
    script = "import time\nend = time.monotonic() + 3\nwhile time.monotonic() < end: pass"
    run(argv=["sh", "-c", 'python3 -c "$1"; true', "sh", script])
    rows = [line.split(",") for line in (tmp_path / "parts" / "client.csv").read_text().splitlines()[1:]]
    ratios = [float(value) for _, _, name, value, _ in rows if name == "cpu_ratio"]
    assert max(ratios) * (psutil.cpu_count() or 1) > 0.5, "it keeps a core busy"
