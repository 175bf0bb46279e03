#!/bin/bash
# Fuzzes one reader, or each in turn, with libFuzzer under AddressSanitizer and UBSan.
#
#   tools/fuzz.sh TARGET|all [SECONDS] [FOLDER]      # 600 seconds, ~/.cache/cria/fuzz
#
# Targets are those of tests/fuzz/BUILD. FOLDER keeps the corpus (FOLDER/TARGET), what was found
# (FOLDER/TARGET.crash-...), and libFuzzer's own log (FOLDER/TARGET.log). Exit status: 0 nothing
# found, 1 something was, 2 usage. Needs Debian's packages clang, libclang-rt-14-dev and libomp-dev,
# which nothing else here needs.
set -euo pipefail

root=$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")
packages=(clang libclang-rt-14-dev libomp-dev)
: "${HOME:=$(getent passwd "$EUID" | cut -d: -f6)}"
export HOME

die() {
  echo "tools/fuzz.sh: $1" >&2
  exit "$2"
}

targets() {
  sed -n '/^cria_fuzz_target(/{n;s/.*name = "\(.*\)",/\1/p}' "$root/tests/fuzz/BUILD"
}

missing_packages() {
  local package
  for package in "${packages[@]}"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null) == installed ]] ||
      echo "$package"
  done
}

# Usage: fuzz TARGET SECONDS FOLDER
fuzz() {
  local target=$1 seconds=$2 folder=$3 binary status=0
  local bazel=(bazel ${CRIA_FUZZ_OUTPUT_BASE:+--output_base="$CRIA_FUZZ_OUTPUT_BASE"})
  (cd "$root" && "${bazel[@]}" build --config=fuzz --symlink_prefix=/ --noshow_progress \
    --ui_event_filters=-INFO "//tests/fuzz:${target}_fuzz") ||
    die "the build of $target failed" 1
  binary=$(cd "$root" && "${bazel[@]}" info --config=fuzz bazel-bin 2> /dev/null)
  mkdir -p "$folder/$target"
  # Bazel may replace its own copy while this one runs.
  cp -f "$binary/tests/fuzz/${target}_fuzz" "$folder/$target.bin"
  # One page of memory at /dev/shm instead of a disk under every input.
  local scratch
  scratch=$(mktemp -d "$([[ -d /dev/shm ]] && echo /dev/shm || echo /tmp)/cria_fuzz.XXXXXX")
  CRIA_FUZZ_SEEDS=$folder/$target TMPDIR=$scratch "$folder/$target.bin" ||
    die "the seeds of $target could not be written" 1
  TMPDIR=$scratch ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 OMP_NUM_THREADS=1 \
    nice -n 19 "$folder/$target.bin" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -malloc_limit_mb=256 -max_len=65536 -print_final_stats=1 \
    -artifact_prefix="$folder/$target." "$folder/$target" > "$folder/$target.log" 2>&1 || status=$?
  rm -rf "$scratch"
  grep -h '^Done\|^stat::number_of_executed_units\|^SUMMARY' "$folder/$target.log" |
    sed "s/^/$target: /" || true
  ((status == 0)) || echo "$target: FOUND (exit $status), see $folder/$target.log"
  return "$((status != 0))"
}

main() {
  case ${1:-} in
    --help | -h)
      sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    '') die "which target? one of: all $(targets | tr '\n' ' ')" 2 ;;
  esac
  local target=$1 seconds=${2:-600} folder=${3:-${XDG_CACHE_HOME:-$HOME/.cache}/cria/fuzz}
  [[ $seconds =~ ^[1-9][0-9]*$ ]] || die "\"$seconds\" is no number of seconds" 2
  [[ $target == all ]] || targets | grep -qx -- "$target" ||
    die "no target \"$target\"; there are: all $(targets | tr '\n' ' ')" 2
  local missing
  missing=$(missing_packages)
  [[ -z $missing ]] || die "apt-get install $(tr '\n' ' ' <<< "$missing")" 1
  mkdir -p "$folder"
  local found=0 each
  for each in $([[ $target == all ]] && targets || echo "$target"); do
    fuzz "$each" "$seconds" "$folder" || found=1
  done
  return "$found"
}

main "$@"
