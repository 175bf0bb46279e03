#include "trainer/bench/generate_bench.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/json.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "model/cpu/cpu_ops.h"
#include "model/llama/decoder.h"
#include "model/llama/parameter_source.h"
#include "trainer/bench/memory_baseline.h"
#include "trainer/bench/peer_process.h"
#include "trainer/bench/samples.h"
#include "trainer/bench/scratch_folder.h"
#include "trainer/models/gguf_model.h"

namespace cria::trainer {
namespace {

using model::DType;
using model::LlamaDecoder;
using model::Tensor;

constexpr uint64_t kSeed = 1;
constexpr double kPeerDeadlineSeconds = 600;
// Of the largest logit: other summation orders; for bf16 one rounding of 2^-9 an operand and layer.
constexpr double kLogitLimitF32 = 1e-3, kLogitLimitBf16 = 0.1;

const char* ShortName(DType type) { return type == DType::kBF16 ? "bf16" : "f32"; }

model::LlamaConfig BenchModel(bool tiny) {
  model::LlamaConfig config;
  config.layers = tiny ? 2 : 12;
  config.dim = tiny ? 64 : 768;
  config.heads = config.kv_heads = tiny ? 2 : 12;
  config.ffn = tiny ? 96 : 2048;
  config.vocab = tiny ? 128 : 32000;
  config.rope_theta = 10000;
  return config;
}

// The model's weights, and tokens to run.
struct Subject {
  explicit Subject(const GenerateBenchOptions& options)
      : config(BenchModel(options.tiny)),
        layout(config),
        memory(static_cast<size_t>(layout.num_elements())),
        weights(memory.data(), DType::kF32, {layout.num_elements()}) {
    model::InitializeParameters(layout, kSeed, weights);
    const Rng rng(kSeed, StreamOf("bench generate"));
    const auto vocab = static_cast<uint64_t>(config.vocab);
    for (int64_t i = 0; i < options.prompt + options.tokens; ++i) {
      const auto token = static_cast<int32_t>(rng.Below(static_cast<uint64_t>(i), vocab));
      (i < options.prompt ? prompt : decoded).push_back(token);
    }
  }

  const model::LlamaConfig config;
  const model::ParameterLayout layout;
  std::vector<float> memory;
  const Tensor weights;
  std::vector<int32_t> prompt, decoded;
};

struct Bench {
  const GenerateBenchOptions& options;
  std::FILE* notes;
  Subject subject;
  std::unique_ptr<model::Ops> ops = model::cpu::NewCpuOps();
  std::unique_ptr<ScratchFolder> scratch = {};
  std::unique_ptr<PeerProcess> peer = {};
};

StatusOr<std::unique_ptr<LlamaDecoder>> NewDecoder(Bench* bench, DType type) {
  const model::ParameterSource source(bench->subject.layout, bench->subject.weights, "benchmark");
  const int64_t positions = bench->options.prompt + bench->options.tokens;
  return LlamaDecoder::Load(bench->subject.config,
                            {.type = type, .max_positions = positions, .max_rows = positions},
                            source, bench->ops.get());
}

std::string Ids(const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) text += StrCat(text.empty() ? "" : ",", id);
  return text;
}

StatusOr<double> AskSeconds(PeerProcess* peer, const std::string& question) {
  CRIA_ASSIGN_OR_RETURN(const std::string answer, peer->Ask(question, kPeerDeadlineSeconds));
  double seconds = 0;
  const auto parsed = std::from_chars(answer.data(), answer.data() + answer.size(), seconds);
  if (parsed.ec != std::errc()) return InternalError("\"", answer, "\" is no number of seconds");
  return seconds;
}

std::vector<float> PromptLogits(const Bench& bench, LlamaDecoder* decoder) {
  decoder->Truncate(0, 0);
  const Tensor logits = decoder->Forward({{.sequence = 0, .tokens = bench.subject.prompt}});
  return {logits.f32(), logits.f32() + logits.num_elements()};
}

// Token by token the same bits as in one call.
Status VerifyDecoding(const Bench& bench, LlamaDecoder* decoder) {
  const std::vector<float> want = PromptLogits(bench, decoder);
  decoder->Truncate(0, 0);
  Tensor logits;
  for (const int32_t& token : bench.subject.prompt) {
    logits = decoder->Forward({{.sequence = 0, .tokens = {&token, 1}}});
  }
  if (std::memcmp(logits.f32(), want.data(), want.size() * sizeof(float)) != 0) {
    return DataLossError("decoding gives other logits than the prompt in one call");
  }
  std::fprintf(bench.notes, "verified: %zu tokens decoded one by one give the prompt's logits\n",
               bench.subject.prompt.size());
  return OkStatus();
}

// Exports the weights, loads them there, compares the prompt's logits.
Status PreparePeer(Bench* bench, DType type, LlamaDecoder* decoder) {
  ModelFiles files;
  files.path = "benchmark";
  files.config = bench->subject.config;
  files.weights = std::make_unique<model::ParameterSource>(bench->subject.layout,
                                                           bench->subject.weights, "benchmark");
  const std::string name = ShortName(type);
  const std::string path = bench->scratch->File(name + ".gguf");
  const auto gguf_type = type == DType::kBF16 ? model::GgmlType::kBF16 : model::GgmlType::kF32;
  CRIA_RETURN_IF_ERROR(ExportGguf(files, path, {.type = gguf_type, .keep_tokenizer = false}));
  const int64_t positions = bench->options.prompt + bench->options.tokens;
  // Its keys and values as it likes them: f16 unless all is fp32.
  CRIA_RETURN_IF_ERROR(bench->peer
                           ->Ask(StrCat("load ", name, " ", path, " ",
                                        type == DType::kBF16 ? "f16" : "f32", " ", positions),
                                 kPeerDeadlineSeconds)
                           .status());
  const std::string logits_path = bench->scratch->File("logits");
  CRIA_RETURN_IF_ERROR(
      bench->peer
          ->Ask(StrCat("logits ", name, " 2 ", Ids(bench->subject.prompt), " ", logits_path),
                kPeerDeadlineSeconds)
          .status());
  CRIA_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(logits_path));
  const std::vector<float> ours = PromptLogits(*bench, decoder);
  std::vector<float> theirs(ours.size());
  if (bytes.size() != ours.size() * sizeof(float)) {
    return DataLossError("the peer gives ", bytes.size(), " bytes of logits");
  }
  std::memcpy(theirs.data(), bytes.data(), bytes.size());
  double largest = 0, difference = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    largest = std::max<double>(largest, std::abs(ours[i]));
    difference = std::max<double>(difference, std::abs(ours[i] - theirs[i]));
  }
  const double limit = type == DType::kBF16 ? kLogitLimitBf16 : kLogitLimitF32;
  if (!(difference <= limit * largest)) {
    return DataLossError("the peer's ", name, " logits differ by ", difference / largest,
                         " of the largest");
  }
  std::fprintf(bench->notes, "verified: %s logits differ by %.1e of the largest\n", name.c_str(),
               difference / largest);
  return OkStatus();
}

// One thing that is timed once a round.
struct Row {
  std::string impl, work;  // "prompt", "decode"
  DType type = DType::kF32;
  int threads = 1;
  int64_t tokens = 0;
  std::function<StatusOr<double>()> measure = {};  // seconds
  Samples seconds = {};
  double bound = 0;  // tokens a second that memory allows

  double Rate() const { return static_cast<double>(tokens) / seconds.Median(); }
};

// Prompt and decoding of one implementation; decoding goes on from where the prompt ended.
void AddRows(Bench* bench, DType type, int threads, LlamaDecoder* decoder, std::vector<Row>* rows) {
  const Subject& subject = bench->subject;
  const auto timed = [threads](const std::function<void()>& work) {
    const int before = NumThreads();
    SetNumThreads(threads);
    const double start = RealClock()->MonotonicSeconds();
    work();
    const double seconds = RealClock()->MonotonicSeconds() - start;
    SetNumThreads(before);
    return seconds;
  };
  const auto n = [](const std::vector<int32_t>& ids) { return static_cast<int64_t>(ids.size()); };
  rows->push_back({.impl = "cria",
                   .work = "prompt",
                   .type = type,
                   .threads = threads,
                   .tokens = n(subject.prompt),
                   .measure = [=, &subject]() -> StatusOr<double> {
                     decoder->Truncate(0, 0);
                     return timed([&] { decoder->Forward({{.tokens = subject.prompt}}); });
                   }});
  rows->push_back({.impl = "cria",
                   .work = "decode",
                   .type = type,
                   .threads = threads,
                   .tokens = n(subject.decoded),
                   .measure = [=, &subject]() -> StatusOr<double> {
                     return timed([&] {
                       for (const int32_t& token : subject.decoded) {
                         decoder->Forward({{.tokens = {&token, 1}}});
                       }
                     });
                   }});
  if (bench->peer == nullptr) return;
  for (const auto& [work, ids] :
       {std::pair("prompt", &subject.prompt), std::pair("decode", &subject.decoded)}) {
    rows->push_back({.impl = "llama.cpp",
                     .work = work,
                     .type = type,
                     .threads = threads,
                     .tokens = n(*ids),
                     .measure = [=, peer = bench->peer.get()] {
                       return AskSeconds(
                           peer, StrCat(work, " ", ShortName(type), " ", threads, " ", Ids(*ids)));
                     }});
  }
}

// Bytes that one decoded token reads: each matrix once, and the cache at half of the way.
double BytesPerToken(const Bench& bench, DType type) {
  const model::LlamaConfig& config = bench.subject.config;
  const int64_t positions = bench.options.prompt + bench.options.tokens / 2;
  return static_cast<double>(model::DTypeBytes(type) *
                             (bench.subject.layout.num_matmul_elements() +
                              2 * config.layers * positions * config.KvDim()));
}

const Row* Like(const std::vector<Row>& rows, const std::string& impl, const Row& row) {
  for (const Row& other : rows) {
    if (other.impl == impl && other.work == row.work && other.type == row.type &&
        other.threads == row.threads) {
      return &other;
    }
  }
  return nullptr;
}

Status Print(const std::vector<Row>& rows, bool json, std::FILE* out) {
  Json list = Json::array();
  if (!json) {
    std::fprintf(out, "%-7s %-5s %7s  %-10s %14s %12s %8s %14s\n", "work", "type", "threads",
                 "impl", "tokens/s median", "tokens/s best", "spread", "ours / theirs");
  }
  for (const Row& row : rows) {
    const Row* ours = Like(rows, "cria", row);
    const double ratio = MedianRatio(row.seconds, ours->seconds);
    const double share = row.bound > 0 ? row.Rate() / row.bound : 0;
    if (json) {
      Json object = {{"impl", row.impl},
                     {"work", row.work},
                     {"type", ShortName(row.type)},
                     {"threads", row.threads},
                     {"tokens_per_s_median", row.Rate()},
                     {"tokens_per_s_best", static_cast<double>(row.tokens) / row.seconds.Best()},
                     {"ours_over_theirs", ratio}};
      if (row.bound > 0) object["share_of_memory_bound"] = share;
      list.push_back(object);
      continue;
    }
    std::string note = row.impl == "cria" ? "" : StrFormat("%.2fx", ratio);
    if (row.bound > 0) note += StrFormat("  %.0f %% of memory", 100 * share);
    std::fprintf(out, "%-7s %-5s %7d  %-10s %15.1f %13.1f %7.0f%% %14s\n", row.work.c_str(),
                 ShortName(row.type), row.threads, row.impl.c_str(), row.Rate(),
                 static_cast<double>(row.tokens) / row.seconds.Best(), 100 * row.seconds.Spread(),
                 note.c_str());
  }
  if (!json) return OkStatus();
  CRIA_ASSIGN_OR_RETURN(const std::string text, DumpJson(list, 2));
  std::fprintf(out, "%s\n", text.c_str());
  return OkStatus();
}

}  // namespace

Status RunGenerateBench(const GenerateBenchOptions& options, std::FILE* out, std::FILE* notes) {
  Bench bench = {.options = options, .notes = notes, .subject = Subject(options)};
  std::fprintf(notes, "%s; %s parameters, a prompt of %lld tokens, %lld decoded; %d rounds\n",
               CpuName().c_str(),
               HumanCount(static_cast<double>(bench.subject.layout.num_elements())).c_str(),
               static_cast<long long>(options.prompt), static_cast<long long>(options.tokens),
               options.reps);
  if (!options.peer.empty()) {
    CRIA_ASSIGN_OR_RETURN(bench.scratch, ScratchFolder::Create());
    CRIA_ASSIGN_OR_RETURN(const std::string script, FindPeerScript("generate_peer.py"));
    CRIA_ASSIGN_OR_RETURN(bench.peer,
                          PeerProcess::Start(options.peer, script, kPeerDeadlineSeconds));
    std::fprintf(notes, "peer: %s\n", bench.peer->greeting().c_str());
  }
  std::vector<std::unique_ptr<LlamaDecoder>> decoders;
  std::vector<Row> rows;
  for (const DType type : options.types) {
    CRIA_ASSIGN_OR_RETURN(decoders.emplace_back(), NewDecoder(&bench, type));
    if (type == DType::kF32) CRIA_RETURN_IF_ERROR(VerifyDecoding(bench, decoders.back().get()));
    if (bench.peer) CRIA_RETURN_IF_ERROR(PreparePeer(&bench, type, decoders.back().get()));
    for (const int threads : options.threads) {
      AddRows(&bench, type, threads, decoders.back().get(), &rows);
    }
  }
  // Each round reads the memory's speed beside the rest.
  MemoryBaseline memory;
  std::vector<double> gb_per_s(options.threads.size(), 0);
  for (int round = 0; round < options.reps + 1; ++round) {
    const bool warm_up = round == 0;
    for (size_t i = 0; i < options.threads.size(); ++i) {
      gb_per_s[i] = std::max(gb_per_s[i], memory.Run(options.threads[i]).read);
    }
    for (Row& row : rows) {
      CRIA_ASSIGN_OR_RETURN(const double seconds, row.measure());
      if (!warm_up) row.seconds.Add(seconds);
    }
  }
  for (size_t i = 0; i < options.threads.size(); ++i) {
    std::fprintf(notes, "memory: %.1f GB/s read by %d threads\n", gb_per_s[i], options.threads[i]);
    for (Row& row : rows) {
      if (row.work != "decode" || row.threads != options.threads[i]) continue;
      row.bound = gb_per_s[i] * 1e9 / BytesPerToken(bench, row.type);
    }
  }
  return Print(rows, options.json, out);
}

}  // namespace cria::trainer
