#include "trainer/check/golden_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "base/file.h"
#include "base/json.h"
#include "model/cpu/cpu_ops.h"
#include "model/io/safetensors.h"
#include "model/io/sharded_safetensors.h"
#include "model/llama/llama.h"
#include "model/llama/load_weights.h"
#include "trainer/optimizer/adamw.h"

namespace cria::trainer {
namespace {

using model::LossSum;
using model::SafetensorsFile;
using model::Tensor;
using model::TensorInfo;
using model::TokenBatch;

// Limits by precision: fp32 sums in another order than PyTorch's; bf16 rounds every operand to 8
// bits of mantissa, E4M3 and E5M2 to 4 and 3. Measured worst for FP8: 0.26, in the gradients of
// small models' keys, where every product before and after adds its rounding.
struct Limits {
  double value;    // logits, losses, gradients, norms
  double weights;  // after ten steps
};
Limits LimitsOf(model::Precision precision) {
  if (precision == model::Precision::kFp32) return {.value = 3e-6, .weights = 5e-5};
  if (precision == model::Precision::kBf16) return {.value = 2e-2, .weights = 2e-2};
  return {.value = 0.3, .weights = 0.1};
}

double RelativeError(const float* got, const float* want, int64_t n) {
  double difference = 0, size = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double d = static_cast<double>(got[i]) - want[i];
    difference += d * d;
    size += static_cast<double>(want[i]) * want[i];
  }
  return std::sqrt(difference / std::max(size, 1e-300));
}

double RelativeError(double got, double want) { return std::abs(got - want) / std::abs(want); }

// Tokens with their document structure, and the views that the model takes.
struct Sequences {
  std::vector<int32_t> tokens, targets, positions, doc_start;
  int64_t batch = 0, time = 0;

  TokenBatch View() {
    const auto view = [&](std::vector<int32_t>& x) {
      return Tensor(x.data(), model::DType::kI32, {batch * time});
    };
    return {.batch = batch,
            .time = time,
            .tokens = view(tokens),
            .targets = view(targets),
            .positions = view(positions),
            .doc_start = view(doc_start)};
  }
};

// Rows of one document each.
Sequences OneDocumentARow(std::vector<int32_t> tokens, std::vector<int32_t> targets, int64_t batch,
                          int64_t time) {
  Sequences s;
  s.tokens = std::move(tokens);
  s.targets = std::move(targets);
  s.batch = batch;
  s.time = time;
  for (int64_t row = 0; row < batch * time; ++row) {
    s.positions.push_back(static_cast<int32_t>(row % time));
    s.doc_start.push_back(0);
  }
  return s;
}

int64_t CountValid(const Sequences& s) {
  return std::count_if(s.targets.begin(), s.targets.end(), [](int32_t t) { return t >= 0; });
}

class GoldenFolder {
 public:
  GoldenFolder(std::string dir, model::Precision precision)
      : dir_(std::move(dir)), precision_(precision), limits_(LimitsOf(precision)) {}

  Status Run() {
    CRIA_RETURN_IF_ERROR(Open());
    CRIA_RETURN_IF_ERROR(CheckBatch("labels", "gradients.safetensors", "loss", ""));
    CRIA_RETURN_IF_ERROR(
        CheckBatch("labels_masked", "gradients_masked.safetensors", "loss_masked", "masked "));
    CRIA_RETURN_IF_ERROR(CheckLong());
    CRIA_RETURN_IF_ERROR(CheckPacked());
    CRIA_RETURN_IF_ERROR(CheckGreedy());
    return CheckTraining();
  }

  std::vector<GoldenQuantity> TakeQuantities() { return std::move(quantities_); }

 private:
  std::string Path(const char* name) const { return JoinPath(dir_, name); }

  void Add(const std::string& name, double error, double limit) {
    quantities_.push_back({name, error, limit});
  }
  void Add(const std::string& name, double error) { Add(name, error, limits_.value); }

  Status Open() {
    CRIA_ASSIGN_OR_RETURN(config_, model::LlamaConfigFromHuggingFace(Path("config.json")));
    CRIA_ASSIGN_OR_RETURN(expected_, ReadJsonFile(Path("expected.json")));
    CRIA_ASSIGN_OR_RETURN(SafetensorsFile io, SafetensorsFile::Open(Path("io.safetensors")));
    io_ = std::make_unique<SafetensorsFile>(std::move(io));
    ops_ = model::cpu::NewCpuOps();
    CRIA_ASSIGN_OR_RETURN(const std::vector<int64_t> normal, Shape("tokens", 2));
    CRIA_ASSIGN_OR_RETURN(const std::vector<int64_t> longest, Shape("long_tokens", 2));
    CRIA_ASSIGN_OR_RETURN(const std::vector<int64_t> train, Shape("train_tokens", 3));
    CRIA_ASSIGN_OR_RETURN(const std::vector<int64_t> packed, Shape("packed_tokens", 2));
    model::LlamaOptions options;
    options.precision = precision_;
    options.max_batch = std::max({normal[0], longest[0], train[1], packed[0]});
    options.max_time = std::max({normal[1], longest[1], train[2], packed[1]});
    model_ = std::make_unique<model::Llama>(config_, options, ops_.get());
    return LoadModel();
  }

  Status LoadModel() {
    CRIA_ASSIGN_OR_RETURN(const auto source,
                          model::SafetensorsSource::Open(Path("model.safetensors")));
    CRIA_RETURN_IF_ERROR(model::LoadWeights(*source, model_->layout(), model_->weights()));
    model_->linears()->Reset();
    model_->WeightsChanged();
    return OkStatus();
  }

  StatusOr<std::vector<int64_t>> Shape(const char* name, size_t num_dims) const {
    const TensorInfo* info = io_->Find(name);
    if (info == nullptr) return NotFoundError(io_->path(), ": no tensor ", name);
    if (info->shape.size() != num_dims) {
      return InvalidArgumentError(io_->path(), ": tensor ", name, " is ",
                                  model::DescribeTensor(info->dtype, info->shape), "; want ",
                                  num_dims, " dimensions");
    }
    return info->shape;
  }

  // I32 or I64 token ids or labels; each must be under the vocabulary's size and over -101.
  StatusOr<std::vector<int32_t>> Ids(const char* name) const {
    const TensorInfo* info = io_->Find(name);
    if (info == nullptr) return NotFoundError(io_->path(), ": no tensor ", name);
    const std::string_view bytes = io_->Data(*info);
    const size_t size = info->dtype == model::StDtype::kI64 ? 8 : 4;
    if (info->dtype != model::StDtype::kI64 && info->dtype != model::StDtype::kI32) {
      return InvalidArgumentError(io_->path(), ": tensor ", name, " is ",
                                  model::StDtypeName(info->dtype), "; want I32 or I64");
    }
    std::vector<int32_t> ids(bytes.size() / size);
    for (size_t i = 0; i < ids.size(); ++i) {
      int64_t id = 0;
      std::memcpy(&id, bytes.data() + i * size, size);
      if (size == 4) id = static_cast<int32_t>(id);
      if (id >= config_.vocab || id < -100) {
        return InvalidArgumentError(io_->path(), ": tensor ", name, ": id ", id,
                                    " of a vocabulary of ", config_.vocab);
      }
      ids[i] = static_cast<int32_t>(id);
    }
    return ids;
  }

  StatusOr<std::vector<float>> Floats(const SafetensorsFile& file, const std::string& name,
                                      const std::vector<int64_t>& shape) const {
    CRIA_ASSIGN_OR_RETURN(const std::string_view bytes,
                          file.DataOf(name, model::StDtype::kF32, shape));
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  StatusOr<double> Expected(const Json& object, const char* key) const {
    return JsonGet<double>(object, key, Path("expected.json"));
  }

  LossSum Backward(Sequences* s) {
    model_->ZeroGradients();
    return model_->ForwardBackward(s->View(), 1.0f / static_cast<float>(CountValid(*s)));
  }

  double GradientNorm() { return std::sqrt(ops_->SumOfSquares(model_->gradients())); }

  // Logits of rows [begin, end) against the tensor `name` of the same rows.
  Status CheckLogits(Sequences* s, int64_t begin, const char* name, const std::string& label) {
    const int64_t rows = s->batch * s->time - begin;
    std::vector<float> logits(static_cast<size_t>(rows * config_.vocab));
    model_->Logits(s->View(), begin, begin + rows,
                   Tensor(logits.data(), model::DType::kF32, {rows, config_.vocab}));
    CRIA_ASSIGN_OR_RETURN(const std::vector<float> want,
                          Floats(*io_, name, {s->batch, rows / s->batch, config_.vocab}));
    Add(label, RelativeError(logits.data(), want.data(), static_cast<int64_t>(want.size())));
    return OkStatus();
  }

  Status CheckBatch(const char* labels, const char* gradients, const char* loss_key,
                    const std::string& prefix) {
    CRIA_ASSIGN_OR_RETURN(const std::vector<int64_t> shape, Shape("tokens", 2));
    CRIA_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, Ids("tokens"));
    CRIA_ASSIGN_OR_RETURN(std::vector<int32_t> targets, Ids(labels));
    Sequences s = OneDocumentARow(std::move(tokens), std::move(targets), shape[0], shape[1]);
    if (prefix.empty()) CRIA_RETURN_IF_ERROR(CheckLogits(&s, 0, "logits", "logits"));
    const LossSum loss = Backward(&s);
    CRIA_ASSIGN_OR_RETURN(const double want_loss, Expected(expected_, loss_key));
    Add(prefix + "loss", RelativeError(loss.sum / static_cast<double>(loss.num_valid), want_loss));
    if (prefix.empty()) {
      CRIA_ASSIGN_OR_RETURN(const double want_norm, Expected(expected_, "grad_norm"));
      Add("grad_norm", RelativeError(GradientNorm(), want_norm));
    }
    CRIA_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(Path(gradients)));
    return CompareParameters(file, model_->gradients(), prefix + "gradient of ", limits_.value);
  }

  Status CompareParameters(const SafetensorsFile& file, const Tensor& values,
                           const std::string& label, double limit) {
    for (const model::Parameter& parameter : model_->layout().parameters()) {
      CRIA_ASSIGN_OR_RETURN(const std::vector<float> want,
                            Floats(file, parameter.name, parameter.shape()));
      Add(label + parameter.name,
          RelativeError(values.f32() + parameter.offset, want.data(), parameter.num_elements()),
          limit);
    }
    return OkStatus();
  }

  // Positions above 1,000: rotary tables and tiles of attention.
  Status CheckLong() {
    CRIA_ASSIGN_OR_RETURN(const std::vector<int64_t> shape, Shape("long_tokens", 2));
    CRIA_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, Ids("long_tokens"));
    CRIA_ASSIGN_OR_RETURN(std::vector<int32_t> targets, Ids("long_labels"));
    CRIA_ASSIGN_OR_RETURN(const int64_t tail,
                          JsonGet<int64_t>(expected_, "long_tail_start", Path("expected.json")));
    if (tail < 0 || tail >= shape[1] || shape[0] != 1) {
      return InvalidArgumentError(Path("expected.json"), ": long_tail_start: ", tail, " of ",
                                  shape[1], " positions");
    }
    Sequences s = OneDocumentARow(std::move(tokens), std::move(targets), shape[0], shape[1]);
    CRIA_RETURN_IF_ERROR(CheckLogits(&s, tail, "long_logits_tail", "long: logits of the tail"));
    const LossSum loss = Backward(&s);
    CRIA_ASSIGN_OR_RETURN(const double want_loss, Expected(expected_, "long_loss"));
    CRIA_ASSIGN_OR_RETURN(const double want_norm, Expected(expected_, "long_grad_norm"));
    Add("long: loss", RelativeError(loss.sum / static_cast<double>(loss.num_valid), want_loss));
    Add("long: grad_norm", RelativeError(GradientNorm(), want_norm));
    const model::Parameter* q0 = model_->layout().Find("model.layers.0.self_attn.q_proj.weight");
    CRIA_ASSIGN_OR_RETURN(const std::vector<float> want, Floats(*io_, "long_grad_q0", q0->shape()));
    Add("long: gradient of " + q0->name,
        RelativeError(model_->gradients().f32() + q0->offset, want.data(), q0->num_elements()));
    return OkStatus();
  }

  // Several documents in a row: attention stays inside each, positions restart.
  Status CheckPacked() {
    CRIA_ASSIGN_OR_RETURN(const std::vector<int64_t> shape, Shape("packed_tokens", 2));
    CRIA_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, Ids("packed_tokens"));
    CRIA_ASSIGN_OR_RETURN(
        const std::vector<int64_t> lengths,
        JsonGet<std::vector<int64_t>>(expected_, "packed_lengths", Path("expected.json")));
    Sequences s;
    s.batch = 1;
    s.time = static_cast<int64_t>(tokens.size());
    s.targets.assign(tokens.size(), -1);
    s.tokens = std::move(tokens);
    for (const int64_t length : lengths) {
      const auto start = static_cast<int32_t>(s.positions.size());
      for (int64_t i = 0; i < length && static_cast<int64_t>(s.positions.size()) < s.time; ++i) {
        s.positions.push_back(static_cast<int32_t>(i));
        s.doc_start.push_back(start);
      }
    }
    if (static_cast<int64_t>(s.positions.size()) != s.time || shape[0] != 1) {
      return InvalidArgumentError(Path("expected.json"), ": packed_lengths don't add up to ",
                                  s.time, " tokens");
    }
    return CheckLogits(&s, 0, "packed_logits", "packed: logits");
  }

  // The most likely token again and again; every token must agree.
  Status CheckGreedy() {
    if (!expected_.contains("greedy")) return OkStatus();
    const std::string where = Path("expected.json: greedy");
    CRIA_ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                          JsonGet<std::vector<int32_t>>(expected_["greedy"], "prompt", where));
    CRIA_ASSIGN_OR_RETURN(
        const std::vector<int32_t> want,
        JsonGet<std::vector<int32_t>>(expected_["greedy"], "continuation", where));
    int64_t num_wrong = 0;
    for (const int32_t token : want) {
      const auto time = static_cast<int64_t>(ids.size());
      Sequences s = OneDocumentARow(ids, std::vector<int32_t>(ids.size(), -1), 1, time);
      std::vector<float> logits(static_cast<size_t>(config_.vocab));
      model_->Logits(s.View(), time - 1, time,
                     Tensor(logits.data(), model::DType::kF32, {1, config_.vocab}));
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      if (best != token) ++num_wrong;
      ids.push_back(token);  // along the reference's path, so that one near-tie counts once
    }
    // With rounded operands a near-tie may fall the other way.
    const double limit = precision_ == model::Precision::kFp32   ? 0
                         : precision_ == model::Precision::kBf16 ? 0.1
                                                                 : 0.3;
    Add("greedy continuation: share of wrong tokens",
        static_cast<double>(num_wrong) / static_cast<double>(std::max<size_t>(want.size(), 1)),
        limit);
    return OkStatus();
  }

  Status CheckTraining() {
    const Json& train = expected_["train"];
    const std::string where = Path("expected.json: train");
    CRIA_ASSIGN_OR_RETURN(const std::vector<double> losses,
                          JsonGet<std::vector<double>>(train, "losses", where));
    CRIA_ASSIGN_OR_RETURN(const std::vector<double> norms,
                          JsonGet<std::vector<double>>(train, "grad_norms", where));
    AdamWOptions options;
    CRIA_ASSIGN_OR_RETURN(const double lr, JsonGet<double>(train, "lr", where));
    CRIA_ASSIGN_OR_RETURN(options.beta1, JsonGet<double>(train, "beta1", where));
    CRIA_ASSIGN_OR_RETURN(options.beta2, JsonGet<double>(train, "beta2", where));
    CRIA_ASSIGN_OR_RETURN(options.eps, JsonGet<double>(train, "eps", where));
    CRIA_ASSIGN_OR_RETURN(options.weight_decay, JsonGet<double>(train, "weight_decay", where));
    CRIA_ASSIGN_OR_RETURN(options.clip_norm, JsonGet<double>(train, "clip_norm", where));
    CRIA_ASSIGN_OR_RETURN(const std::vector<int64_t> shape, Shape("train_tokens", 3));
    CRIA_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens, Ids("train_tokens"));
    CRIA_ASSIGN_OR_RETURN(const std::vector<int32_t> labels, Ids("train_labels"));
    const auto num_steps = static_cast<size_t>(shape[0]);
    if (losses.size() != num_steps || norms.size() != num_steps || labels.size() != tokens.size()) {
      return InvalidArgumentError(where, ": ", losses.size(), " losses, ", norms.size(),
                                  " grad_norms and ", num_steps, " batches");
    }
    AdamW optimizer(model_->parameters(), options, ops_.get());
    double loss_error = 0, norm_error = 0;
    const int64_t rows = shape[1] * shape[2];
    for (size_t step = 0; step < num_steps; ++step) {
      const auto begin = static_cast<int64_t>(step) * rows;
      Sequences s = OneDocumentARow({tokens.begin() + begin, tokens.begin() + begin + rows},
                                    {labels.begin() + begin, labels.begin() + begin + rows},
                                    shape[1], shape[2]);
      const LossSum loss = Backward(&s);
      const double norm = GradientNorm();
      loss_error = std::max(
          loss_error, RelativeError(loss.sum / static_cast<double>(loss.num_valid), losses[step]));
      norm_error = std::max(norm_error, RelativeError(norm, norms[step]));
      optimizer.Step(lr, norm);
      model_->WeightsChanged();
    }
    Add("ten steps: losses", loss_error, std::max(limits_.value, limits_.weights));
    Add("ten steps: grad_norms", norm_error, std::max(limits_.value, limits_.weights));
    CRIA_ASSIGN_OR_RETURN(const SafetensorsFile file,
                          SafetensorsFile::Open(Path("weights_after_10_steps.safetensors")));
    return CompareParameters(file, model_->weights(), "after ten steps: ", limits_.weights);
  }

  const std::string dir_;
  const model::Precision precision_;
  const Limits limits_;
  model::LlamaConfig config_;
  Json expected_;
  std::unique_ptr<SafetensorsFile> io_;
  std::unique_ptr<model::Ops> ops_;
  std::unique_ptr<model::Llama> model_;
  std::vector<GoldenQuantity> quantities_;
};

}  // namespace

StatusOr<std::vector<GoldenQuantity>> CheckGolden(const std::string& dir,
                                                  model::Precision precision) {
  GoldenFolder folder(dir, precision);
  CRIA_RETURN_IF_ERROR(folder.Run());
  return folder.TakeQuantities();
}

int RunGoldenCheck(const std::vector<std::string>& dirs, model::Precision precision,
                   std::FILE* out) {
  int exit_code = 0;
  for (const std::string& dir : dirs) {
    const StatusOr<std::vector<GoldenQuantity>> quantities = CheckGolden(dir, precision);
    if (!quantities.ok()) {
      std::fprintf(stderr, "check golden: %s\n", Message(quantities.status()).c_str());
      return 2;
    }
    int num_over = 0;
    for (const GoldenQuantity& quantity : *quantities) {
      std::fprintf(out, "%-4s %9.2e (limit %.0e)  %s\n", quantity.ok() ? "ok" : "OVER",
                   quantity.error, quantity.limit, quantity.name.c_str());
      if (!quantity.ok()) ++num_over;
    }
    std::fprintf(out, "%s (%s): %zu quantities, %d over the limit\n", dir.c_str(),
                 model::PrecisionName(precision), quantities->size(), num_over);
    if (num_over > 0) exit_code = 1;
  }
  return exit_code;
}

}  // namespace cria::trainer
