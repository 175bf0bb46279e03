#include "trainer/loop/train_state.h"

#include <algorithm>
#include <vector>

#include "trainer/checkpoint/common_status.h"
#include "trainer/checkpoint/save_pieces.h"

namespace cria::trainer {
namespace {

constexpr char kOptimizerSteps[] = "optimizer_steps";
constexpr char kBadStepsInRow[] = "bad_steps_in_row";
constexpr char kDataFingerprint[] = "data_fingerprint";
constexpr char kFp8Prefix[] = "fp8.";

comm::Communicator* WorldOf(const model::ParameterBuffers& buffers) {
  return buffers.groups() == nullptr ? nullptr : buffers.groups()->world;
}

// The rank that writes what all ranks of its stage have alike.
bool WritesForStage(const model::ParameterBuffers& buffers) {
  if (buffers.groups() == nullptr) return true;
  const model::Coordinates& at = buffers.groups()->at;
  return at.tp == 0 && at.cp == 0 && at.dp == 0;
}

TensorDescription Describe(std::string name, const model::Parameter& parameter) {
  return {.name = std::move(name), .shape = parameter.full_shape()};
}

// What parts of blocks have of a parameter.
struct Held {
  TensorPiece piece;
  int block;
  int64_t begin;  // element of the layout's buffer
};
std::vector<Held> PiecesOf(const model::Parameter& parameter, const model::BlockParts& parts,
                           const std::string& name) {
  std::vector<Held> out;
  for (int b = 0; b < parts.num_blocks(); ++b) {
    const model::BlockPart& part = parts.block(b);
    const int64_t begin = std::max(parameter.offset, part.begin);
    const int64_t end = std::min(parameter.offset + parameter.num_elements(), part.end);
    if (begin >= end) continue;
    out.push_back({.piece = {.tensor = Describe(name, parameter),
                             .first_row = parameter.first_row,
                             .first_column = parameter.first_column,
                             .columns = parameter.is_vector() ? 1 : parameter.columns,
                             .begin = begin - parameter.offset,
                             .end = end - parameter.offset},
                   .block = b,
                   .begin = begin});
  }
  return out;
}

// Where a buffer of such parts holds a piece.
int64_t PlaceOf(const Held& held, const model::BlockParts& buffer) {
  const model::BlockPart& part = buffer.block(held.block);
  return part.at + held.begin - part.begin;
}

// Adds this rank's share of one tensor; `values` is a buffer of such parts.
void AppendPieces(CheckpointPart part, const std::string& name, const model::Parameter& parameter,
                  const model::ParameterParts& parts, const model::Tensor& values,
                  const model::BlockParts& of_values, CheckpointPieces* out) {
  if (parameter.counted_elsewhere) return;
  for (Held& held : PiecesOf(parameter, parts.counted(), name)) {
    const float* data = values.f32() + PlaceOf(held, of_values);
    const auto bytes = static_cast<size_t>(held.piece.num_elements()) * sizeof(float);
    out->pieces.push_back(
        {part, std::move(held.piece), {reinterpret_cast<const char*>(data), bytes}});
  }
}

std::span<std::byte> WritableBytes(float* values, int64_t n) {
  return {reinterpret_cast<std::byte*>(values), static_cast<size_t>(n) * sizeof(float)};
}

// One buffer of this rank, read from tensors that are called <prefix><parameter>.
struct Destination {
  CheckpointPart part;
  std::string (*name)(std::string_view parameter);
  const model::Tensor& values;
  const model::BlockParts& parts;
};

Status ReadInto(const LoadedCheckpoint& checkpoint, const model::ParameterLayout& layout,
                const Destination& to) {
  std::vector<Interval> whole, read;
  for (int b = 0; b < to.parts.num_blocks(); ++b) {
    const model::BlockPart& part = to.parts.block(b);
    whole.push_back({part.at, part.at + part.size()});
  }
  for (const model::Parameter& parameter : layout.parameters()) {
    for (const Held& held : PiecesOf(parameter, to.parts, to.name(parameter.name))) {
      const int64_t at = PlaceOf(held, to.parts), n = held.piece.num_elements();
      CRIA_RETURN_IF_ERROR(
          checkpoint.CopyPiece(to.part, held.piece, WritableBytes(to.values.f32() + at, n)));
      read.push_back({at, at + n});
    }
  }
  return CheckIntervals(std::move(whole), std::move(read),
                        StrCat("restore ", to.name("parameters"), " from ", checkpoint.dir()));
}

std::string PlainName(std::string_view parameter) { return std::string(parameter); }

StatusOr<int64_t> Counter(const CheckpointState& state, const char* name, const std::string& dir) {
  const auto found = state.scalars.find(name);
  if (found == state.scalars.end()) return DataLossError(dir, ": manifest has no scalar ", name);
  return static_cast<int64_t>(found->second);
}

// Each array that the rank wants is there, and no other: of all stages together there are as many
// as in the file.
Status CheckStateNames(const LoadedCheckpoint& checkpoint, const model::Llama& model) {
  std::vector<std::string> names;
  for (const model::NamedFloats& wanted : model.linears().SaveState()) {
    names.push_back(kFp8Prefix + wanted.name);
  }
  const model::ParameterBuffers& buffers = model.parameters();
  comm::Communicator* world = WorldOf(buffers);
  if (world == nullptr) return checkpoint.CheckNames(CheckpointPart::kState, names);
  int64_t wanted = WritesForStage(buffers) ? static_cast<int64_t>(names.size()) : 0;
  CRIA_RETURN_IF_ERROR(
      world
          ->AllReduce(
              {.input = &wanted, .output = &wanted, .count = 1, .dtype = comm::DataType::kInt64})
          .Wait());
  const model::SafetensorsFile& file = checkpoint.file(CheckpointPart::kState);
  if (wanted == static_cast<int64_t>(file.tensors().size())) return OkStatus();
  return FailedPreconditionError(file.path(), ": not the tensors of this run: it has ",
                                 file.tensors().size(), ", the run wants ", wanted);
}

// The FP8 arrays of the checkpoint, in the order in which the model wants them.
StatusOr<std::vector<model::NamedFloats>> ReadFp8State(const LoadedCheckpoint& checkpoint,
                                                       const model::Linears& linears) {
  std::vector<model::NamedFloats> arrays;
  for (const model::NamedFloats& wanted : linears.SaveState()) {
    model::NamedFloats array = {wanted.name, std::vector<float>(wanted.values.size())};
    const auto n = static_cast<int64_t>(array.values.size());
    CRIA_RETURN_IF_ERROR(checkpoint.CopyTo(CheckpointPart::kState, kFp8Prefix + wanted.name,
                                           model::StDtype::kF32, {n},
                                           WritableBytes(array.values.data(), n)));
    arrays.push_back(std::move(array));
  }
  return arrays;
}

// The names of the whole model, which are the same on all ranks.
Status CheckNames(const LoadedCheckpoint& checkpoint, const model::LlamaConfig& config) {
  const model::ParameterLayout whole(config);
  std::vector<std::string> model_names, optimizer_names;
  for (const model::Parameter& p : whole.parameters()) {
    model_names.push_back(p.name);
    optimizer_names.push_back(ExpAvgName(p.name));
    optimizer_names.push_back(ExpAvgSqName(p.name));
  }
  CRIA_RETURN_IF_ERROR(checkpoint.CheckNames(CheckpointPart::kModel, model_names));
  return checkpoint.CheckNames(CheckpointPart::kOptimizer, optimizer_names);
}

Status ReadAll(const LoadedCheckpoint& checkpoint, model::Llama* model, AdamW* optimizer) {
  const model::ParameterBuffers& buffers = *model->parameters();
  const model::ParameterParts& parts = buffers.parts();
  CRIA_ASSIGN_OR_RETURN(const int64_t optimizer_steps,
                        Counter(checkpoint.state(), kOptimizerSteps, checkpoint.dir()));
  CRIA_ASSIGN_OR_RETURN(const std::vector<model::NamedFloats> fp8,
                        ReadFp8State(checkpoint, *model->linears()));
  const Destination destinations[] = {
      {CheckpointPart::kModel, PlainName, buffers.weights(), parts.weights()},
      {CheckpointPart::kOptimizer, ExpAvgName, optimizer->m(), parts.updated()},
      {CheckpointPart::kOptimizer, ExpAvgSqName, optimizer->v(), parts.updated()}};
  for (const Destination& to : destinations) {
    CRIA_RETURN_IF_ERROR(ReadInto(checkpoint, buffers.layout(), to));
  }
  CRIA_RETURN_IF_ERROR(Annotate(model->linears()->LoadState(fp8), checkpoint.dir()));
  optimizer->set_num_steps(optimizer_steps);
  return OkStatus();
}

CheckpointPieces PiecesToSave(const model::Llama& model, const AdamW& optimizer,
                              const std::vector<model::NamedFloats>& fp8) {
  const model::ParameterBuffers& buffers = model.parameters();
  const model::ParameterParts& parts = buffers.parts();
  CheckpointPieces out;
  const model::ParameterLayout whole(model.config());
  for (const model::Parameter& p : whole.parameters()) {
    out.model.push_back(Describe(p.name, p));
    out.optimizer.push_back(Describe(ExpAvgName(p.name), p));
    out.optimizer.push_back(Describe(ExpAvgSqName(p.name), p));
  }
  for (const model::Parameter& p : buffers.layout().parameters()) {
    AppendPieces(CheckpointPart::kModel, p.name, p, parts, buffers.weights(), parts.weights(),
                 &out);
    AppendPieces(CheckpointPart::kOptimizer, ExpAvgName(p.name), p, parts, optimizer.m(),
                 parts.updated(), &out);
    AppendPieces(CheckpointPart::kOptimizer, ExpAvgSqName(p.name), p, parts, optimizer.v(),
                 parts.updated(), &out);
  }
  if (!WritesForStage(buffers)) return out;
  for (const model::NamedFloats& array : fp8) {
    const auto n = static_cast<int64_t>(array.values.size());
    out.pieces.push_back({CheckpointPart::kState,
                          {.tensor = {.name = kFp8Prefix + array.name, .shape = {n}}, .end = n},
                          {reinterpret_cast<const char*>(array.values.data()),
                           array.values.size() * sizeof(float)}});
  }
  return out;
}

}  // namespace

Status SaveTrainState(const std::string& checkpoints_dir, const Cursor& cursor, uint64_t seed,
                      const std::string& config_yaml, model::Llama* model, const AdamW& optimizer) {
  CheckpointState state;
  state.step = cursor.step;
  state.tokens = cursor.tokens;
  state.samples = cursor.samples;
  state.seed = seed;
  state.config_yaml = config_yaml;
  state.scalars[kOptimizerSteps] = static_cast<double>(optimizer.num_steps());
  state.scalars[kBadStepsInRow] = static_cast<double>(cursor.bad_steps_in_row);
  state.scalars[kDataFingerprint] = static_cast<double>(cursor.data_fingerprint);
  const std::vector<model::NamedFloats> fp8 = model->linears()->SaveState();
  return SaveCheckpointPieces(checkpoints_dir, state, PiecesToSave(*model, optimizer, fp8),
                              WorldOf(*model->parameters()));
}

StatusOr<Cursor> RestoreTrainState(const LoadedCheckpoint& checkpoint, model::Llama* model,
                                   AdamW* optimizer) {
  comm::Communicator* world = WorldOf(*model->parameters());
  CRIA_RETURN_IF_ERROR(CommonStatus(world, CheckNames(checkpoint, model->config())));
  CRIA_RETURN_IF_ERROR(CommonStatus(world, CheckStateNames(checkpoint, *model)));
  CRIA_ASSIGN_OR_RETURN(const int64_t bad_steps,
                        Counter(checkpoint.state(), kBadStepsInRow, checkpoint.dir()));
  CRIA_ASSIGN_OR_RETURN(const int64_t data_fingerprint,
                        Counter(checkpoint.state(), kDataFingerprint, checkpoint.dir()));
  CRIA_RETURN_IF_ERROR(CommonStatus(world, ReadAll(checkpoint, model, optimizer)));
  model->WeightsChanged();
  return Cursor{.step = checkpoint.state().step,
                .samples = checkpoint.state().samples,
                .tokens = checkpoint.state().tokens,
                .bad_steps_in_row = bad_steps,
                .data_fingerprint = data_fingerprint};
}

}  // namespace cria::trainer
