#include "trainer/bench/timing_ops.h"

#include <initializer_list>

#include "base/str.h"

namespace cria::trainer {
namespace {

using model::Tensor;

// Bytes of the tensors that are there.
double BytesOf(std::initializer_list<const Tensor*> tensors) {
  int64_t bytes = 0;
  for (const Tensor* tensor : tensors) {
    if (tensor->defined()) bytes += tensor->bytes();
  }
  return static_cast<double>(bytes);
}

bool IsBf16(const Tensor& x) { return x.dtype() == model::DType::kBF16; }

GemmShape ShapeOf(const model::MatmulArgs& args) {
  return {.m = args.c.dim(0),
          .n = args.c.dim(1),
          .k = args.a.dim(args.transpose_a ? 0 : 1),
          .transpose_a = args.transpose_a,
          .transpose_b = args.transpose_b,
          .bf16 = IsBf16(args.a) && IsBf16(args.b),
          .bf16_out = IsBf16(args.c)};
}

std::string NameOf(const GemmShape& shape) {
  return StrCat("matmul ", shape.m, "x", shape.n, "x", shape.k, shape.transpose_a ? " T" : " N",
                shape.transpose_b ? "T " : "N ", shape.bf16 ? "bf16" : "fp32", "->",
                shape.bf16_out ? "bf16" : "fp32");
}

constexpr const char* kUnits[] = {"tensor", "row", "column", "1x128", "128x1", "128x128"};

// One product of queries and keys over the scores below the diagonal, for all heads.
double AttentionProductFlops(const model::AttentionForwardArgs& args) {
  const int64_t first = args.key_cache.defined() ? args.keys - args.time : args.first_query;
  return static_cast<double>(args.batch * args.heads * args.head_dim * args.time) *
         static_cast<double>(2 * first + args.time + 1);
}

}  // namespace

template <typename Call>
OpRecord& TimingOps::Timed(const std::string& name, const Call& call) {
  const double start = clock_->MonotonicSeconds();
  call();
  const double seconds = clock_->MonotonicSeconds() - start;
  OpRecord& record = records_[name];
  record.name = name;
  ++record.num_calls;
  record.seconds += seconds;
  return record;
}

std::vector<OpRecord> TimingOps::records() const {
  std::vector<OpRecord> records;
  for (const auto& [name, record] : records_) records.push_back(record);
  return records;
}

void TimingOps::Matmul(const model::MatmulArgs& args) {
  const GemmShape shape = ShapeOf(args);
  OpRecord& record = Timed(NameOf(shape), [&] { ops_->Matmul(args); });
  record.gemm = shape;
  record.flops += shape.flops();
}

void TimingOps::PackWeight(const model::PackWeightArgs& args) {
  Timed("pack weight", [&] { ops_->PackWeight(args); }).bytes += 2 * BytesOf({&args.w});
}

void TimingOps::MatmulPacked(const model::MatmulPackedArgs& args) {
  const GemmShape shape = {.m = args.c.dim(0),
                           .n = args.c.dim(1),
                           .k = args.a.dim(1),
                           .transpose_b = true,
                           .bf16 = IsBf16(args.packed),
                           .bf16_out = IsBf16(args.c)};
  OpRecord& record = Timed(StrCat("packed ", NameOf(shape)), [&] { ops_->MatmulPacked(args); });
  record.flops += shape.flops();
  record.bytes += BytesOf({&args.a, &args.packed, &args.c});
}

void TimingOps::PackedEmbedding(const model::PackedEmbeddingArgs& args) {
  Timed("packed embedding", [&] { ops_->PackedEmbedding(args); }).bytes +=
      BytesOf({&args.out, &args.out});
}

model::Quantized TimingOps::Quantize(const model::QuantizeArgs& args) {
  model::Quantized result;
  const std::string name = StrCat("quantize per ", kUnits[static_cast<int>(args.spec.unit)],
                                  IsBf16(args.from) ? " bf16" : " fp32");
  Timed(name, [&] { result = ops_->Quantize(args); }).bytes += BytesOf({&args.from, &args.to});
  return result;
}

void TimingOps::Amax(const model::AmaxArgs& args) {
  const std::string name = StrCat("amax per ", kUnits[static_cast<int>(args.unit)],
                                  IsBf16(args.from) ? " bf16" : " fp32");
  Timed(name, [&] { ops_->Amax(args); }).bytes += BytesOf({&args.from});
}

void TimingOps::RmsNormForward(const model::RmsNormForwardArgs& args) {
  Timed("rmsnorm forward", [&] { ops_->RmsNormForward(args); }).bytes +=
      BytesOf({&args.x, &args.delta, &args.sum, &args.y});
}

void TimingOps::RmsNormBackward(const model::RmsNormBackwardArgs& args) {
  Timed("rmsnorm backward", [&] { ops_->RmsNormBackward(args); }).bytes +=
      BytesOf({&args.dy, &args.x, &args.dx, &args.dx, &args.dx_copy});
}

void TimingOps::Rope(const model::RopeArgs& args) {
  Timed("rope", [&] { ops_->Rope(args); }).bytes += BytesOf({&args.x, &args.x});
}

void TimingOps::AttentionForward(const model::AttentionForwardArgs& args) {
  // Scores, values.
  Timed("attention forward", [&] { ops_->AttentionForward(args); }).flops +=
      2 * AttentionProductFlops(args);
}

void TimingOps::StoreKeyValues(const model::StoreKeyValuesArgs& args) {
  Timed("store keys, values", [&] { ops_->StoreKeyValues(args); }).bytes +=
      2 * BytesOf({&args.k, &args.v});
}

void TimingOps::AttentionBackward(const model::AttentionBackwardArgs& args) {
  // Scores again, dv, dp, dq, dk.
  Timed("attention backward", [&] { ops_->AttentionBackward(args); }).flops +=
      5 * AttentionProductFlops(args.forward);
}

void TimingOps::SwigluForward(const model::SwigluForwardArgs& args) {
  Timed("swiglu forward", [&] { ops_->SwigluForward(args); }).bytes +=
      BytesOf({&args.gate_up, &args.act});
}

void TimingOps::SwigluBackward(const model::SwigluBackwardArgs& args) {
  Timed("swiglu backward", [&] { ops_->SwigluBackward(args); }).bytes +=
      BytesOf({&args.gate_up, &args.dact, &args.dgate_up, &args.act});
}

void TimingOps::EmbeddingForward(const model::EmbeddingForwardArgs& args) {
  Timed("embedding forward", [&] { ops_->EmbeddingForward(args); }).bytes +=
      BytesOf({&args.out, &args.out});
}

bool TimingOps::EmbeddingBackward(const model::EmbeddingBackwardArgs& args) {
  bool all_fit = true;
  Timed("embedding backward", [&] { all_fit = ops_->EmbeddingBackward(args); }).bytes +=
      BytesOf({&args.dout, &args.dout, &args.dout});
  return all_fit;
}

void TimingOps::CrossEntropy(const model::CrossEntropyArgs& args) {
  Timed("cross-entropy", [&] { ops_->CrossEntropy(args); }).bytes +=
      BytesOf({&args.logits, &args.dlogits});
}

void TimingOps::LogitStats(const model::LogitStatsArgs& args) {
  Timed("logit stats", [&] { ops_->LogitStats(args); }).bytes += BytesOf({&args.logits});
}

void TimingOps::LogitGradient(const model::LogitGradientArgs& args) {
  Timed("logit gradient", [&] { ops_->LogitGradient(args); }).bytes +=
      BytesOf({&args.logits, &args.dlogits});
}

void TimingOps::Add(const model::AddArgs& args) {
  Timed("add", [&] { ops_->Add(args); }).bytes += BytesOf({&args.a, &args.b, &args.out});
}

bool TimingOps::AddFixed(const model::AddFixedArgs& args) {
  bool all_fit = true;
  Timed("add fixed", [&] { all_fit = ops_->AddFixed(args); }).bytes +=
      BytesOf({&args.from, &args.to, &args.to});
  return all_fit;
}

void TimingOps::FixedToFloat(const model::FixedToFloatArgs& args) {
  Timed("fixed to float", [&] { ops_->FixedToFloat(args); }).bytes +=
      BytesOf({&args.from, &args.to});
}

void TimingOps::AdamW(const model::AdamWArgs& args) {
  // Read weight, gradient, m, v; write weight, m, v.
  Timed("adamw", [&] { ops_->AdamW(args); }).bytes += 7 * BytesOf({&args.weight});
}

double TimingOps::SumOfSquares(const Tensor& x) {
  double sum = 0;
  Timed("sum of squares", [&] { sum = ops_->SumOfSquares(x); }).bytes += BytesOf({&x});
  return sum;
}

void TimingOps::Zero(const Tensor& x) {
  Timed("zero", [&] { ops_->Zero(x); }).bytes += BytesOf({&x});
}

void TimingOps::Copy(const Tensor& from, const Tensor& to) {
  Timed("copy", [&] { ops_->Copy(from, to); }).bytes += BytesOf({&from, &to});
}

}  // namespace cria::trainer
