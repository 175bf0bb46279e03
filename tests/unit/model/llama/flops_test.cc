// CountFlops against a count of the products that a training step really runs.

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "model/cpu/cpu_ops.h"
#include "model/forwarding_ops.h"
#include "model/llama/llama.h"
#include "tests/unit/model/llama/tiny_model.h"

namespace cria::model {
namespace {

// Runs everything on the CPU backend and adds up 2 M N K of each product.
class CountingOps final : public ForwardingOps {
 public:
  explicit CountingOps(Ops* ops) : ForwardingOps(ops) {}

  double matmul_flops = 0;
  double attention_flops = 0;  // over all T x T scores

  void Matmul(const MatmulArgs& args) override {
    const int64_t k = args.transpose_a ? args.a.dim(0) : args.a.dim(1);
    matmul_flops += 2.0 * static_cast<double>(args.c.num_elements() * k);
    ForwardingOps::Matmul(args);
  }
  void AttentionForward(const AttentionForwardArgs& args) override {
    attention_flops += 2 * OneAttentionProduct(args);  // scores, values
    ForwardingOps::AttentionForward(args);
  }
  void AttentionBackward(const AttentionBackwardArgs& args) override {
    // dv, dp, dq, dk; the scores computed again are recomputation.
    attention_flops += 4 * OneAttentionProduct(args.forward);
    ForwardingOps::AttentionBackward(args);
  }

 private:
  static double OneAttentionProduct(const AttentionForwardArgs& args) {
    return 2.0 *
           static_cast<double>(args.batch * args.heads * args.time * args.time * args.head_dim);
  }
};

// Reports: more than 100 % of peak, half or twice the attention, the embedding's look-up counted.
TEST(CountFlopsTest, EqualsWhatATrainingStepMultiplies) {
  const std::unique_ptr<Ops> backend = cpu::NewCpuOps();
  LlamaConfig untied = SmallConfig();
  for (const LlamaConfig& config : {TinyConfig(), untied}) {
    for (const Precision precision : {Precision::kFp32, Precision::kFp8Blockwise}) {
      CountingOps ops(backend.get());
      Llama model(config, {.precision = precision, .max_batch = 2, .max_time = 19}, &ops);
      InitializeParameters(model.layout(), 1, model.weights());
      model.WeightsChanged();
      const OwnedBatch batch = RandomBatch(config, 2, 19, 1);
      model.ForwardBackward(batch.view(), 1);
      const FlopsPerToken want = CountFlops(config, 19);
      EXPECT_EQ(ops.matmul_flops, 38 * want.matmul);
      EXPECT_EQ(ops.attention_flops, 38 * want.attention_full);
      EXPECT_EQ(want.attention_causal, want.attention_full / 2);
    }
  }
}

// Recomputation is work, not progress: it is run but not counted.
TEST(CountFlopsTest, FullRecomputationRunsTheLayersOnceMore) {
  const std::unique_ptr<Ops> backend = cpu::NewCpuOps();
  CountingOps ops(backend.get());
  const LlamaConfig config = TinyConfig();
  Llama model(config, {.recompute = Recompute::kFull, .max_batch = 1, .max_time = 19}, &ops);
  InitializeParameters(model.layout(), 1, model.weights());
  model.WeightsChanged();
  model.ForwardBackward(RandomBatch(config, 1, 19, 1).view(), 1);
  const FlopsPerToken counted = CountFlops(config, 19);
  const double head = 6.0 * static_cast<double>(config.vocab * config.dim);
  EXPECT_EQ(ops.matmul_flops, 19 * (head + (counted.matmul - head) * 4 / 3));
  EXPECT_EQ(ops.attention_flops, 19 * counted.attention_full * 4 / 3);
}

TEST(CountFlopsTest, KnownModels) {
  const LlamaConfig llama3_8b = {.layers = 32,
                                 .dim = 4096,
                                 .heads = 32,
                                 .kv_heads = 8,
                                 .ffn = 14336,
                                 .vocab = 128256,
                                 .max_positions = 8192,
                                 .rope_scaling = {},
                                 .tied_head = false};
  const FlopsPerToken flops = CountFlops(llama3_8b, 8192);
  // 6 x (8,030,261,248 - 65 norms x 4096 - the embedding's 128256 x 4096).
  EXPECT_EQ(flops.matmul, 6.0 * (8030261248.0 - 65.0 * 4096 - 128256.0 * 4096));
  // 12 L D T (torchtitan), half of it (Megatron-LM).
  EXPECT_EQ(flops.attention_full, 12.0 * 32 * 4096 * 8192);
  EXPECT_EQ(flops.attention_causal, 6.0 * 32 * 4096 * 8192);
}

}  // namespace
}  // namespace cria::model
