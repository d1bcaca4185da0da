#!/usr/bin/env python3
"""Builds FlashInfer's programs (flashinfer_*.cu) from the headers of an installed flashinfer-python, or of a folder.

    tests/cuda/peers/build.py [--flashinfer FOLDER] [--out FOLDER]

FOLDER of FlashInfer, also in the variable PEERS_FLASHINFER: one with include/flashinfer and, for XQA, csrc/xqa, such as a checkout
or the package's own `data`. Needs nvcc (PATH, CUDACXX or /usr/local/cuda), and no GPU. `./dev pack` takes build/peers along.
"""

import argparse
import concurrent.futures
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

from cases import ATTENTION

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]

COMMON = ["-std=c++20", "-O3", "-DNDEBUG", "-use_fast_math", "--expt-relaxed-constexpr", "-diag-suppress", "177,179,186",
          "-Xcompiler", "-static-libstdc++,-static-libgcc"]  # for machines whose own C++ library is older
TYPES = [f"-DFLASHINFER_ENABLE_{name}" for name in ("F16", "BF16", "FP8_E4M3", "FP8_E5M2")]
# bf16 queries and pool, pages of 16, heads of 128, one token a sequence.
XQA = ["-DBEAM_WIDTH=1", "-DUSE_INPUT_KV=0", "-DUSE_CUSTOM_BARRIER=1", "-DTOKENS_PER_PAGE=16", "-DHEAD_ELEMS=128", "-DINPUT_FP16=0",
       "-DDTYPE=__nv_bfloat16", "-DCACHE_ELEM_ENUM=0", "-DSLIDING_WINDOW=0", "-DLOW_PREC_OUTPUT=0", "-DSPEC_DEC=0", "-DMLA_WRAPPER=0",
       "-DUSE_SM90_MHA=0"]


class Missing(Exception):
    """Something that is to be installed, or named."""


def find_flashinfer(named):
    """The folder with include/flashinfer, and the version that it has."""
    named = named or os.environ.get("PEERS_FLASHINFER")
    if named:
        folder = pathlib.Path(named).resolve()
        version_file = folder / "version.txt"
        version = version_file.read_text().strip() if version_file.is_file() else "of unknown version"
    else:
        package = importlib.util.find_spec("flashinfer")
        if not package or not package.origin:
            raise Missing("FlashInfer is not there: install the Python package flashinfer-python, or name a folder that has its "
                          "include/flashinfer and csrc/xqa by --flashinfer or the variable PEERS_FLASHINFER")
        folder = pathlib.Path(package.origin).resolve().parent / "data"
        version = importlib.metadata.version("flashinfer-python")
    if not (folder / "include" / "flashinfer").is_dir():
        raise Missing(f"{folder} has no include/flashinfer: it must be a checkout of FlashInfer, or the data folder of its package")
    return folder, version


def find_nvcc():
    for candidate in (os.environ.get("CUDACXX"), shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"):
        if candidate and pathlib.Path(candidate).is_file():
            return candidate
    raise Missing("nvcc is not there: put it on PATH, or name it by the variable CUDACXX")


def find_architecture():
    """Of the GPU, where there is one: "90a"."""
    try:
        found = subprocess.run(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"], capture_output=True, text=True,
                               check=True)
        capability = found.stdout.split()[0].replace(".", "")
    except (OSError, subprocess.CalledProcessError, IndexError):
        return "90a"
    return capability + "a" if int(capability) >= 90 else capability


def include_flags(folder, nvcc):
    """FlashInfer's headers, those of CCCL that its package brings, and a stand-in where there are none and CUDA's are too old."""
    flags = ["-I", str(folder / "include")]
    for cccl in (folder / "cccl", folder / "3rdparty" / "cccl"):
        for part in ("libcudacxx/include", "cub", "thrust"):
            if (cccl / part).is_dir():
                flags += ["-I", str(cccl / part)]
    if "fast_mod_div" in (folder / "include/flashinfer/fastdiv.cuh").read_text():
        probe = "#include <cuda/cmath>\nusing Division = cuda::fast_mod_div<unsigned>;\n"
        found = subprocess.run([nvcc, "-std=c++20", "-x", "cu", "-c", "-o", os.devnull, *flags, "-"], input=probe, text=True,
                               capture_output=True)
        if found.returncode != 0:
            flags += ["-include", str(HERE / "fast_division.cuh")]
    return flags


def programs_of(folder, nvcc):
    """Names of programs, and what nvcc is told for each."""
    include = include_flags(folder, nvcc)
    plan = (folder / "include/flashinfer/attention/scheduler.cuh").read_text()
    newer = ["-DPEERS_PLANS_UNIFORM_LENGTH"] if "uniform_q_len" in plan else []
    programs = {"flashinfer_decode": [*TYPES, *newer, *include, str(HERE / "flashinfer_decode.cu")],
                "flashinfer_topk": [*TYPES, *include, str(HERE / "flashinfer_topk.cu")]}
    if (folder / "csrc/xqa/mha.cu").is_file():
        for group in sorted({case.group for case in ATTENTION}):
            programs[f"flashinfer_xqa_{group}"] = [*XQA, f"-DHEAD_GRP_SIZE={group}", "-I", str(folder / "csrc/xqa"),
                                                   str(HERE / "flashinfer_xqa.cu")]
    else:
        print(f"{folder} has no csrc/xqa: XQA is left out", file=sys.stderr)
    return programs


def build(flashinfer, out, jobs=None):
    """Builds what can be built. Returns the names of programs that could not be."""
    folder, version = find_flashinfer(flashinfer)
    nvcc = find_nvcc()
    architecture = find_architecture()
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    for older in out.glob("flashinfer_*"):  # which may be of another version
        older.unlink()
    target = ["-gencode", f"arch=compute_{architecture},code=sm_{architecture}"]
    print(f"building FlashInfer {version} ({folder}) for sm_{architecture} into {out}", flush=True)

    def compile_one(name, flags):
        done = subprocess.run([nvcc, *COMMON, *target, *flags, "-o", str(out / name)], capture_output=True, text=True)
        if done.returncode != 0:
            print(f"{name} could not be built:\n{done.stderr[-4000:]}", file=sys.stderr, flush=True)
        return done.returncode == 0

    programs = programs_of(folder, nvcc)
    with concurrent.futures.ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        built = dict(zip(programs, pool.map(compile_one, programs, programs.values())))
    about = {"flashinfer": version, "architecture": f"sm_{architecture}", "programs": sorted(name for name in built if built[name])}
    (out / "build.json").write_text(json.dumps(about, indent=2) + "\n")
    return sorted(name for name in built if not built[name])


def main():
    parser = argparse.ArgumentParser(description="Builds FlashInfer's programs to measure beside Sluice.")
    parser.add_argument("--flashinfer", metavar="FOLDER", help="with include/flashinfer; else PEERS_FLASHINFER, or the Python package")
    parser.add_argument("--out", metavar="FOLDER", default=ROOT / "build" / "peers", help="of the programs (build/peers)")
    parser.add_argument("--jobs", type=int, help="compilers at once; by default as many as there are cores")
    arguments = parser.parse_args()
    try:
        failed = build(arguments.flashinfer, arguments.out, arguments.jobs)
    except Missing as missing:
        sys.exit(f"build.py: {missing}")
    if failed:
        sys.exit(f"build.py: not built: {', '.join(failed)}")


if __name__ == "__main__":
    main()
