#!/bin/sh
# Renews every lock: one for the base environment, one with the development tools, one for each service. With names,
# only the locks of those services. What a .in says to the installer (`# pip:`, `# alias:`) is said by its lock too.
set -eu
cd "$(dirname "$0")/.."
compile() { uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
    --index-strategy unsafe-best-match --no-emit-index-url --no-emit-find-links --quiet "$@"; }
if [ $# -eq 0 ]; then
    echo 'setuptools>=77' | compile pyproject.toml - -o envs/base.lock
    echo 'setuptools>=77' | compile pyproject.toml --extra dev - -o envs/dev.lock
    for wanted in envs/*.in; do
        name=${wanted##*/}
        set -- "$@" "${name%.in}"
    done
fi
for name; do
    wanted=envs/$name.in lock=envs/$name.lock
    # shellcheck disable=SC2046
    compile $(sed -n 's/^# pip: //p' "$wanted") "$wanted" -o "$lock"
    { grep -E '^# (pip|alias): ' "$wanted" || :; cat "$lock"; } > "$lock.new"
    mv "$lock.new" "$lock"
done
