#include "trainer/eval/loss_eval.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <numbers>

#include "base/file.h"
#include "base/json.h"
#include "model/cpu/cpu_ops.h"
#include "model/io/sharded_safetensors.h"
#include "model/llama/load_weights.h"
#include "tests/support/process.h"
#include "tests/support/tiny_run.h"
#include "trainer/data/data_tokenizer.h"
#include "trainer/models/model_files.h"

namespace cria::trainer {
namespace {

struct Model {
  Model(const model::LlamaConfig& config, const model::LlamaOptions& options)
      : ops(model::cpu::NewCpuOps()), llama(config, options, ops.get()) {}
  std::unique_ptr<model::Ops> ops;
  model::Llama llama;
};

model::LlamaConfig SmallConfig() {
  model::LlamaConfig config;
  config.layers = 1;
  config.dim = 16;
  config.heads = 2;
  config.kv_heads = 1;
  config.ffn = 24;
  config.vocab = 50;
  config.tied_head = false;
  return config;
}

// A head of zeros makes every logit 0 and every token as likely as any other.
TEST(LossEvalTest, OfUniformLogitsIsTheLogarithmOfTheVocabulary) {
  Model model(SmallConfig(), {.max_batch = 3, .max_time = 8, .training = false});
  InitializeParameters(model.llama.layout(), 1, model.llama.weights());
  const model::Parameter* head = model.llama.layout().Find("lm_head.weight");
  ASSERT_NE(head, nullptr);
  std::memset(model.llama.weights().f32() + head->offset, 0,
              static_cast<size_t>(head->num_elements()) * sizeof(float));
  model.llama.WeightsChanged();
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 45; ++i) tokens.push_back(i * 7 % 50);
  const auto text = TokensInMemory("t", tokens, std::nullopt);
  for (const int64_t stride : {8, 3}) {
    const EvalWindows windows(text.get(), {.seq = 8, .stride = stride, .vocab = 50});
    for (const int64_t batch : {1, 3}) {
      const auto result = EvaluateLoss(&model.llama, windows, nullptr, {.batch = batch});
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->num_tokens, 44);
      EXPECT_NEAR(result->loss(), std::log(50.0), 1e-6);
      EXPECT_NEAR(result->perplexity(), 50, 1e-4);
      EXPECT_FALSE(result->bits_per_byte().has_value());
    }
  }
}

TEST(LossEvalTest, ResultsFollowFromSumsInClosedForm) {
  LossResult result = {.loss_sum = 10 * std::numbers::ln2, .num_tokens = 5, .num_bytes = 20};
  EXPECT_DOUBLE_EQ(result.loss(), 2 * std::numbers::ln2);
  EXPECT_DOUBLE_EQ(result.perplexity(), 4);
  EXPECT_DOUBLE_EQ(*result.bits_per_byte(), 0.5);
  result.num_bytes = 0;
  EXPECT_FALSE(result.bits_per_byte().has_value());
  EXPECT_TRUE(std::isnan(LossResult().loss()));
}

// The bytes are those of the text: begin- and end-of-text are none of it.
TEST(LossEvalTest, CountsTheBytesOfThePredictedText) {
  const auto manifest = ReadManifest(TinyData());
  const Tokenizer tokenizer = *LoadDataTokenizer(TinyData(), *manifest);
  model::LlamaConfig config = SmallConfig();
  config.vocab = 300;
  Model model(config, {.max_batch = 1, .max_time = 16, .training = false});
  InitializeParameters(model.llama.layout(), 1, model.llama.weights());
  model.llama.WeightsChanged();
  const std::string document = "the llama remembers a caf\xc3\xa9 <|end_of_text|>";
  std::vector<int32_t> tokens = {*tokenizer.bos_id()};
  tokenizer.Encode(document, &tokens);
  tokens.push_back(*tokenizer.eos_id());
  const auto text = TokensInMemory("t", tokens, tokenizer.bos_id());
  const EvalWindows windows(text.get(), {.seq = 16, .stride = 16, .vocab = 300});
  const auto result = EvaluateLoss(&model.llama, windows, &tokenizer, {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->num_tokens, static_cast<int64_t>(tokens.size()) - 1);
  EXPECT_EQ(*result->num_bytes, static_cast<int64_t>(document.size()));
}

// The trainer's own figure, to the bit, in the precisions that `cria eval` offers.
TEST(LossEvalTest, IsTheTrainersValidationLoss) {
  for (const char* precision : {"fp32", "bf16"}) {
    TrainConfig config = TinyConfig(TinyData());
    config.precision = precision;
    const std::string dir = FreshDir(StrCat("run_", precision));
    const TinyOutcome run = RunTiny(config, {.out_dir = dir});
    ASSERT_TRUE(run.status.ok()) << run.status;
    ASSERT_TRUE(run.summary.val_loss.has_value());

    const auto files = OpenModel(dir);
    ASSERT_TRUE(files.ok()) << files.status();
    Model model(files->config, {.precision = *model::PrecisionFromName(precision),
                                .max_batch = config.train.micro_batch,
                                .max_time = config.train.seq,
                                .training = false});
    ASSERT_TRUE(LoadWeights(*files->weights, model.llama.layout(), model.llama.weights()).ok());
    model.llama.WeightsChanged();
    const auto text = OpenTokenFolder(TinyData(), "val", nullptr);
    ASSERT_TRUE(text.ok());
    const int64_t seq = config.train.seq;
    const EvalWindows windows(
        text->get(),
        {.seq = seq, .stride = seq, .tokens_max = config.train.eval_samples * seq, .vocab = 300});
    const auto result =
        EvaluateLoss(&model.llama, windows, nullptr, {.batch = config.train.micro_batch});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->loss(), *run.summary.val_loss) << precision;
  }
}

// What PyTorch gave for three tiny Llamas (tests/golden).
TEST(LossEvalTest, IsPyTorchs) {
  for (const char* name : {"gqa_llama31", "tied_headdim", "mha_linear"}) {
    const std::string dir = StrCat("tests/golden/", name);
    const auto files = OpenModel(dir);
    ASSERT_TRUE(files.ok()) << files.status();
    const auto io = model::SafetensorsFile::Open(JoinPath(dir, "io.safetensors"));
    ASSERT_TRUE(io.ok()) << io.status();
    const auto expected = ReadJsonFile(JoinPath(dir, "expected.json"));
    ASSERT_TRUE(expected.ok());
    // Two rows of 64 tokens, each its own text; the last label is the token behind the row.
    const model::TensorInfo* info = io->Find("tokens");
    ASSERT_NE(info, nullptr);
    const auto rows = info->shape[0], seq = info->shape[1];
    const auto ids = [&](const char* tensor, int64_t row, int64_t t) {
      const model::TensorInfo* of = io->Find(tensor);
      const std::string_view bytes = io->Data(*of);
      const size_t width = static_cast<size_t>(model::StDtypeBits(of->dtype)) / 8;
      int64_t id = 0;
      std::memcpy(&id, bytes.data() + static_cast<size_t>(row * seq + t) * width, width);
      return static_cast<int32_t>(id);
    };
    Model model(files->config, {.max_batch = 1, .max_time = seq, .training = false});
    ASSERT_TRUE(LoadWeights(*files->weights, model.llama.layout(), model.llama.weights()).ok());
    model.llama.WeightsChanged();
    double sum = 0;
    int64_t count = 0;
    for (int64_t row = 0; row < rows; ++row) {
      std::vector<int32_t> tokens;
      for (int64_t t = 0; t < seq; ++t) tokens.push_back(ids("tokens", row, t));
      tokens.push_back(ids("labels", row, seq - 1));
      const auto text = TokensInMemory("row", tokens, std::nullopt);
      const EvalWindows windows(
          text.get(), {.seq = seq, .stride = seq, .tokens_max = seq, .vocab = files->config.vocab});
      const auto result = EvaluateLoss(&model.llama, windows, nullptr, {});
      ASSERT_TRUE(result.ok()) << result.status();
      sum += result->loss_sum;
      count += result->num_tokens;
    }
    EXPECT_EQ(count, rows * seq);
    const double want = (*expected)["loss"].get<double>();
    EXPECT_NEAR(sum / static_cast<double>(count), want, 3e-6 * want) << name;
  }
}

TEST(LossEvalTest, EndsWhenProgressSaysSo) {
  Model model(SmallConfig(), {.max_batch = 1, .max_time = 4, .training = false});
  InitializeParameters(model.llama.layout(), 1, model.llama.weights());
  model.llama.WeightsChanged();
  const auto text = TokensInMemory("t", std::vector<int32_t>(40, 3), std::nullopt);
  const EvalWindows windows(text.get(), {.seq = 4, .stride = 4, .vocab = 50});
  int64_t calls = 0;
  LossOptions options;
  options.progress = [&](const LossResult& result) {
    EXPECT_EQ(result.num_windows, ++calls);
    return calls < 3;
  };
  EXPECT_EQ(EvaluateLoss(&model.llama, windows, nullptr, options).status().code(),
            StatusCode::kCancelled);
  EXPECT_EQ(calls, 3);
}

}  // namespace
}  // namespace cria::trainer
