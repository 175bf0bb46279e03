#include "base/cpu.h"

#include <cstdlib>
#include <fstream>
#include <string_view>

#include "base/str.h"

namespace cria {
namespace {

Isa DetectIsa() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return Isa::kAvx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::kAvx2;
  return Isa::kGeneric;
}

Isa ChooseIsa() {
  const Isa best = DetectIsa();
  const char* wish = std::getenv("CRIA_CPU_ISA");
  if (wish == nullptr) return best;
  for (const Isa isa : {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512}) {
    if (std::string_view(wish) == IsaName(isa)) return isa < best ? isa : best;
  }
  return best;
}

}  // namespace

Isa ActiveIsa() {
  static const Isa isa = ChooseIsa();
  return isa;
}

bool CpuHasBf16() {
  static const bool has = ActiveIsa() == Isa::kAvx512 && __builtin_cpu_supports("avx512bf16") != 0;
  return has;
}

const char* IsaName(Isa isa) {
  switch (isa) {
    case Isa::kGeneric:
      return "generic";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "?";
}

std::string CpuName() {
  std::ifstream info("/proc/cpuinfo");
  std::string name = "unknown CPU";
  int cores = 0;
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("processor", 0) == 0) ++cores;
    if (line.rfind("model name", 0) == 0) name = line.substr(line.find(':') + 2);
  }
  return StrCat(name, ", ", cores, " cores, ", IsaName(ActiveIsa()), CpuHasBf16() ? "+bf16" : "");
}

}  // namespace cria
