"""TLS of a wire driver's connections: whose certificates are believed. Knows no service."""

import ssl
from collections.abc import Mapping

from seamark.errors import UserError
from seamark.model.service import Value

VERIFIED, UNVERIFIED = "verified", "unverified"


def tls_context(settings: Mapping[str, Value]) -> ssl.SSLContext | None:
    """Return what the settings `tls` (verified, unverified) and `tls_ca_file` ask for; None without `tls`.

    A verified certificate is vouched for by the authorities of `tls_ca_file` (PEM), else by the system's, and names
    the host. Raises UserError for other words and for a file that holds no certificate.
    """
    how, ca_file = settings.get("tls"), settings.get("tls_ca_file")
    if how is None:
        if ca_file is not None:
            raise UserError("tls_ca_file: connections are plain. Set tls: verified as well, or leave this out.")
        return None
    if how not in (VERIFIED, UNVERIFIED):
        raise UserError(f"tls: '{how}' is neither {VERIFIED} nor {UNVERIFIED}.")
    try:
        context = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except OSError as cause:
        raise UserError(f"tls_ca_file: {ca_file} holds no certificate that can be read ({said(cause)}).") from cause
    context.set_alpn_protocols(["http/1.1"])
    if how == UNVERIFIED:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def said(error: OSError) -> str:
    """Return what an error says, without numbers and lines of C."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return (error.strerror or str(error)).lower()
