"""Notifications of a run: the user's own command learns what happened, and its failure changes nothing."""

from pathlib import Path

import pytest

from seamark.model.scenario import Notify
from seamark.trials.progress import Progress, State
from seamark.workflow.notify import notify, text_of


def ended(*failures: str) -> Progress:
    states = [State(trial="one", deployment="d", state="ok")]
    states += [
        State(trial=name, deployment="d", state="failed", category="server_died", reason="gone") for name in failures
    ]
    return Progress(scenario="try", states=tuple(states))


def test_the_command_has_the_sentence_and_the_facts_of_the_run(tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = f"cat > {out}; echo $SEAMARK_SCENARIO $SEAMARK_EVENT $SEAMARK_FAILED $SEAMARK_LOG >> {out}"
    wanted = Notify(command=("sh", "-c", script), events=("end", "failure"))
    assert notify(wanted, "end", ended("two"), tmp_path / "log") is None
    assert out.read_text().splitlines() == [
        "try has ended: 1 of 2 trials measured, 1 failed. First failure: two: server_died: gone",
        f"try end 1 {tmp_path / 'log'}",
    ]
    assert text_of("failure", ended("two")).startswith("try goes on after a failure: 1 of 2 trials")


def test_only_events_that_are_named_run_the_command(tmp_path: Path) -> None:
    wanted = Notify(command=("touch", str(tmp_path / "out")))
    assert notify(wanted, "failure", ended("two"), tmp_path) is None
    assert notify(None, "end", ended(), tmp_path) is None
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("no-such-command",), "notify: no-such-command: No such file or directory."),
        (("sh", "-c", "echo no route >&2; exit 3"), "notify: sh ended with exit code 3: no route"),
        (("false",), "notify: false ended with exit code 1: it printed nothing"),
    ],
)
def test_a_command_that_fails_is_one_line(command: tuple[str, ...], said: str, tmp_path: Path) -> None:
    assert notify(Notify(command=command), "end", ended(), tmp_path) == said


def test_a_command_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seamark.workflow.notify.LIMIT_S", 0.05)
    wanted = Notify(command=("sleep", "60"))
    assert notify(wanted, "end", ended(), tmp_path) == "notify: sleep had not ended after 0.05 s."
