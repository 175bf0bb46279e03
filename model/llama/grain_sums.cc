#include "model/llama/grain_sums.h"

#include <utility>

#include "base/check.h"
#include "model/parallel/parameter_buffers.h"

namespace cria::model {

void GrainSums::Add(const Tensor& from, const Tensor& to, int log2_scale) {
  if (!ops_->AddFixed({.from = from, .to = to, .log2_scale = log2_scale})) finite_ = false;
}

bool GrainSums::TakeFinite() { return std::exchange(finite_, true); }

void GrainSums::AddOutputs(const Tensor& x, const Tensor& w, int64_t num_grains,
                           const Tensor& sum) {
  const int64_t grain = x.dim(1) / num_grains;
  CRIA_CHECK_EQ(grain * num_grains, x.dim(1));
  const Tensor product = scratch_.Prefix({sum.dim(0), sum.dim(1)}).Placed(sum.placement());
  for (int64_t begin = 0; begin < x.dim(1); begin += grain) {
    ops_->Matmul({.a = x.Columns(begin, begin + grain),
                  .b = w.Columns(begin, begin + grain),
                  .c = product,
                  .transpose_b = true,
                  .chain = true});
    Add(product, sum, kActivationLog2Scale);
  }
}

void GrainSums::AddInputGradient(const Tensor& dy, const Tensor& w, const Tensor& sum) {
  if (dy.dim(1) == 0) return;
  const Tensor product = scratch_.Prefix({sum.dim(0), sum.dim(1)}).Placed(sum.placement());
  ops_->Matmul({.a = dy, .b = w, .c = product, .chain = true});
  Add(product, sum, kFlowingGradientLog2Scale);
}

void GrainSums::AddWeightGradient(const Tensor& dy, const Tensor& x, const Tensor& dw) {
  const int64_t rows = dy.dim(0);
  CRIA_CHECK_EQ(rows % token_grain_, 0);
  const Tensor product = scratch_.Prefix({dw.dim(0), dw.dim(1)}).Placed(dw.placement());
  for (int64_t row = 0; row < rows; row += token_grain_) {
    ops_->Matmul({.a = dy.Rows(row, row + token_grain_),
                  .b = x.Rows(row, row + token_grain_),
                  .c = product,
                  .transpose_a = true,
                  .chain = true});
    Add(product, dw, kGradientLog2Scale);
  }
}

void GrainSums::NormBackward(const RmsNormBackwardArgs& args) {
  const int64_t rows = args.x.dim(0), dim = args.x.dim(1);
  CRIA_CHECK_EQ(rows % token_grain_, 0);
  const Tensor dweight = scratch_.Prefix({dim}).Placed(args.dweight.placement());
  for (int64_t row = 0; row < rows; row += token_grain_) {
    const auto grain = [&](const Tensor& x) { return x.Rows(row, row + token_grain_); };
    ops_->Zero(dweight);
    ops_->RmsNormBackward({.dy = grain(args.dy),
                           .x = grain(args.x),
                           .weight = args.weight,
                           .rstd = grain(args.rstd),
                           .dx = grain(args.dx),
                           .dweight = dweight});
    Add(dweight.View({1, dim}), args.dweight.View({1, dim}), kGradientLog2Scale);
  }
}

void GrainSums::AttentionBackward(const AttentionBackwardArgs& args) {
  const AttentionForwardArgs& all = args.forward;
  const int64_t keys = all.keys > 0 ? all.keys : all.time;
  const int64_t width = all.head_dim, group = all.heads / all.kv_heads;
  CRIA_CHECK_EQ(all.time % token_grain_, 0);
  const Tensor scratch = scratch_.Prefix({2 * keys, width}).Placed(args.dk.placement());
  const Tensor dk = scratch.Rows(0, keys);
  const Tensor dv = scratch.Rows(keys, 2 * keys);
  for (int64_t b = 0; b < all.batch; ++b) {
    for (int64_t head = 0; head < all.heads; ++head) {
      const int64_t kv_head = head / group;
      const auto of_head = [&](const Tensor& x, int64_t index) {
        return x.Columns(index * width, (index + 1) * width);
      };
      const auto of_keys = [&](const Tensor& x) {
        return of_head(x, kv_head).Rows(b * keys, (b + 1) * keys);
      };
      for (int64_t t = 0; t < all.time; t += token_grain_) {
        const int64_t row = b * all.time + t;
        const int64_t lse = (b * all.heads + head) * all.time + t;
        const auto of_queries = [&](const Tensor& x) {
          return of_head(x, head).Rows(row, row + token_grain_);
        };
        // Later keys are seen by no query of the grain.
        const int64_t seen = all.first_query + t + token_grain_;
        const auto of_seen = [&](const Tensor& x) { return of_keys(x).Rows(0, seen); };
        ops_->AttentionBackward(
            {.forward = {.q = of_queries(all.q),
                         .k = of_seen(all.k),
                         .v = of_seen(all.v),
                         .doc_start = all.doc_start.Rows(row, row + token_grain_),
                         .out = of_queries(all.out),
                         .lse = all.lse.Rows(lse, lse + token_grain_),
                         .batch = 1,
                         .time = token_grain_,
                         .heads = 1,
                         .kv_heads = 1,
                         .head_dim = width,
                         .scale = all.scale,
                         .keys = seen,
                         .first_query = all.first_query + t},
             .dout = of_queries(args.dout),
             .dq = of_queries(args.dq),
             .dk = dk.Rows(0, seen),
             .dv = dv.Rows(0, seen)});
        Add(dk.Rows(0, seen), of_seen(args.dk), kFlowingGradientLog2Scale);
        Add(dv.Rows(0, seen), of_seen(args.dv), kFlowingGradientLog2Scale);
      }
    }
  }
}

}  // namespace cria::model
