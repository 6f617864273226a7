#!/usr/bin/env bash
# Prints the name of the image that Laurel's are built on: the Dockerfile's own where it is here or can be pulled, else a
# Debian with Python that is made here (which takes root and debootstrap). BASE_IMAGE names another.
set -euo pipefail
cd "$(dirname "$0")/.."

SUITE=bookworm
PACKAGES=python3,python3-pip,python3-venv,ca-certificates
MADE=laurel-base:$SUITE

say() { echo "docker: $*" >&2; }
is_here() { docker image inspect "$1" >/dev/null 2>&1; }

base=${BASE_IMAGE:-$(sed -n 's/^ARG BASE_IMAGE=//p' docker/Dockerfile)}
if is_here "$base" || timeout 300 docker pull --quiet "$base" >/dev/null 2>&1; then
    echo "$base"
    exit
fi
if [ -n "${BASE_IMAGE:-}" ]; then
    say "the base image $base is not here and cannot be pulled: name another with BASE_IMAGE"
    exit 1
fi
if ! is_here "$MADE"; then
    if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
        say "the base image $base cannot be pulled. As root with debootstrap (apt-get install debootstrap), one is made here;" \
            "or name one that is here with BASE_IMAGE"
        exit 1
    fi
    say "$base cannot be pulled: making a base image of Debian $SUITE"
    root=$(mktemp -d)
    trap 'rm -rf "$root"' EXIT
    debootstrap --variant=minbase --include="$PACKAGES" "$SUITE" "$root" >"$root.log" 2>&1 || {
        tail -n 30 "$root.log" >&2
        say "debootstrap failed"
        exit 1
    }
    rm -f "$root.log"
    tar -C "$root" --exclude=./var/cache/apt --exclude=./var/lib/apt/lists --exclude=./dev --exclude=./proc -c . |
        docker import - "$MADE" >/dev/null
fi
echo "$MADE"
