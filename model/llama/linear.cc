#include "model/llama/linear.h"

#include <algorithm>
#include <cmath>

#include "base/str.h"

namespace cria::model {
namespace {

// In the order of Linears::Operand.
constexpr const char* kOperandNames[] = {".input", ".weight", ".gradient"};

}  // namespace

Linears::Linears(Ops* ops, Precision precision, const std::vector<std::string>& names,
                 int64_t max_activation_elements, int64_t max_weight_elements, Arena* arena)
    : ops_(ops), names_(names), recipe_(RecipeOf(precision)) {
  if (!recipe_) return;
  // dgrad and fprop: activation x weight; wgrad: activation x activation.
  left_ = arena->Alloc(DType::kBF16, {max_activation_elements});
  right_ = arena->Alloc(DType::kBF16, {std::max(max_activation_elements, max_weight_elements)});
  if (*recipe_ != Fp8Recipe::kDelayed) return;
  delayed_ = std::make_unique<DelayedScaling>(DelayedScaling::Options{});
  for (const std::string& name : names) {
    delayed_->Register(name + kOperandNames[kInput],
                       GemmRecipeOf(*recipe_, Gemm::kFprop).left.format);
    delayed_->Register(name + kOperandNames[kWeight],
                       GemmRecipeOf(*recipe_, Gemm::kFprop).right.format);
    delayed_->Register(name + kOperandNames[kGradient],
                       GemmRecipeOf(*recipe_, Gemm::kDgrad).left.format);
  }
}

Tensor Linears::Quantize(const QuantizeSpec& spec, int64_t id, Operand operand, const Tensor& x,
                         Tensor scratch, bool record, float* dequant) {
  const Tensor out = scratch.Prefix({x.dim(0), x.dim(1)});
  const int entry = static_cast<int>(id) * kNumOperands + operand;
  const float fixed_scale = delayed_ ? delayed_->scale(entry) : 0.0f;
  const Quantized result = ops_->Quantize({spec, x, out, fixed_scale});
  if (delayed_ && record) delayed_->RecordAmax(entry, result.amax);
  if (record && !std::isfinite(result.amax) && first_non_finite_.empty()) {
    first_non_finite_ = names_[static_cast<size_t>(id)] + kOperandNames[operand];
  }
  *dequant *= result.dequant;
  return out;
}

void Linears::Forward(const LinearForwardArgs& args) {
  if (!recipe_) {
    ops_->Matmul({.a = args.x,
                  .b = args.w,
                  .c = args.y,
                  .transpose_b = true,
                  .b_is_weight = true,
                  .keep_b = keeps_weights_});
    return;
  }
  const GemmRecipe recipe = GemmRecipeOf(*recipe_, Gemm::kFprop);
  float scale = 1;
  const Tensor x = Quantize(recipe.left, args.id, kInput, args.x, left_, args.record, &scale);
  const Tensor w = Quantize(recipe.right, args.id, kWeight, args.w, right_, args.record, &scale);
  ops_->Matmul({.a = x, .b = w, .c = args.y, .transpose_b = true, .scale = scale});
}

void Linears::BackwardInput(const LinearBackwardArgs& args) {
  if (!recipe_) {
    ops_->Matmul(
        {.a = args.dy, .b = args.w, .c = args.dx, .b_is_weight = true, .keep_b = keeps_weights_});
    return;
  }
  const GemmRecipe recipe = GemmRecipeOf(*recipe_, Gemm::kDgrad);
  float scale = 1;
  const Tensor dy = Quantize(recipe.left, args.id, kGradient, args.dy, left_, true, &scale);
  const Tensor w = Quantize(recipe.right, args.id, kWeight, args.w, right_, true, &scale);
  ops_->Matmul({.a = dy, .b = w, .c = args.dx, .scale = scale});
}

void Linears::BackwardWeight(const LinearBackwardArgs& args) {
  if (!recipe_) {
    ops_->Matmul(
        {.a = args.dy, .b = args.x, .c = args.dw, .transpose_a = true, .accumulate = true});
    return;
  }
  const GemmRecipe recipe = GemmRecipeOf(*recipe_, Gemm::kWgrad);
  float scale = 1;
  const Tensor dy = Quantize(recipe.left, args.id, kGradient, args.dy, left_, true, &scale);
  const Tensor x = Quantize(recipe.right, args.id, kInput, args.x, right_, true, &scale);
  ops_->Matmul(
      {.a = dy, .b = x, .c = args.dw, .transpose_a = true, .accumulate = true, .scale = scale});
}

void Linears::EndStep(bool skipped) {
  first_non_finite_.clear();
  if (!delayed_) return;
  if (skipped) {
    delayed_->DiscardStep();
  } else {
    delayed_->Update();
  }
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
