"""A recipe of the user's own that names files of the study, and one with a server that cannot start."""

import json
import re

import pytest
from study_folder import StudyFolder

pytestmark = pytest.mark.e2e

SERVER = """\
import sys

from seamark.testservers.null import main

if "--broken" in sys.argv:
    print("reading the weights")
    sys.exit("no such weights: /models/none, try 7")
print("started from the study", flush=True)
main(sys.argv[1:])
"""


def own_recipe(study: StudyFolder, *arguments: str) -> None:
    """Let the recipe of the null service start a program of the study."""
    (study.root / "my_server.py").write_text(SERVER)
    recipe = study.root / "config" / "services" / "null.yaml"
    text = recipe.read_text()
    assert "- seamark.testservers.null\n" in text
    begin, end = text.index("  command:\n"), text.index("    - seamark.testservers.null\n")
    words = ["{python}", "{study}/my_server.py", *arguments]
    command = "  command:\n" + "".join(f'    - "{word}"\n' for word in words)
    recipe.write_text(text[:begin] + command + text[end:].removeprefix("    - seamark.testservers.null\n"))


@pytest.mark.sweep
@pytest.mark.covers("E-FR01")
def test_a_recipe_names_files_of_the_study(study: StudyFolder) -> None:
    own_recipe(study)
    study.write(repetitions=1)
    study.measure(code=0)
    [log] = study.results.glob("deployments/*/server.log")
    assert "started from the study" in log.read_text()


@pytest.mark.sweep
@pytest.mark.covers("E-NFR04")
def test_a_server_that_cannot_start_is_a_line_for_each_start_and_is_not_started_a_third_time(
    study: StudyFolder,
) -> None:
    own_recipe(study, "--broken")
    study.write(repetitions=4, restarts="each")
    done = study.measure(code=1)
    said = [line for line in done.stdout.splitlines() if "no such weights" in line]
    started = [line for line in said if "server.log" in line]
    assert len(started) == 2, done.stdout
    for line in started:
        [log] = re.findall(r"\S+/server\.log", line)
        assert "reading the weights" in (study.root / log).read_text()
    assert [line.split()[0] for line in done.stdout.splitlines() if " not tried: " in line] == ["4"]
    ends = [json.loads(path.read_text())["category"] for path in study.results.glob("*/load.json")]
    assert sorted(ends) == ["not_tried"] * 4 + ["server_never_healthy"] * 4
