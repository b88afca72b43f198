"""Lanes of a site: their settings checked, and replaced by options of a command."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import replace

from seamark.dispatch.dispatcher import leaves_this_machine
from seamark.dispatch.order import order_of
from seamark.errors import UserError, did_you_mean
from seamark.model.site import DeviceIds, Devices, Pinning, Site

MOST_LANES = 100
OPTIONS = {
    "devices.gpu": "--gpus",
    "devices.cpu": "--cpus",
    "devices.per_device": "--per-device",
    "devices": "--gpus",
    "parallel": "--parallel",
    "order": "--order",
}
"""Option of `bench submit` for each setting of a site."""


def packed(options: str) -> str:
    """Return options of lanes, a JSON object, without a character that Snakemake, a shell or a batch system reads as
    its own."""
    return urlsafe_b64encode(options.encode()).decode().rstrip("=")


def unpacked(text: str) -> str:
    """Return what was packed; a JSON object, or nothing, as it is."""
    if not text or text.lstrip().startswith("{"):
        return text
    return urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()


def lanes_at_once(site: Site) -> int:
    """Return the number of lanes of a site that can be at work: no more than there are places on named devices, or
    than its order lets run."""
    most, ids = [site.parallel], None if site.devices is None else site.devices.gpu or site.devices.cpu
    if site.devices is not None and ids is not None and ids != "auto":
        most.append(len(ids) * site.devices.per_device)
    if (limit := order_of(site.order).most) is not None:
        most.append(limit)
    return min(most)


def lane_mistakes(site: Site) -> Iterator[tuple[str, str]]:
    """Yield each mistake in the lanes of a site, with the dotted path of its setting."""
    if not 1 <= site.parallel <= MOST_LANES:
        yield "parallel", f"{site.parallel} is none of 1 to {MOST_LANES} lanes. Write 1 for one deployment at a time."
    try:
        order_of(site.order)
    except ValueError as mistake:
        yield "order", str(mistake)
    if site.devices is not None:
        yield from _device_mistakes(site.devices)
    if site.parallel > 1:
        yield from _unfit(site)


def _device_mistakes(devices: Devices) -> Iterator[tuple[str, str]]:
    if devices.per_device < 1:
        yield "devices.per_device", f"{devices.per_device} lanes fit on no device. Write 1 or more."
    named = {kind: ids for kind in ("gpu", "cpu") if (ids := getattr(devices, kind)) is not None}
    if len(named) != 1:
        which = "both gpu and cpu are named" if named else "no devices are named"
        yield "devices", f"{which}. Write one of 'gpu: auto', 'gpu: [0, 1]' and 'cpu: [0, 1]'."
    for kind, ids in named.items():
        numbers = () if ids == "auto" else ids
        path = f"devices.{kind}"
        if not ids:
            yield path, "the list is empty. Name devices, or write 'auto' for all of them."
        for number in sorted({device for device in numbers if device < 0}):
            yield path, f"{number} is no device id: they count from 0. Remove it."
        for number in sorted({device for device in numbers if numbers.count(device) > 1}):
            yield path, f"device {number} is named more than once. Name it once; per_device lets lanes share it."


def _unfit(site: Site) -> Iterator[tuple[str, str]]:
    """Yield why a site cannot have several lanes."""
    if site.devices is None:
        yield (
            "parallel",
            (
                f"{site.parallel} lanes need devices. Add 'devices: {{gpu: auto}}' or 'devices: {{cpu: [0, 1]}}' to"
                " the site, or --gpus or --cpus to the command."
            ),
        )
    if leaves_this_machine(site):
        yield (
            "parallel",
            (
                "lanes run on the machine that `bench` runs on, and this site has a batch system. In a job of a whole"
                " node call `bench submit` with a site without `partitions` and `profile`, or write 'parallel: 1'."
            ),
        )
    elif not site.starts_servers:
        yield "parallel", "lanes start servers, and runtime external has its own. Write 'parallel: 1'."
    if site.images.jobs:
        yield "parallel", "lanes start no containers of Snakemake's. Write 'images: {jobs: false}' or 'parallel: 1'."
    if site.placement == "share":
        yield "parallel", "`placement: share` is for deployments of one batch job. Write 'placement: isolate'."
    if isinstance(site.pinning, Pinning) and site.devices is not None and site.devices.cpu is not None:
        yield "parallel", "a lane has CPUs of its own, and `pinning` names others. Write 'pinning: auto'."


def with_lanes(
    site: Site,
    *,
    gpus: str | None = None,
    cpus: str | None = None,
    per_device: int | None = None,
    parallel: int | None = None,
    order: str | None = None,
) -> Site:
    """Return a site with the lanes and the order that options of a command ask for. Raises UserError with every
    mistake."""
    given = {"--gpus": gpus, "--cpus": cpus}
    if not any(choice is not None for choice in (gpus, cpus, per_device, parallel, order)):
        return site
    if gpus is not None and cpus is not None:
        raise UserError("--gpus and --cpus: a run has devices of one kind. Give one of them.")
    devices = site.devices
    if gpus is not None or cpus is not None:
        before = 1 if devices is None else devices.per_device
        devices = Devices(gpu=_ids("--gpus", gpus), cpu=_ids("--cpus", cpus), per_device=before)
    if per_device is not None:
        if devices is None:
            raise UserError(
                f"--per-device {per_device}: the site '{site.name}' names no devices. Give --gpus or --cpus too."
            )
        devices = replace(devices, per_device=per_device)
    found = replace(
        site,
        devices=devices,
        parallel=site.parallel if parallel is None else parallel,
        order=site.order if order is None else order,
    )
    if mistakes := [f"{OPTIONS[path]}: {text}" for path, text in lane_mistakes(found)]:
        raise UserError(*mistakes)
    if found.parallel == 1 and any(choice is not None for choice in (gpus, cpus, per_device)):
        option = next((name for name, value in given.items() if value is not None), "--per-device")
        raise UserError(
            f"{option}: devices are shared out to lanes, and there is one. Give their number: --parallel 2."
        )
    return found


def _ids(option: str, text: str | None) -> DeviceIds | None:
    if text is None:
        return None
    if text == "auto":
        return "auto"
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if not word.removeprefix("-").isdecimal():
            guess = did_you_mean(text, ["auto"])
            raise UserError(
                f"{option} {text}: '{word}' is no device id. Write numbers, as {option} 0,1, or {option} auto.{guess}"
            )
    return tuple(map(int, words))
