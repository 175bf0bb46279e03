// A file of torch.save as bytes: a zip of a pickle and storages. For seeds.
//
//   TorchBytes({{"norm.weight", {8}, bf16_bytes}})
//
// Thread-safe.

#ifndef CRIA_TESTS_FUZZ_TORCH_BYTES_H_
#define CRIA_TESTS_FUZZ_TORCH_BYTES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace cria::fuzz {

struct TorchTensor {
  std::string name;
  std::vector<int64_t> shape;  // one or two dimensions
  std::string bytes;           // bf16, row-major
};

// A storage for each tensor.
std::string TorchBytes(const std::vector<TorchTensor>& tensors);

}  // namespace cria::fuzz

#endif  // CRIA_TESTS_FUZZ_TORCH_BYTES_H_
