#include "trainer/loop/train_state.h"

#include <cstring>
#include <map>

namespace cria::trainer {
namespace {

constexpr char kOptimizerSteps[] = "optimizer_steps";
constexpr char kBadStepsInRow[] = "bad_steps_in_row";
constexpr char kDataFingerprint[] = "data_fingerprint";
constexpr char kFp8Prefix[] = "fp8.";

std::string_view BytesOf(const model::Tensor& values, const model::Parameter& parameter) {
  return {reinterpret_cast<const char*>(values.f32() + parameter.offset),
          static_cast<size_t>(parameter.num_elements()) * sizeof(float)};
}

std::span<std::byte> WritableBytes(float* values, int64_t n) {
  return {reinterpret_cast<std::byte*>(values), static_cast<size_t>(n) * sizeof(float)};
}

StatusOr<int64_t> Counter(const CheckpointState& state, const char* name, const std::string& dir) {
  const auto found = state.scalars.find(name);
  if (found == state.scalars.end()) return DataLossError(dir, ": manifest has no scalar ", name);
  return static_cast<int64_t>(found->second);
}

// The FP8 arrays of the checkpoint, in the order in which the model wants them.
StatusOr<std::vector<model::NamedFloats>> ReadFp8State(const LoadedCheckpoint& checkpoint,
                                                       const model::Linears& linears) {
  std::vector<model::NamedFloats> arrays;
  std::vector<std::string> names;
  for (const model::NamedFloats& wanted : linears.SaveState()) {
    model::NamedFloats array = {wanted.name, std::vector<float>(wanted.values.size())};
    names.push_back(kFp8Prefix + wanted.name);
    const auto n = static_cast<int64_t>(array.values.size());
    CRIA_RETURN_IF_ERROR(checkpoint.CopyTo(CheckpointPart::kState, names.back(),
                                           model::StDtype::kF32, {n},
                                           WritableBytes(array.values.data(), n)));
    arrays.push_back(std::move(array));
  }
  CRIA_RETURN_IF_ERROR(checkpoint.CheckNames(CheckpointPart::kState, names));
  return arrays;
}

}  // namespace

Status SaveTrainState(const std::string& checkpoints_dir, const Cursor& cursor, uint64_t seed,
                      const std::string& config_yaml, model::Llama* model, const AdamW& optimizer) {
  using model::StDtype;
  CheckpointTensors tensors;
  for (const model::Parameter& p : model->layout().parameters()) {
    tensors.model.push_back({p.name, StDtype::kF32, p.shape(), BytesOf(model->weights(), p)});
    tensors.optimizer.push_back(
        {ExpAvgName(p.name), StDtype::kF32, p.shape(), BytesOf(optimizer.m(), p)});
    tensors.optimizer.push_back(
        {ExpAvgSqName(p.name), StDtype::kF32, p.shape(), BytesOf(optimizer.v(), p)});
  }
  const std::vector<model::NamedFloats> fp8 = model->linears()->SaveState();
  for (const model::NamedFloats& array : fp8) {
    tensors.state.push_back({kFp8Prefix + array.name,
                             StDtype::kF32,
                             {static_cast<int64_t>(array.values.size())},
                             {reinterpret_cast<const char*>(array.values.data()),
                              array.values.size() * sizeof(float)}});
  }
  CheckpointState state;
  state.step = cursor.step;
  state.tokens = cursor.tokens;
  state.samples = cursor.samples;
  state.seed = seed;
  state.config_yaml = config_yaml;
  state.scalars[kOptimizerSteps] = static_cast<double>(optimizer.num_steps());
  state.scalars[kBadStepsInRow] = static_cast<double>(cursor.bad_steps_in_row);
  state.scalars[kDataFingerprint] = static_cast<double>(cursor.data_fingerprint);
  return SaveCheckpoint(checkpoints_dir, state, tensors);
}

StatusOr<Cursor> RestoreTrainState(const LoadedCheckpoint& checkpoint, model::Llama* model,
                                   AdamW* optimizer) {
  using model::StDtype;
  std::vector<std::string> model_names, optimizer_names;
  for (const model::Parameter& p : model->layout().parameters()) {
    model_names.push_back(p.name);
    optimizer_names.push_back(ExpAvgName(p.name));
    optimizer_names.push_back(ExpAvgSqName(p.name));
  }
  CRIA_RETURN_IF_ERROR(checkpoint.CheckNames(CheckpointPart::kModel, model_names));
  CRIA_RETURN_IF_ERROR(checkpoint.CheckNames(CheckpointPart::kOptimizer, optimizer_names));
  CRIA_ASSIGN_OR_RETURN(const std::vector<model::NamedFloats> fp8,
                        ReadFp8State(checkpoint, *model->linears()));
  CRIA_ASSIGN_OR_RETURN(const int64_t optimizer_steps,
                        Counter(checkpoint.state(), kOptimizerSteps, checkpoint.dir()));
  CRIA_ASSIGN_OR_RETURN(const int64_t bad_steps,
                        Counter(checkpoint.state(), kBadStepsInRow, checkpoint.dir()));
  CRIA_ASSIGN_OR_RETURN(const int64_t data_fingerprint,
                        Counter(checkpoint.state(), kDataFingerprint, checkpoint.dir()));
  for (const model::Parameter& p : model->layout().parameters()) {
    const auto copy = [&](CheckpointPart part, const std::string& name, const model::Tensor& to) {
      return checkpoint.CopyTo(part, name, StDtype::kF32, p.shape(),
                               WritableBytes(to.f32() + p.offset, p.num_elements()));
    };
    CRIA_RETURN_IF_ERROR(copy(CheckpointPart::kModel, p.name, model->weights()));
    CRIA_RETURN_IF_ERROR(copy(CheckpointPart::kOptimizer, ExpAvgName(p.name), optimizer->m()));
    CRIA_RETURN_IF_ERROR(copy(CheckpointPart::kOptimizer, ExpAvgSqName(p.name), optimizer->v()));
  }
  CRIA_RETURN_IF_ERROR(Annotate(model->linears()->LoadState(fp8), checkpoint.dir()));
  model->WeightsChanged();
  optimizer->set_num_steps(optimizer_steps);
  return Cursor{.step = checkpoint.state().step,
                .samples = checkpoint.state().samples,
                .tokens = checkpoint.state().tokens,
                .bad_steps_in_row = bad_steps,
                .data_fingerprint = data_fingerprint};
}

}  // namespace cria::trainer
