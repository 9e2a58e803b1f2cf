#!/bin/sh
# Prints the newest Python >= 3.12 of this machine that can make a virtual environment.
# Looks on PATH, then among pyenv's versions. A pyenv shim may exist without a Python behind
# it, so every candidate is run before it is believed.
set -u

usable() {
    "$1" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 12))' >/dev/null 2>&1
}

pyenv_root="${PYENV_ROOT:-$HOME/.pyenv}"
for minor in 14 13 12; do
    for candidate in \
        "$(command -v "python3.$minor")" \
        "$pyenv_root/versions/3.$minor".*/bin/python \
        "$HOME/.pyenv/versions/3.$minor".*/bin/python \
        "/usr/local/bin/python3.$minor" \
        "/opt/homebrew/bin/python3.$minor"; do
        if [ -x "$candidate" ] && usable "$candidate"; then
            echo "$candidate"
            exit 0
        fi
    done
done
if usable python3; then
    command -v python3
    exit 0
fi

echo "shardc needs Python 3.12 or newer, with venv; found only: $(python3 --version 2>&1)" >&2
echo "help: install one, for example 'pyenv install 3.13' or 'apt install python3.12-venv'" >&2
exit 1
