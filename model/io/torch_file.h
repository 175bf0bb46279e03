// Files of torch.save that hold a dict of tensors: PyTorch's zip of a pickle and its storages.
//
//   CRIA_ASSIGN_OR_RETURN(const TorchFile file, TorchFile::Open("consolidated.00.pth"));
//   for (const StridedTensor& tensor : file.tensors()) { tensor.name, tensor.shape }
//
//   consolidated.00/data.pkl      the dict: names, shapes, strides, which storage, from where
//   consolidated.00/data/0 ...    storages, little-endian
//   consolidated.00/byteorder     "little"
//
// No code of the file runs: of the pickle's globals, those that rebuild tensors are understood and
// every other is an error that names it (pickle.h). Strided views, of transposed tensors say, are
// read as they are. Refused: tensors of no dict, files of before PyTorch 1.6 (no zip), big-endian
// ones. Hostile files: see zip_archive.h and pickle.h; each view is checked against its storage.
// Thread-safe after Open; views live as long as the file.
// Source: torch/serialization.py and torch/_utils.py of PyTorch 2.

#ifndef CRIA_MODEL_IO_TORCH_FILE_H_
#define CRIA_MODEL_IO_TORCH_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "model/io/safetensors.h"

namespace cria::model {

// A tensor of one or two dimensions in somebody's memory.
struct StridedTensor {
  std::string name;
  StDtype dtype = StDtype::kF32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  // elements, not negative
  std::string_view data;         // from the first element to the last; may be unaligned

  int64_t rows() const { return shape[0]; }
  int64_t columns() const { return shape.size() > 1 ? shape[1] : 1; }
};

// The elements of a row, one after another, to `to`. The row exists: CHECKed.
void CopyRow(const StridedTensor& tensor, int64_t row, char* to);

class TorchFile {
 public:
  // NotFound when there is no such file; InvalidArgument for what is not understood, DataLoss for
  // what is damaged, with the file, the tensor and the values.
  static StatusOr<TorchFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  // In the file's order; no name twice.
  const std::vector<StridedTensor>& tensors() const { return tensors_; }

 private:
  TorchFile() = default;

  std::string path_;
  MappedFile file_;
  std::vector<StridedTensor> tensors_;
};

}  // namespace cria::model

#endif  // CRIA_MODEL_IO_TORCH_FILE_H_
