#!/bin/bash
# The copies of a kernel for AVX-512, AVX2 and the baseline share no symbol. An inline function that
# two of them (or any other code) define under one name is merged by the linker, which may keep the
# AVX-512 copy: a crash on a machine without it. So each weak symbol of such an object must lie in
# the namespace of its instruction set.
#
# Arguments: the archives, whose names end in the instruction set.
set -u
status=0
checked=0
for archive in "$@"; do
  case "$archive" in
    *.a) ;;
    *) continue ;;
  esac
  isa=$(basename "$archive" | sed 's/\.pic\.a$//; s/\.a$//; s/.*_//')
  if [[ "$(readlink -f "$archive")" == *-dbg/* ]] ||
    nm "$archive" 2>/dev/null | grep -qE '__(asan|ubsan|tsan)_'; then
    echo "SKIPPED: $archive is built for debugging, where nothing is inlined"
    continue
  fi
  # Mangled names: <length><name> of the namespace follows those of cria::model and below.
  foreign=$(nm --defined-only "$archive" 2>/dev/null | awk '$2 ~ /^[WVu]$/ {print $3}' |
    grep -v "${#isa}${isa}" | sort -u | c++filt)
  if [[ -n "$foreign" ]]; then
    echo "FAILED: $archive defines weak symbols outside namespace $isa:"
    echo "$foreign"
    status=1
  fi
  if ! nm --defined-only "$archive" 2>/dev/null | grep -q "${#isa}${isa}"; then
    echo "FAILED: $archive has no symbol of namespace $isa: is this the right file?"
    status=1
  fi
  checked=$((checked + 1))
done
echo "$checked archives checked"
exit $status
