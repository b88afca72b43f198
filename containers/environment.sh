#!/bin/sh
# Run inside an image that is being built: makes the environment of one lock file, in /opt/seamark/env or the folder of the
# second argument, from the wheels in /mnt if there are any, else from the network. What a lock says to the installer
# (`# pip:`, `# alias:`) is heeded.
set -eu
lock=$1
home=/opt/seamark
env=${2:-$home/env}
python=$env/bin/python
if ls /mnt/*.whl > /dev/null 2>&1; then
    export PIP_NO_INDEX=1 PIP_FIND_LINKS=/mnt
fi
python3 -m venv --without-pip "$env"
# shellcheck disable=SC2046
PIP_NO_CACHE_DIR=1 UV_CACHE_DIR=$home/installer/cache python3 $home/install.py "$python" --require-hashes --no-deps \
    --compile-bytecode $(sed -n 's/^# pip: *//p' "$lock") -r "$lock"
rm -rf $home/installer
packages=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
sed -n 's/^# alias: *//p' "$lock" | while IFS== read -r name _ version; do
    mkdir "$packages/$name-$version.dist-info"
    printf 'Metadata-Version: 2.1\nName: %s\nVersion: %s\n' "$name" "$version" > "$packages/$name-$version.dist-info/METADATA"
done
[ "$env" = $home/env ] || exit 0
ln -s "$packages" $home/site-packages
ln -s "$("$python" -c 'import sys; print(sys.base_prefix)')/lib" $home/libdir
