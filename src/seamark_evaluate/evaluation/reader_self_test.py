"""Self-test of evaluations: a model whose answers follow from positions alone, asked under methods of attention.

The known reader is written, served in the environment `evaluation` and asked `needles` by the driver of every
evaluation. Whoever adds a method or a driver sees here whether each answer is the one that is known beforehand.
"""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from seamark.drivers.openai.kept import read_kept
from seamark.load.coordinator.coordinator import LoadJob, run_load
from seamark.load.driver import Target
from seamark.load.workers.hooks import run_preparation
from seamark.load.workers.records import read_replies
from seamark.model.scenario import filled
from seamark.model.service import Service, Value
from seamark.planning.study import Study
from seamark.services.ephemeral_server import ephemeral_server
from seamark.services.runtimes.environments import environment_folder, is_built
from seamark.trials.self_test import PluginTest
from seamark_evaluate.attention.known_answers import expected_right
from seamark_evaluate.attention.method import read_method
from seamark_evaluate.drivers.questions import KNOWN_READER, asked_of

METHODS = ("dense", "streaming", "sink_local")
QUESTIONS, WORDS = 50, 300
SCENARIO = {
    "scenario": "self_test",
    "workload": {
        "component": "evaluation",
        "service": "attention",
        "model": KNOWN_READER,
        "method": [*METHODS],
        "task": "needles",
        "max_requests": QUESTIONS,
        "length_words": WORDS,
    },
}


@dataclass(frozen=True, kw_only=True)
class KnownAnswers:
    """Answers to `questions` under one method: how many were right, and how many were as known beforehand."""

    method: str
    questions: int
    right: int
    as_known: int

    @property
    def all_known(self) -> bool:
        """Whether every answer was the one that is known."""
        return self.as_known == self.questions


def reader_test(users: Study | None) -> PluginTest:
    """Return `reader_self_test` for `bench doctor --self-test`."""
    answers = reader_self_test(users)
    return PluginTest(
        name="known_reader",
        title="Answers of the known reader",
        rows=None
        if answers is None
        else [vars(answer) | {"verdict": "right" if answer.all_known else "wrong"} for answer in answers],
        right=all(answer.all_known for answer in answers or ()),
        not_run="Known reader: not asked. It needs the environment 'evaluation':"
        " bench prepare -c config/scenarios/sparse_attention_local.yaml",
    )


def reader_self_test(users: Study | None = None) -> list[KnownAnswers] | None:
    """Ask the known reader under each method; None where the environment `evaluation` was never built. It is that of
    the user's study, else that of the site local.

    Raises PreparationError where the model cannot be written, ServerStartError where its server does not start.
    """
    with tempfile.TemporaryDirectory(prefix="seamark-self-test-") as name:
        folder = Path(name)
        (folder / "self_test.yaml").write_text(json.dumps(SCENARIO), encoding="utf-8")
        study = Study.at(folder, scenario=str(folder / "self_test.yaml"), site="local")
        service = study.services["attention"]
        assert service.environment is not None
        place = users or study
        if not is_built(service.environment, place.locks, place.environments):
            return None
        python = environment_folder(service.environment, place.locks, place.environments) / "bin" / "python"
        settings = [filled(trial.settings) for trial in study.plan.trials]
        run_preparation("stage", service.driver, Target(settings=settings[0], data=folder), 1, python)
        serves = ("--model", folder / KNOWN_READER, "--device", "cpu", "--threads", 1)
        with ephemeral_server("seamark_evaluate.server.serve", *serves, python=python) as port:
            found = [_asked(service, trial_settings, folder, port) for trial_settings in settings]
    return sorted(found, key=lambda answer: METHODS.index(answer.method))


def _asked(service: Service, settings: Mapping[str, Value], folder: Path, port: int) -> KnownAnswers:
    job = LoadJob(
        driver=service.driver,
        workers="wire",
        settings={**settings, "model": str(folder / KNOWN_READER)},
        seed=1,
        data=folder,
        ports={"http": port},
        kind="finite",
    )
    with tempfile.TemporaryDirectory(dir=folder) as parts:
        outcome = run_load(job, None, Path(parts) / "parts")
        replies = dict(pair for path in outcome.files["replies"] for pair in read_replies(path))
    method = read_method(json.loads(str(settings["method"])), "method")
    asked = asked_of(settings)
    texts = [read_kept(replies.get(item, b"")).text for item in range(len(asked))]
    right = [
        text is not None and text.strip() in question.references for text, question in zip(texts, asked, strict=True)
    ]
    known = [expected_right(question.facts, method, "question") for question in asked]
    same = sum(actual == expected for actual, expected in zip(right, known, strict=True))
    return KnownAnswers(method=method.name, questions=len(asked), right=sum(right), as_known=same)
