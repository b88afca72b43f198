"""Servers of the user's own, one that runs already or one of a command: what a plan can find wrong with them."""

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from seamark.config.extends import load_merged
from seamark.config.recipe_checks import check_program_texts
from seamark.config.yaml_source import Item, Mistakes
from seamark.errors import Mistake, SiteError, UserError, did_you_mean
from seamark.model.service import Server, Service, Value
from seamark.model.site import Site
from seamark.model.trial import Plan

PERSISTENT_PREFIX = "standing/"
"""First part of the address of a persistent server, and its folder in the results."""
ADDRESS = re.compile(r"(?:\[(?P<ipv6>[^\[\]]*:[^\[\]]*)\]|(?P<host>[^:\[\]]*))(?::(?P<port>[^:]*))?")
"""An address with or without a port; one of IPv6 has brackets if it has a port."""
COMMAND_PLACES = ("ports[main]", "host", "study", "data")
"""What a command in a scenario can name; a recipe's knows more."""


def external_address(site: Site, settings: Mapping[str, Value]) -> str:
    """Return the address of an external server: the setting `address`, else the site's."""
    return str(settings.get("address") or site.address)


def host_and_ports(
    site: Site, service: str, server: Server, settings: Mapping[str, Value]
) -> tuple[str, dict[str, int]]:
    """Return host and ports of a server that Seamark does not run, by the names in its recipe.

    The address is `host` or `host:port` (of IPv6 `::1` or `[::1]:port`); that port is the recipe's first. Further
    ports are in `ports` of the site, or in settings called <name>_port. That of metrics and inner ones may be
    missing, unless a setting names one, such as `protocol: grpc`. Raises SiteError.
    """
    address = external_address(site, settings)
    if "://" in address:
        raise SiteError(
            f"service '{service}' at '{address}': not an address. Write it as host:port; for https set"
            " tls: verified in the workload, where the service has that setting."
        )
    match = ADDRESS.fullmatch(address)
    host, first = (match["ipv6"] or match["host"], match["port"]) if match else (address, None)
    ports: dict[str, object] = {name: settings.get(f"{name}_port") or site.ports.get(name) for name in server.ports}
    if first and ports:
        ports[server.ports[0]] = first
    optional = {server.metrics_port, *server.inner_ports} - {*server.ports[:1], *settings.values()}
    ports = {name: port for name, port in ports.items() if port is not None or name not in optional}
    if missing := [name for name, port in ports.items() if not _is_port(port)]:
        raise SiteError(
            f"service '{service}' at '{address}': no port for {', '.join(missing)}. Write the address as"
            " host:port, of IPv6 as [::1]:port, and further ports beside it as 'ports: {NAME: NUMBER}'."
        )
    return host, {name: int(str(port)) for name, port in ports.items()}


def _is_port(port: object) -> bool:
    return str(port).isdecimal() and 0 < int(str(port)) <= 65535


def require_servers(
    plan: Plan, services: Mapping[str, Service], site: Site, site_file: Path, lines: Mapping[str, str]
) -> None:
    """Raise UserError with a line for each server of the plan that cannot be reached or started as it is written.

    `lines` has the place of each part of the scenario.
    """
    mistakes = Mistakes()
    served = [(trial, server) for trial in plan.measured if (server := services[trial.service].server) is not None]
    at_site: dict[str, Server] = {}
    tree = None if site.starts_servers or not served else load_merged(site_file, mistakes)
    for trial, server in served:
        external = plan.starts[trial.deployment].external
        if external is not None:
            item = _item(lines, f"parties.{trial.party}.external.address", external.address)
            _check_external(item, site.beside(external), trial.service, server, trial.settings, mistakes)
        elif site.starts_servers:
            for name in server.own_commands:
                _check_command(_item(lines, name, trial.settings.get(name)), trial.service, mistakes)
        elif tree is not None:
            at_site[trial.service] = server
            _check_external(tree.at(["address"]), site, trial.service, server, trial.settings, mistakes)
    if tree is not None and at_site:
        _check_ports(tree, site, at_site, mistakes)
    if mistakes.noted:
        raise UserError(*mistakes.noted)


def _check_ports(tree: Item, site: Site, servers: Mapping[str, Server], mistakes: Mistakes) -> None:
    known = {port for server in servers.values() for port in server.ports}
    for name in site.ports:
        if name not in known:
            named = f"{', '.join(servers)}. Ports: {', '.join(sorted(known))}.{did_you_mean(name, known)}"
            mistakes.add(tree.at(["ports", name]), f"no such port of {named}", "unknown_name")


def _check_external(
    at: Item, site: Site, service: str, server: Server, settings: Mapping[str, Value], mistakes: Mistakes
) -> None:
    """Note what is wrong with an address, at its place."""
    if external_address(site, settings).startswith(PERSISTENT_PREFIX):
        return
    try:
        host_and_ports(site, service, server, settings)
    except SiteError as error:
        mistakes.add(at, str(error))
    for name in server.external_variables:
        if not os.environ.get(name):
            text = f"service '{service}': the variable {name} is not set, and its server wants it."
            mistakes.add(at, f"{text} `export {name}=...` first.", "missing")


def _item(lines: Mapping[str, str], name: str, value: Value) -> Item:
    """Return a setting of a scenario with its place, that of `service` if it is not written there."""
    places = [line for wanted in (name, "service") for key, line in lines.items() if f".{key}".endswith(f".{wanted}")]
    at = Mistake.at(places[0] if places else "", "", "invalid")
    return Item(value=value, file=at.file or "", line=at.line or 1, path=at.path or name)


def _check_command(item: Item, service: str, mistakes: Mistakes) -> None:
    """Note what is wrong with the command line in a setting."""
    example = "'command: python3 {study}/server.py --port {ports[main]}'"
    if item.value is None:
        text = f"'{service}' starts your server. Write {example}, or choose a site with 'runtime: external'."
        mistakes.add(item, text, "missing")
        return
    try:
        words = shlex.split(str(item.value))
        for word in words:
            word.format(ports={"main": 1}, host="", study="", data="")
    except (ValueError, LookupError, AttributeError) as error:
        places = ", ".join(f"{{{name}}}" for name in COMMAND_PLACES)
        mistakes.add(item, f"no command line ({error}). It may name {places}; a brace is written twice.")
        return
    if "{ports[main]}" not in str(item.value):
        mistakes.add(item, f"lacks {{ports[main]}}, the port that is chosen for it. Write one text, as {example}.")
    check_program_texts(replace(item, value=[replace(item, value=word) for word in words]), mistakes)
