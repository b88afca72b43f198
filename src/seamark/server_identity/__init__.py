"""Hands on what a server identity is."""

from seamark.server_identity.identity import (
    BRIEF,
    ServerIdentity,
    belongs,
    brief,
    differences,
    image_digests,
    place,
    recorded,
    same_server,
)

__all__ = [
    "BRIEF",
    "ServerIdentity",
    "belongs",
    "brief",
    "differences",
    "image_digests",
    "place",
    "recorded",
    "same_server",
]
