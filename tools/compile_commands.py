#!/usr/bin/env python3
"""Writes compile_commands.json at the repository's root, for clangd and clang-tidy.

Asks Bazel how it would compile each C++ file; builds nothing. Run it again after a change of BUILD
files. Headers of third parties lie in /usr/include, so the commands work outside the sandbox.

    tools/compile_commands.py [TARGET PATTERN]      the default is //...
"""

import json
import os
import subprocess
import sys


def main():
    root = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    pattern = sys.argv[1] if len(sys.argv) > 1 else "//..."
    result = subprocess.run(
        ["bazel", "aquery", 'mnemonic("CppCompile", %s)' % pattern, "--output=jsonproto",
         "--noshow_progress", "--ui_event_filters=-INFO"],
        cwd=root, stdout=subprocess.PIPE, check=False)
    if result.returncode != 0:
        print("compile_commands.py: bazel aquery failed", file=sys.stderr)
        return 1
    commands = {}
    for action in json.loads(result.stdout).get("actions", []):
        arguments = action["arguments"]
        # ... -c SOURCE -o OBJECT; a source compiled for several instruction sets keeps one entry.
        source = arguments[arguments.index("-c") + 1]
        if source.startswith("external/"):
            continue
        # A flag of g++ alone, which clang's tools would refuse.
        arguments = [a for a in arguments if a != "-fno-canonical-system-headers"]
        commands[source] = {"directory": root, "file": source, "arguments": arguments}
    path = os.path.join(root, "compile_commands.json")
    with open(path + ".tmp", "w", encoding="utf-8") as out:
        json.dump([commands[source] for source in sorted(commands)], out, indent=1)
        out.write("\n")
    os.replace(path + ".tmp", path)
    print("%s: %d files" % (path, len(commands)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
