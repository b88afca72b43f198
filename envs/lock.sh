#!/bin/sh
# Renews every lock: one for the base environment, one with the development tools, one for each service.
set -eu
cd "$(dirname "$0")/.."
compile() { uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
    --no-emit-index-url --no-emit-find-links --quiet "$@"; }
echo 'setuptools>=77' | compile pyproject.toml - -o envs/base.lock
echo 'setuptools>=77' | compile pyproject.toml --extra dev - -o envs/dev.lock
for wanted in envs/*.in; do
    compile "$wanted" -o "${wanted%.in}.lock"
done
