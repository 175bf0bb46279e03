#!/bin/bash
# Makes sure that the Debian packages that Cria needs are installed: at once when they are, by
# apt-get (with sudo unless root) when some are not. Run it as often as you like; ./cria does.
#   tools/setup.sh           install what is missing
#   tools/setup.sh --list    print the packages
set -euo pipefail

PACKAGES=(
  # The build: Debian's Bazel and its rules, the compiler.
  bazel-bootstrap bazel-platforms bazel-rules-cc bazel-rules-java bazel-rules-proto bazel-skylib
  g++ pkg-config python3
  # The libraries (WORKSPACE declares them).
  libabsl-dev libbenchmark-dev libcli11-dev libdnnl-dev libgtest-dev libpcre2-dev libspdlog-dev
  libxxhash-dev libyaml-cpp-dev libzstd-dev nlohmann-json3-dev
  # The collectives: an MPI backend and gloo, which the benchmark compares with; network namespaces
  # play hosts in tests.
  iproute2 libgloo-dev libopenmpi-dev openmpi-bin
  # The embedded corpus of `cria train`.
  bible-kjv
)

if [[ ${1:-} == --list ]]; then
  printf '%s\n' "${PACKAGES[@]}"
  exit 0
fi

fail() {
  echo "tools/setup.sh: $*" >&2
  exit 1
}

command -v dpkg-query > /dev/null ||
  fail "needs Debian 12 (no dpkg-query here); install these by hand: ${PACKAGES[*]}"

installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "${PACKAGES[@]}" 2> /dev/null |
  sed -n 's/^ii  *//p') || true
missing=()
for package in "${PACKAGES[@]}"; do
  [[ $'\n'$installed$'\n' == *$'\n'"$package"$'\n'* ]] || missing+=("$package")
done
((${#missing[@]} > 0)) || exit 0

command -v apt-get > /dev/null || fail "no apt-get here; install by hand: ${missing[*]}"
as_root=()
if ((EUID != 0)); then
  command -v sudo > /dev/null ||
    fail "not root and no sudo; as root: apt-get install --no-install-recommends ${missing[*]}"
  as_root=(sudo)
fi

echo "tools/setup.sh: installing ${missing[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -y -q -o DPkg::Lock::Timeout=300 "$@" > "$log" 2>&1 < /dev/null
}
# The lists may be old but good enough: only a failed install makes the failed update the reason.
apt update || echo "tools/setup.sh: apt-get update failed; trying with the lists at hand" >&2
apt install --no-install-recommends "${missing[@]}" || {
  tail -20 "$log" >&2
  fail "apt-get could not install: ${missing[*]}"
}
