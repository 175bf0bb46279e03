// Files as torch.save writes them, made byte by byte, so that tests need no PyTorch.
//
//   TorchBuilder file;
//   file.Add("norm.weight", StDtype::kF32, {2}, {1}, bytes);
//   file.Build()      // the zip's bytes
//
// Single-threaded.

#ifndef CRIA_TESTS_UNIT_MODEL_IO_TORCH_BUILDER_H_
#define CRIA_TESTS_UNIT_MODEL_IO_TORCH_BUILDER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/io/safetensors.h"

namespace cria::model {

// A zip file of stored entries; with zip64, all sizes and offsets stand in zip64 fields.
std::string BuildZip(const std::vector<std::pair<std::string, std::string>>& entries,
                     bool zip64 = false);

// Opcodes of pickle, protocol 2.
std::string PickleText(const std::string& text);
std::string PickleInteger(int64_t value);
std::string PickleGlobal(const std::string& module, const std::string& name);
std::string PickleTuple(const std::vector<std::string>& items);

class TorchBuilder {
 public:
  // `bytes` is the storage; strides and offset count elements.
  void Add(const std::string& name, StDtype dtype, const std::vector<int64_t>& shape,
           const std::vector<int64_t>& strides, const std::string& bytes, int64_t offset = 0);

  // An entry of the dict whose value is this pickle.
  void AddRaw(const std::string& name, const std::string& pickle);

  std::string Pickle() const;
  std::string Build(bool zip64 = false) const;

 private:
  std::vector<std::pair<std::string, std::string>> items_;  // name, pickle
  std::vector<std::string> storages_;
};

}  // namespace cria::model

#endif  // CRIA_TESTS_UNIT_MODEL_IO_TORCH_BUILDER_H_
