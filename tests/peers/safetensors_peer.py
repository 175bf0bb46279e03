"""Reads ours.safetensors with the reference implementation, writes its content to theirs.safetensors.

Then tries each file bad_*.safetensors of the folder and prints the names of those that it accepts.
"""

import pathlib
import sys

try:
    import numpy
    from safetensors import safe_open
    from safetensors.numpy import save_file
except ImportError as error:
    print(error)
    sys.exit(77)

folder = pathlib.Path(sys.argv[1])
with safe_open(folder / "ours.safetensors", framework="np") as file:
    tensors = {name: file.get_tensor(name) for name in file.keys()}
    metadata = file.metadata()
save_file(tensors, folder / "theirs.safetensors", metadata=metadata)

for path in sorted(folder.glob("bad_*.safetensors")):
    try:
        with safe_open(path, framework="np") as file:
            list(file.keys())
        print(path.name)
    except Exception:  # the reference has one exception type, which is not exported everywhere
        pass
