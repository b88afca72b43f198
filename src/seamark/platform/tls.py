"""TLS of a wire driver's connections: verification of certificates. Independent of the service."""

import ssl
from collections.abc import Mapping

from seamark.errors import UserError
from seamark.model.service import Value

VERIFIED, UNVERIFIED = "verified", "unverified"


def tls_context(settings: Mapping[str, Value]) -> ssl.SSLContext | None:
    """Return the context for the settings `tls` (verified, unverified) and `tls_ca_file`; None without `tls`.

    A verified certificate is signed by an authority in `tls_ca_file` (PEM), else of the system, and matches the host.
    Raises UserError for other values and for a file without a certificate.
    """
    how, ca_file = settings.get("tls"), settings.get("tls_ca_file")
    if how is None:
        if ca_file is not None:
            raise UserError("tls_ca_file: connections are plain. Set tls: verified as well, or leave this out.")
        return None
    if how not in (VERIFIED, UNVERIFIED):
        raise UserError(f"tls: '{how}' is not a value of tls; use {VERIFIED} or {UNVERIFIED}.")
    try:
        context = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except OSError as cause:
        raise UserError(f"tls_ca_file: {ca_file} contains no readable certificate ({reason_of(cause)}).") from cause
    context.set_alpn_protocols(["http/1.1"])
    if how == UNVERIFIED:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def reason_of(error: OSError) -> str:
    """Return the message of an error without numbers and C source lines."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return (error.strerror or str(error)).lower()
