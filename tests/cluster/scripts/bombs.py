# SPDX-License-Identifier: Apache-2.0
"""bombs.py SOCKET: asks colocd for tickets for texts that are short to send and long to read, each
a new one, on eight connections. Run as a user with the system's Python."""

import base64
import itertools
import json
import socket
import sys
import threading
import time
import zlib

RULE = "=" * 60
count = itertools.count()


def table(salt: str) -> str:
    """A small model that nobody has sent before."""
    row = "├─Linear: 1-1 [8, 64] 4,160\n"
    head = "Layer (type:depth-idx)   Output Shape   Param #"
    return (
        f"{RULE}\n{head}\n{RULE}\nNet{salt} [8, 64] --\n{row * 20}{RULE}\n"
        f"Total params: 83,200\nTrainable params: 83,200\nNon-trainable params: 0\n{RULE}\n"
    )


def models(salt: int) -> str:
    """An array of a thousand models, which take more processor time than a text may."""
    return "\f\n".join(table(f"{salt}x{number}") for number in range(1020))


def pieces(salt: int) -> str:
    """4 MiB of an array's summaries of one character."""
    return f"{salt}\n" + "a\n\f\n" * 1_048_500


def printed(salt: int) -> str:
    """print(model) of more rows than may be."""
    return f"Net{salt}(\n" + "  (0): Linear(in_features=64, out_features=64)\n" * 45_000 + ")"


def recording(salt: int) -> str:
    """A recording about as long as may be: LEB128 of one size and of allocations of it."""
    events, number = 190_000 + salt % 5000, b""
    data = bytes([1, 128, 32, 0, 0, 0, 0, 0, 0])
    rest = events
    while rest > 127:
        number, rest = number + bytes([rest & 127 | 128]), rest >> 7
    data += number + bytes([rest]) + bytes(events)
    packed = base64.b64encode(zlib.compress(data, 9)).decode()
    lines = "\n".join(packed[at : at + 96] for at in range(0, len(packed), 96))
    mark = "coloc-recording:"
    return (
        f"{mark} begin 1\n{mark} torch=2.13.0 batch=1 scales=yes precision=fp32 optimizer=adamw\n"
        f"{mark} accumulate=1 seq_len=0 models=1 family=mlp elements=4096 trainable=4096\n"
        f"{lines}\n{mark} end {zlib.crc32(data):08x}\n"
    )


KINDS = (models, pieces, printed, recording)


def request(number: int) -> bytes:
    """A line for a new text."""
    text = KINDS[number % len(KINDS)](number)
    packed = base64.b64encode(zlib.compress(text.encode(), 6)).decode()
    coloc = {"summary": packed, "batch_size": 8}
    return json.dumps({"v": 1, "op": "ticket", "coloc": coloc}).encode() + b"\n"


def send(path: str) -> None:
    """One text after the other, for ever."""
    while True:
        try:
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(path)
                for number in count:
                    peer.sendall(request(number))
                    if not peer.recv(1 << 16):
                        break
        except OSError:
            time.sleep(0.01)


if __name__ == "__main__":
    for _ in range(8):
        threading.Thread(target=send, args=(sys.argv[1],), daemon=True).start()
    print("floods", flush=True)
    time.sleep(300)
