"""Reader of a file of model servers: which recipe serves each model of a simulated system when it is measured."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from seamark.config.decode import WRONG, decode, is_mapping, known_keys
from seamark.config.json_source import load_document
from seamark.config.yaml_source import Item, Mistakes
from seamark.errors import did_you_mean
from seamark.model.service import Value

DEFAULT_SITE = "local"


@dataclass(frozen=True, kw_only=True)
class ModelServer:
    """The server of one model: a service of config/services, and its settings. `where` is its place in the file."""

    service: str
    settings: Mapping[str, Value] = field(default_factory=dict)
    where: str = ""


@dataclass(frozen=True, kw_only=True)
class ModelServerFile:
    """The servers of a file by the ids of their models, and the site that starts them."""

    models: Mapping[str, ModelServer]
    site: str = DEFAULT_SITE


def read_model_servers(path: Path, models: Collection[str], used: Collection[str]) -> ModelServerFile:
    """Return the servers of a file. Raises UserError with every mistake: also models that the system does not have,
    and models in use without a server."""
    mistakes = Mistakes()
    tree = load_document(path, mistakes)
    servers = None if tree is None else _file(tree, models, used, mistakes)
    mistakes.raise_any()
    assert servers is not None
    return servers


def _file(tree: Item, models: Collection[str], used: Collection[str], mistakes: Mistakes) -> ModelServerFile | None:
    known_keys(tree, ("site", "models"), mistakes)
    site = decode(tree.value["site"], str, mistakes) if "site" in tree.value else DEFAULT_SITE
    listed = tree.value.get("models")
    if listed is None:
        mistakes.add(tree, "the key 'models' is missing: name the server of each model in use.")
        return None
    if not is_mapping(listed, mistakes):
        return None
    servers: dict[str, ModelServer] = {}
    for name, item in listed.items():
        if name not in models:
            guess = did_you_mean(name, models) or f" Known: {', '.join(models)}."
            mistakes.add(item, f"no model has the id '{name}'.{guess}")
        elif (server := _server(item, mistakes)) is not None:
            servers[name] = server
    for name in used:
        if name not in listed.value:
            mistakes.add(listed, f"the model '{name}' is in use and has no server here. Give it one.")
    return ModelServerFile(models=servers, site=site)


def _server(item: Item, mistakes: Mistakes) -> ModelServer | None:
    if not is_mapping(item, mistakes):
        return None
    before = mistakes.count
    known_keys(item, ("service", "settings"), mistakes)
    if "service" not in item.value:
        mistakes.add(item, "the key 'service' is missing: a service with the OpenAI API, as known or vllm.")
        return None
    service = decode(item.value["service"], str, mistakes)
    settings: dict[str, Value] = {}
    written = item.value.get("settings")
    if written is not None and written.value is not None and is_mapping(written, mistakes):
        for name, setting in written.items():
            if isinstance(setting.value, (list, dict)):
                mistakes.add(setting, f"expected one value, but it is {setting.shown}.")
            settings[name] = setting.value
    if service is WRONG or mistakes.count > before:
        return None
    return ModelServer(service=service, settings=settings, where=item.where)
