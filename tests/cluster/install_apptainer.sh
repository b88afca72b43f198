#!/bin/bash
# Installs the real Apptainer on Debian, as root: the distribution's own package, or, where there is none, that of
# Debian's unstable suite. Does nothing where `apptainer` runs already. What is downloaded is kept in the cache folder.
#
# The package of a newer suite asks for a newer libc, of which its programs use two functions under new names:
# old_libc.py gives them their old names, and the package asks for the libc that is here. The system's libc is not touched.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=${SEAMARK_CACHE:-$HOME/.cache/seamark}/cluster/apptainer
suite=${APPTAINER_SUITE:-sid}
say() { echo "install_apptainer: $*" >&2; }

mkdir -p "$work"
exec 9> "$work/.lock"
flock 9

if apptainer version > /dev/null 2>&1; then
    say "there already: $(apptainer version)"
    exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get dpkg-deb > /dev/null; then
    say "there is no apptainer, and only root can install it, from packages of Debian"
    exit 3
fi
export DEBIAN_FRONTEND=noninteractive
cd "$work"
log=$work/apt.log

install() {
    apt-get install -y --no-install-recommends "$@" >> "$log" 2>&1
}

# With an index of its own, so that the system's list of packages stays as it is; from the archive the machine uses.
download() {
    local archive
    archive=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
        awk '$2 !~ /security/ {print $1; exit}')
    rm -rf apt
    mkdir -p apt/lists/partial apt/cache/archives/partial
    echo "deb [trusted=yes] $archive $suite main" > apt/sources.list
    local options=(-o "Dir::Etc::sourcelist=$work/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o "Dir::State::Lists=$work/apt/lists" -o "Dir::Cache=$work/apt/cache" -o APT::Sandbox::User=root
        -o Acquire::Languages=none)
    apt-get "${options[@]}" update -qq >> "$log" 2>&1
    apt-get "${options[@]}" download apptainer >> "$log" 2>&1
    rm -rf apt
}

if ! install apptainer; then
    compgen -G "apptainer_*.deb" > /dev/null || download
    package=$(compgen -G "apptainer_*.deb" | head -1)
    libc=$(dpkg-query -W -f='${Version}' libc6 | grep -oE '^[0-9]+\.[0-9]+')
    if dpkg --compare-versions "$libc" lt 2.38; then
        rm -rf unpacked
        dpkg-deb -R "$package" unpacked
        mapfile -t programs < <(find unpacked/usr -type f \( -name apptainer -o -name starter -o -name '*.so' \) -size +8k)
        python3 "$here/old_libc.py" "$libc" "${programs[@]}" >> "$log" 2>&1
        sed -i -e '/^Depends:/s/libc6 (>= [0-9.]*)/libc6 (>= 2.34)/' -e '/^Version:/s/$/~oldlibc1/' \
            unpacked/DEBIAN/control
        (cd unpacked && find usr etc -type f -print0 2> /dev/null | xargs -0 md5sum > DEBIAN/md5sums)
        dpkg-deb --root-owner-group -Zgzip -z1 -b unpacked fitted.deb > /dev/null
        rm -rf unpacked
        package=fitted.deb
    fi
    install "./$package" || { tail -5 "$log" >&2; exit 1; }
fi
install squashfuse || say "without squashfuse, images are unpacked at each start"
say "installed: $(apptainer version)"
