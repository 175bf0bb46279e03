#include "model/llama/linear.h"

#include <algorithm>
#include <cmath>

#include "base/str.h"
#include "model/fp8/quantize.h"

namespace cria::model {
namespace {

// In the order of Linears::Operand.
constexpr const char* kOperandNames[] = {".input", ".weight", ".gradient"};

}  // namespace

Linears::Linears(Ops* ops, Precision precision, const std::vector<Layer>& layers,
                 int64_t max_activation_elements, int64_t max_weight_elements, int64_t max_side,
                 Arena* arena)
    : ops_(ops), layers_(layers), recipe_(RecipeOf(precision)) {
  if (!recipe_) return;
  // dgrad and fprop: activation x weight; wgrad: activation x activation.
  left_ = arena->Alloc(DType::kBF16, {max_activation_elements});
  right_ = arena->Alloc(DType::kBF16, {std::max(max_activation_elements, max_weight_elements)});
  amax_ = arena->Alloc(DType::kF32, {max_side});
  if (*recipe_ != Fp8Recipe::kDelayed) return;
  delayed_ = std::make_unique<DelayedScaling>(DelayedScaling::Options{});
  for (const Layer& layer : layers) {
    delayed_->Register(layer.name + kOperandNames[kInput],
                       GemmRecipeOf(*recipe_, Gemm::kFprop).left.format);
    delayed_->Register(layer.name + kOperandNames[kWeight],
                       GemmRecipeOf(*recipe_, Gemm::kFprop).right.format);
    delayed_->Register(layer.name + kOperandNames[kGradient],
                       GemmRecipeOf(*recipe_, Gemm::kDgrad).left.format);
  }
}

comm::Communicator* Linears::GroupOf(ScaleUnit unit, int64_t id, Operand operand) const {
  const bool by_rows = layers_[static_cast<size_t>(id)].split == WeightSplit::kRows;
  // Activations have other tokens on cp ranks; their columns are those of the weight's side that
  // they meet.
  comm::Communicator* rows = operand != kWeight ? groups_.cp : by_rows ? groups_.tp : nullptr;
  const bool columns_divided = operand == kGradient ? by_rows : !by_rows;
  comm::Communicator* columns = columns_divided ? groups_.tp : nullptr;
  switch (unit) {
    case ScaleUnit::kTensor:
      if (rows != nullptr && columns != nullptr) return groups_.all;
      return rows != nullptr ? rows : columns;
    case ScaleUnit::kPerRow:
      return columns;
    case ScaleUnit::kPerColumn:
      return rows;
    case ScaleUnit::kRow1x128:
    case ScaleUnit::kCol128x1:
    case ScaleUnit::kBlock128x128:
      return nullptr;
  }
  return nullptr;
}

StatusOr<Tensor> Linears::Quantize(const QuantizeSpec& spec, int64_t id, Operand operand,
                                   const Tensor& x, Tensor scratch, bool record, float* dequant) {
  const Tensor out = scratch.Prefix({x.dim(0), x.dim(1)}).Placed(x.placement());
  const int entry = static_cast<int>(id) * kNumOperands + operand;
  const float fixed_scale = delayed_ ? delayed_->scale(entry) : 0.0f;
  comm::Communicator* group = fixed_scale == 0 ? GroupOf(spec.unit, id, operand) : nullptr;
  Tensor amax;
  if (group != nullptr) {
    amax = amax_.Rows(0, NumScales(spec.unit, x.dim(0), x.dim(1)));
    ops_->Amax({.unit = spec.unit, .from = x, .amax = amax});
    CRIA_RETURN_IF_ERROR(group
                             ->AllReduce({.input = amax.data(),
                                          .output = amax.data(),
                                          .count = amax.num_elements(),
                                          .op = comm::ReduceOp::kMax})
                             .Wait());
  }
  const Quantized result = ops_->Quantize(
      {.spec = spec, .from = x, .to = out, .fixed_scale = fixed_scale, .amax = amax});
  if (delayed_ && record) delayed_->RecordAmax(entry, result.amax);
  if (record && !std::isfinite(result.amax) && first_non_finite_.empty()) {
    first_non_finite_ = layers_[static_cast<size_t>(id)].name + kOperandNames[operand];
  }
  *dequant *= result.dequant;
  return out;
}

StatusOr<Tensor> Linears::QuantizeWeight(const QuantizeSpec& spec, int64_t id, const Tensor& w,
                                         const float* factor, bool record, float* dequant) {
  if (factor == nullptr) return Quantize(spec, id, kWeight, w, right_, record, dequant);
  *dequant *= *factor;
  return w;
}

Status Linears::Forward(const LinearForwardArgs& args) {
  if (!recipe_) {
    ops_->Matmul({.a = args.x,
                  .b = args.w,
                  .c = args.y,
                  .transpose_b = true,
                  .b_is_weight = true,
                  .keep_b = keeps_weights_});
    return OkStatus();
  }
  const GemmRecipe recipe = GemmRecipeOf(*recipe_, Gemm::kFprop);
  float scale = 1;
  CRIA_ASSIGN_OR_RETURN(const Tensor x,
                        Quantize(recipe.left, args.id, kInput, args.x, left_, args.record, &scale));
  CRIA_ASSIGN_OR_RETURN(const Tensor w, QuantizeWeight(recipe.right, args.id, args.w, args.w_factor,
                                                       args.record, &scale));
  ops_->Matmul({.a = x, .b = w, .c = args.y, .transpose_b = true, .scale = scale});
  return OkStatus();
}

Status Linears::BackwardInput(const LinearBackwardArgs& args) {
  if (!recipe_) {
    ops_->Matmul(
        {.a = args.dy, .b = args.w, .c = args.dx, .b_is_weight = true, .keep_b = keeps_weights_});
    return OkStatus();
  }
  const GemmRecipe recipe = GemmRecipeOf(*recipe_, Gemm::kDgrad);
  float scale = 1;
  CRIA_ASSIGN_OR_RETURN(const Tensor dy,
                        Quantize(recipe.left, args.id, kGradient, args.dy, left_, true, &scale));
  CRIA_ASSIGN_OR_RETURN(const Tensor w,
                        QuantizeWeight(recipe.right, args.id, args.w, args.w_factor, true, &scale));
  ops_->Matmul({.a = dy, .b = w, .c = args.dx, .scale = scale});
  return OkStatus();
}

Status Linears::BackwardWeight(const LinearBackwardArgs& args) {
  if (!recipe_) {
    ops_->Matmul(
        {.a = args.dy, .b = args.x, .c = args.dw, .transpose_a = true, .accumulate = true});
    return OkStatus();
  }
  const GemmRecipe recipe = GemmRecipeOf(*recipe_, Gemm::kWgrad);
  float scale = 1;
  CRIA_ASSIGN_OR_RETURN(const Tensor dy,
                        Quantize(recipe.left, args.id, kGradient, args.dy, left_, true, &scale));
  CRIA_ASSIGN_OR_RETURN(const Tensor x,
                        Quantize(recipe.right, args.id, kInput, args.x, right_, true, &scale));
  ops_->Matmul(
      {.a = dy, .b = x, .c = args.dw, .transpose_a = true, .accumulate = true, .scale = scale});
  return OkStatus();
}

Status Linears::EndStep(bool skipped, comm::Communicator* stage) {
  first_non_finite_.clear();
  if (!delayed_) return OkStatus();
  if (skipped) {
    delayed_->DiscardStep();
    return OkStatus();
  }
  if (stage != nullptr) {
    std::vector<float> amax;
    for (int i = 0; i < delayed_->num_tensors(); ++i) amax.push_back(delayed_->history(i)[0]);
    CRIA_RETURN_IF_ERROR(stage
                             ->AllReduce({.input = amax.data(),
                                          .output = amax.data(),
                                          .count = static_cast<int64_t>(amax.size()),
                                          .op = comm::ReduceOp::kMax})
                             .Wait());
    for (int i = 0; i < delayed_->num_tensors(); ++i) {
      delayed_->RecordAmax(i, amax[static_cast<size_t>(i)]);
    }
  }
  delayed_->Update();
  return OkStatus();
}

void Linears::NoteNonFinite(const std::string& name) {
  if (first_non_finite_.empty()) first_non_finite_ = name;
}

void Linears::Reset() {
  if (delayed_) delayed_->Reset();
}

std::vector<NamedFloats> Linears::SaveState() const {
  return delayed_ ? delayed_->Save() : std::vector<NamedFloats>();
}

Status Linears::LoadState(std::span<const NamedFloats> arrays) {
  if (delayed_) return delayed_->Load(arrays);
  if (arrays.empty()) return OkStatus();
  return InvalidArgumentError("the checkpoint holds FP8 state ('", arrays[0].name,
                              "', ...); this precision has none");
}

}  // namespace cria::model
