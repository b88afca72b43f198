"""Failures in pip's output: package, cause and remedy."""

import pytest

from seamark.services.runtimes.pip_failures import pip_failure

REFUSED = """\
WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after connection broken by \
'NewConnectionError('<pip._vendor.urllib3.connection.HTTPConnection object at 0x7f>: Failed to establish a new \
connection: [Errno 111] Connection refused')': /boto3/
ERROR: Could not find a version that satisfies the requirement boto3==1.40.1 (from versions: none)
ERROR: No matching distribution found for boto3==1.40.1
"""
NO_NAMES = """\
WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError(': Failed to establish a new \
connection: [Errno -3] Temporary failure in name resolution')': /simple/numpy/
ERROR: Could not install packages due to an OSError: HTTPSConnectionPool(host='files', port=443): Max retries exceeded
"""
HASHES = """\
ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated the package versions, \
please update the hashes. Otherwise, examine the package contents carefully; someone may have tampered with them.
    colorama==0.4.6 from https://host/colorama-0.4.6-py2.py3-none-any.whl (from -r x.lock (line 1)):
        Expected sha256 00001b2dfde2ab60cf9eb0d9f1c9b8fdfa9b1f81ab91b6e8c1b2a3d4e5f60718
        Expected     or 11111b2dfde2ab60cf9eb0d9f1c9b8fdfa9b1f81ab91b6e8c1b2a3d4e5f60718
             Got        4f1d9991f5acc0ca119f9d443620b77f9d6b33703e51011c16baf57afb285fc6
"""
UNLOCKED = """\
ERROR: In --require-hashes mode, all requirements must have their versions pinned with ==. These do not:
    MarkupSafe>=2.0 from https://host/MarkupSafe-3.0.3.whl (from jinja2==3.1.6->-r x.lock (line 1))
"""
OLD = """\
ERROR: Could not find a version that satisfies the requirement numpy==99.1 (from versions: 1.0, 2.0, 2.1)
ERROR: No matching distribution found for numpy==99.1
"""


@pytest.mark.parametrize(
    ("text", "package", "cause", "remedy"),
    [
        (REFUSED, "boto3==1.40.1", "cannot be reached", "PIP_INDEX_URL"),
        (NO_NAMES, "numpy", "cannot be reached", "PIP_FIND_LINKS"),
        (
            HASHES,
            "colorama==0.4.6",
            "sha256 00001b2dfde2... expected, 4f1d9991f5ac... received",
            "x.lock was changed",
        ),
        (UNLOCKED, "MarkupSafe>=2.0", "the lock has no hash for it", "Generate x.lock"),
        (OLD.replace("1.0, 2.0, 2.1", "none"), "numpy==99.1", "the index lacks it or cannot be reached", "proxy"),
        (OLD, "numpy==99.1", "no such version for this Python and machine (it has: 1.0, 2.0, 2.1)", "another"),
        ("OSError: [Errno 28] No space left on device: '/x'", None, "no space left", "paths.environments"),
    ],
)
def test_a_failure_of_pip_has_package_cause_and_remedy(
    text: str, package: str | None, cause: str, remedy: str
) -> None:
    failure = pip_failure(text, "x.lock")
    assert failure is not None
    assert failure.package == package
    assert cause in failure.cause
    assert remedy in failure.remedy
    assert (package or "there is") in str(failure)


def test_what_is_not_known_is_no_cause() -> None:
    assert pip_failure("ERROR: something new", "x.lock") is None
