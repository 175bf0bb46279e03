#include "trainer/bench/bench_step.h"

#include "base/check.h"
#include "base/rng.h"
#include "model/io/safetensors.h"

namespace cria::trainer {
namespace {

constexpr uint64_t kSeed = 1;

std::string_view Bytes(const void* data, int64_t bytes) {
  return {static_cast<const char*>(data), static_cast<size_t>(bytes)};
}

}  // namespace

BenchShape DefaultBenchShape() {
  BenchShape shape;
  shape.config.layers = 6;
  shape.config.dim = 288;
  shape.config.heads = 6;
  shape.config.kv_heads = 6;
  shape.config.ffn = 768;
  shape.config.vocab = 4096;
  return shape;
}

BenchShape TinyBenchShape() {
  BenchShape shape{.config = {}, .batch = 2, .time = 64};
  shape.config.layers = 2;
  shape.config.dim = 64;
  shape.config.heads = 4;
  shape.config.kv_heads = 4;
  shape.config.ffn = 160;
  shape.config.vocab = 512;
  return shape;
}

std::string DescribeShape(const BenchShape& shape) {
  const model::LlamaConfig& config = shape.config;
  const model::ParameterLayout layout(config);
  return StrCat("dim ", config.dim, ", ", config.layers, " layers, ", config.heads, " heads, ffn ",
                config.ffn, ", vocabulary ", config.vocab, ", batch ", shape.batch, " x ",
                shape.time, " tokens, ",
                HumanCount(static_cast<double>(layout.num_matmul_elements())),
                " parameters in matrix products");
}

BenchBatch::BenchBatch(const BenchShape& shape) : batch_(shape.batch), time_(shape.time) {
  const Rng rng(kSeed, StreamOf("bench tokens"));
  const auto vocab = static_cast<uint64_t>(shape.config.vocab);
  for (int64_t row = 0; row < batch_ * time_; ++row) {
    tokens_.push_back(static_cast<int32_t>(rng.Below(static_cast<uint64_t>(row), vocab)));
    positions_.push_back(static_cast<int32_t>(row % time_));
    doc_start_.push_back(0);
  }
  for (size_t row = 0; row < tokens_.size(); ++row) {
    targets_.push_back(tokens_[(row + 1) % tokens_.size()]);
  }
}

model::TokenBatch BenchBatch::View() {
  const auto view = [&](std::vector<int32_t>& x) {
    return model::Tensor(x.data(), model::DType::kI32, {batch_ * time_});
  };
  return {.batch = batch_,
          .time = time_,
          .tokens = view(tokens_),
          .targets = view(targets_),
          .positions = view(positions_),
          .doc_start = view(doc_start_)};
}

BenchStep::BenchStep(const BenchShape& shape, model::Precision precision, model::Ops* ops,
                     BenchBatch* batch)
    : shape_(shape),
      batch_(batch),
      model_(shape.config,
             {.precision = precision, .max_batch = shape.batch, .max_time = shape.time}, ops),
      optimizer_(model_.parameters(), {}, ops) {
  model_.parameters()->Initialize(kSeed);
}

StepResult BenchStep::Gradients() {
  const auto tokens = static_cast<double>(shape_.tokens());
  model_.ZeroGradients();
  const model::LossSum loss =
      model_.ForwardBackward(batch_->View(), static_cast<float>(1.0 / tokens));
  const auto norm = optimizer_.Norm();
  CRIA_CHECK(norm.ok(), Message(norm.status()));  // one rank
  return {.loss = loss.sum / tokens, .grad_norm = norm->value};
}

StepResult BenchStep::Run() {
  const StepResult result = Gradients();
  optimizer_.Step(kLearningRate, result.grad_norm);
  const Status ended = model_.linears()->EndStep(/*skipped=*/false);
  CRIA_CHECK(ended.ok(), Message(ended));
  model_.WeightsChanged();
  return result;
}

Status BenchStep::WriteFile(const std::string& path) {
  std::vector<model::TensorToWrite> tensors;
  for (const model::Parameter& p : model_.layout().parameters()) {
    tensors.push_back({p.name, model::StDtype::kF32, p.shape(),
                       Bytes(model_.weights().f32() + p.offset, p.num_elements() * 4)});
  }
  const model::TokenBatch batch = batch_->View();
  const std::vector<int64_t> shape = {batch.batch, batch.time};
  tensors.push_back(
      {"tokens", model::StDtype::kI32, shape, Bytes(batch.tokens.data(), batch.tokens.bytes())});
  tensors.push_back(
      {"targets", model::StDtype::kI32, shape, Bytes(batch.targets.data(), batch.targets.bytes())});
  const model::LlamaConfig& config = shape_.config;
  return model::WriteSafetensors(path, tensors,
                                 {{"dim", StrCat(config.dim)},
                                  {"heads", StrCat(config.heads)},
                                  {"layers", StrCat(config.layers)},
                                  {"time", StrCat(shape_.time)},
                                  {"norm_eps", StrCat(config.norm_eps)},
                                  {"rope_theta", StrCat(config.rope_theta)},
                                  {"lr", StrCat(kLearningRate)},
                                  {"weight_decay", StrCat(AdamWOptions().weight_decay)}})
      .status();
}

}  // namespace cria::trainer
