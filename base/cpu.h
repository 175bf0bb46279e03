// Which instruction set our kernels use. Asked once, at start; never changes in a process.
//
// Kernels are compiled once per Isa (tools/cria.bzl: cria_isa_library) and chosen by ActiveIsa().
// CRIA_CPU_ISA=generic|avx2|avx512 in the environment lowers the choice, never raises it, so that
// one machine can test every path; it lowers oneDNN's choice as well (model/cpu/gemm.cc).
// Thread-safe.

#ifndef CRIA_BASE_CPU_H_
#define CRIA_BASE_CPU_H_

#include <string>

namespace cria {

enum class Isa {
  kGeneric,  // x86-64's baseline: SSE2
  kAvx2,     // AVX2, FMA, F16C
  kAvx512,   // AVX-512 F, BW, DQ, VL
};

// The best set that this CPU has and CRIA_CPU_ISA allows.
Isa ActiveIsa();

// True when bf16 dot products (vdpbf16ps) exist and ActiveIsa() is kAvx512.
bool CpuHasBf16();

// "generic", "avx2", "avx512".
const char* IsaName(Isa isa);

// The CPU's name as the kernel gives it: "AMD EPYC", and its core count: for benchmark headers.
std::string CpuName();

}  // namespace cria

#endif  // CRIA_BASE_CPU_H_
