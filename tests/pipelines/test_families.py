"""Families of stages with the real libraries, in the environment `pipelines`: they train, generate and retrieve."""

import pytest
from service_environment import ask, environment

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def place():
    return environment("pipelines")


@pytest.mark.covers("A10")
def test_lora_steps_are_those_of_the_plain_loop(place):
    said = ask(place, "inside_families", "fine_tuning", every=2, count=5)
    assert said["losses"][0] == pytest.approx(said["base"], rel=1e-5)
    assert said["frozen"]
    assert said["moved"]
    assert said["as the loop"]
    assert said["steps"] == 2
    assert said["trainable"] == said["by shapes"]
    assert said["splits"] == {"train": 128}
    assert 0.3 < said["masked"] < 1


def test_answers_are_those_of_generate_and_the_likeliest_of_several(place):
    said = ask(place, "inside_families", "generation")
    assert said["found"] == said["plain"]
    assert said["chosen"] == said["likeliest"]
    assert said["together"] == said["alone"]


@pytest.mark.sweep
def test_accelerate_trains_the_shipped_configuration(place):
    said = ask(place, "inside_families", "accelerated", count=6)
    assert said["steps"] == 3
    assert said["losses"][-1] < said["losses"][0]


@pytest.mark.sweep
def test_torchtune_trains_and_generates_as_its_checkpoint_says(place):
    said = ask(place, "inside_families", "with_torchtune", count=5)
    assert said["losses"][0] == pytest.approx(said["base"], rel=1e-3)
    assert said["frozen"]
    assert said["moved"]
    assert said["as the loop"]
    assert said["steps"] == 2
    assert said["answers"] == [said["plain"], said["plain"]]


@pytest.mark.sweep
def test_transfer_learning_moves_the_head_alone(place):
    said = ask(place, "inside_families", "vision")
    assert said["splits"] == {"train": 16}
    assert said["moved"] == ["classifier.3.weight", "classifier.3.bias"]
    assert said["losses"][-1] < said["losses"][0]
    assert all(len(found) == 1 and found[0] in range(4) for found in said["classes"])
    heads = said["heads"]
    assert heads["resnet18"] == ["fc.weight", "fc.bias"]
    assert heads["mobilenet_v3_small"] == ["classifier.3.weight", "classifier.3.bias"]
    assert heads["vit_b_16"] == ["heads.head.weight", "heads.head.bias"]
    assert heads["squeezenet1_1"] == ["torchvision.models.squeezenet1_1 has no linear layer as its head"]


@pytest.mark.sweep
def test_the_document_with_the_answer_is_found(place):
    said = ask(place, "inside_families", "retrieval")
    assert said["right"]["Retriever"] > 0.95
    assert said["right"]["ChromaRetriever"] > 0.9
    assert said["added"]
    assert [[int(said["total"][0])]] == said["sums"][0]
    assert "readonly" in said["sums"][1]
    assert "syntax error" in said["sums"][2]
    assert said["documents"].startswith("Document 1:")


@pytest.mark.sweep
def test_self_rag_ends_every_question(place):
    said = ask(place, "inside_families", "self_rag", count=4)
    assert said["splits"] == {"val": 40}
    assert len(said["ends"]) == 4
    once, _, spent, nothing = said["visits"]
    assert [number for number, visits in enumerate(once) if visits] == [*range(18)]
    assert max(once) == 1
    assert [spent[number] for number in (3, 8, 9, 17, 18, 19)] == [3, 3, 0, 1, 2, 2], "two retries are three visits"
    assert nothing is None
    assert said["lengths"]["filler"] == pytest.approx(said["lengths"]["retrieved"], abs=3)
    assert said["lengths"]["none"] < said["lengths"]["retrieved"] / 2
