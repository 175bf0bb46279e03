#include "tests/unit/trainer/checkpoint/checkpoint_fixture.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

#include "base/file.h"

namespace cria::trainer {
namespace {

using model::StDtype;

std::string_view BytesOf(const std::vector<float>& values, size_t first, size_t count) {
  return {reinterpret_cast<const char*>(values.data() + first), count * sizeof(float)};
}

Status CheckValues(std::string_view bytes, float expected, const std::string& what) {
  for (size_t i = 0; i < bytes.size(); i += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, bytes.data() + i, sizeof(float));
    if (value != expected) return DataLossError(what, " holds ", value, ", expected ", expected);
  }
  return OkStatus();
}

}  // namespace

TinyRun::TinyRun(int64_t step, int variant) {
  state.step = step;
  state.tokens = step * 1000 + variant;
  state.samples = step * 10;
  state.seed = 0xfedcba9876543210;
  state.config_yaml = "precision: fp32\nseed: 1  # \xc3\xa9 \"quoted\"\n";
  state.scalars = {{"lr", 3e-4 / static_cast<double>(step + 1)}, {"variant", variant}};
  const float mark = static_cast<float>(step) + 0.25f * static_cast<float>(variant);
  weight_23.assign(6, mark);
  norm_3.assign(3, mark);
  moments_18.assign(18, mark);
  amax_history_4.assign(4, mark);
}

CheckpointTensors TinyRun::Tensors() const {
  const auto f32 = [](std::string name, std::vector<int64_t> shape, std::string_view data) {
    return model::TensorToWrite{std::move(name), StDtype::kF32, std::move(shape), data};
  };
  CheckpointTensors tensors;
  tensors.model = {f32("w", {2, 3}, BytesOf(weight_23, 0, 6)),
                   f32("norm", {3}, BytesOf(norm_3, 0, 3))};
  tensors.optimizer = {f32(ExpAvgName("w"), {2, 3}, BytesOf(moments_18, 0, 6)),
                       f32(ExpAvgSqName("w"), {2, 3}, BytesOf(moments_18, 6, 6)),
                       f32(ExpAvgName("norm"), {3}, BytesOf(moments_18, 12, 3)),
                       f32(ExpAvgSqName("norm"), {3}, BytesOf(moments_18, 15, 3))};
  tensors.state = {f32("fp8.w.amax_history", {4}, BytesOf(amax_history_4, 0, 4))};
  return tensors;
}

std::string FreshFolder(const std::string& name) {
  const char* base = std::getenv("TEST_TMPDIR");
  const std::string path = JoinPath(base != nullptr ? base : "/tmp", name);
  (void)RemoveAll(path);
  (void)MakeDirs(path);
  return path;
}

Status SaveTiny(const std::string& checkpoints_dir, int64_t step, int variant) {
  const TinyRun run(step, variant);
  return SaveCheckpoint(checkpoints_dir, run.state, run.Tensors());
}

Status CheckTiny(const std::string& dir, int* variant) {
  CRIA_ASSIGN_OR_RETURN(const LoadedCheckpoint loaded, LoadCheckpoint(dir));
  const int found = static_cast<int>(loaded.state().scalars.at("variant"));
  const TinyRun expected(loaded.state().step, found);
  if (loaded.state().tokens != expected.state.tokens) {
    return DataLossError(dir, ": tokens ", loaded.state().tokens);
  }
  const CheckpointTensors tensors = expected.Tensors();
  const auto check = [&](CheckpointPart part,
                         const std::vector<model::TensorToWrite>& list) -> Status {
    std::vector<std::string> names;
    for (const model::TensorToWrite& tensor : list) {
      names.push_back(tensor.name);
      CRIA_ASSIGN_OR_RETURN(const std::string_view bytes,
                            loaded.Tensor(part, tensor.name, tensor.dtype, tensor.shape));
      CRIA_RETURN_IF_ERROR(
          CheckValues(bytes, expected.weight_23[0], StrCat(dir, ": ", tensor.name)));
    }
    return loaded.CheckNames(part, names);
  };
  CRIA_RETURN_IF_ERROR(check(CheckpointPart::kModel, tensors.model));
  CRIA_RETURN_IF_ERROR(check(CheckpointPart::kOptimizer, tensors.optimizer));
  CRIA_RETURN_IF_ERROR(check(CheckpointPart::kState, tensors.state));
  if (variant != nullptr) *variant = found;
  return OkStatus();
}

void FlipByte(const std::string& path, size_t offset) {
  std::FILE* file = std::fopen(path.c_str(), "r+b");
  if (file == nullptr) std::abort();
  std::fseek(file, static_cast<long>(offset), SEEK_SET);
  const int byte = std::fgetc(file);
  std::fseek(file, static_cast<long>(offset), SEEK_SET);
  std::fputc(byte ^ 0x10, file);
  std::fclose(file);
}

}  // namespace cria::trainer
