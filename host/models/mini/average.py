"""Averages two models of one ancestry, weight by weight: the second one counts SHARE, the first one the rest.

    python3 average.py FIRST.safetensors SECOND.safetensors SHARE OUT.safetensors

Needs nothing but Python. Both files must be bfloat16 and hold the same tensors in the same order.
"""
import array
import json
import struct
import sys
from pathlib import Path


def read(path):
    """The header's bytes (with their length before them) and the weights as bfloat16 bit patterns."""
    data = Path(path).read_bytes()
    end = 8 + struct.unpack("<Q", data[:8])[0]
    kinds = {entry["dtype"] for name, entry in json.loads(data[8:end]).items() if name != "__metadata__"}
    assert kinds == {"BF16"}, kinds
    return data[:end], array.array("H", data[end:])


def floats(bits):
    """bfloat16 is the upper half of a float32."""
    return array.array("f", array.array("I", (pattern << 16 for pattern in bits)).tobytes())


def rounded(values):
    """To the nearest bfloat16, ties to even."""
    patterns = array.array("I", values.tobytes())
    return array.array("H", ((pattern + 0x7FFF + (pattern >> 16 & 1)) >> 16 for pattern in patterns))


def main():
    first, second, share, out = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]
    header, weights = read(first)
    other_header, others = read(second)
    assert header == other_header, "different tensors"
    mixed = array.array("f", ((1 - share) * a + share * b for a, b in zip(floats(weights), floats(others))))
    Path(out).write_bytes(header + rounded(mixed).tobytes())


if __name__ == "__main__":
    main()
