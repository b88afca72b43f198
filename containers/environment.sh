#!/bin/sh
# Run inside an image that is being built: makes the environment of one lock file in /opt/seamark/env, from the wheels
# in /mnt if there are any, else from the network. What a lock says to the installer (`# pip:`, `# alias:`) is heeded.
set -eu
lock=$1
home=/opt/seamark
python=$home/env/bin/python
python3 -m venv $home/env
# shellcheck disable=SC2046
set -- $(sed -n 's/^# pip: *//p' "$lock")
if ls /mnt/*.whl > /dev/null 2>&1; then
    set -- "$@" --no-index --find-links /mnt
fi
$python -m pip install --quiet --disable-pip-version-check --no-input --no-cache-dir --require-hashes --no-deps "$@" -r "$lock"
packages=$($python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
sed -n 's/^# alias: *//p' "$lock" | while IFS== read -r name _ version; do
    mkdir "$packages/$name-$version.dist-info"
    printf 'Metadata-Version: 2.1\nName: %s\nVersion: %s\n' "$name" "$version" > "$packages/$name-$version.dist-info/METADATA"
done
ln -s "$packages" $home/site-packages
ln -s "$($python -c 'import sys; print(sys.base_prefix)')/lib" $home/libdir
