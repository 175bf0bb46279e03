#include "trainer/bench/tokenizer_bench.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/json.h"
#include "base/parallel.h"
#include "trainer/bench/peer_process.h"
#include "trainer/bench/scratch_folder.h"
#include "trainer/data/bible.h"
#include "trainer/tokenizer/bpe_trainer.h"
#include "trainer/tokenizer/parallel_encode.h"
#include "trainer/tokenizer/tokenizer.h"

namespace cria::trainer {
namespace {

constexpr double kPeerDeadlineSeconds = 600;
constexpr const char* kPeers[] = {"tiktoken", "tokenizers"};

StatusOr<std::string> BenchText(const std::string& path) {
  if (!path.empty()) return ReadFile(path);
  CRIA_ASSIGN_OR_RETURN(const std::vector<std::string> chapters, ReadBible({}));
  std::string text;
  for (const std::string& chapter : chapters) text += chapter;
  return text;
}

// With their line ends, as Python's splitlines(keepends=True) on "\n" alone.
std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t size = std::min(text.find('\n'), text.size() - 1) + 1;
    lines.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return lines;
}

StatusOr<Tokenizer> Train(std::string_view text, int32_t vocab_size) {
  CRIA_ASSIGN_OR_RETURN(BpeTrainer trainer, BpeTrainer::Create({.vocab_size = vocab_size}));
  trainer.AddText(text);
  return trainer.Train();
}

Status VerifyRoundTrip(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> whole;
  tokenizer.Encode(text, &whole);
  if (tokenizer.Decode(whole) != text) return DataLossError("the text does not round-trip");
  if (EncodeLongText(tokenizer, text) != whole) {
    return DataLossError("cutting the text for threads changes its ids");
  }
  for (const std::string_view line : Lines(text)) {
    std::vector<int32_t> ids;
    tokenizer.Encode(line, &ids);
    if (tokenizer.Decode(ids) != line) {
      return DataLossError("the line \"", line, "\" does not round-trip");
    }
  }
  return OkStatus();
}

// One peer's answer: its seconds. Internal where the peer says what is wrong with it.
StatusOr<double> AskSeconds(PeerProcess* peer, const std::string& question) {
  CRIA_ASSIGN_OR_RETURN(const std::string answer, peer->Ask(question, kPeerDeadlineSeconds));
  double seconds = 0;
  const auto parsed = std::from_chars(answer.data(), answer.data() + answer.size(), seconds);
  if (parsed.ec != std::errc()) return InternalError("\"", answer, "\" is no number of seconds");
  return seconds;
}

// OK, DataLoss when the ids differ, Internal when the peer is not there.
Status VerifyPeer(PeerProcess* process, const std::string& name, const std::string& ids_path,
                  const std::vector<int32_t>& want) {
  CRIA_RETURN_IF_ERROR(AskSeconds(process, StrCat("ids\t", name, "\t", ids_path)).status());
  CRIA_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(ids_path));
  if (bytes.size() != want.size() * sizeof(int32_t) ||
      std::memcmp(bytes.data(), want.data(), bytes.size()) != 0) {
    return DataLossError(name, " gives other ids for the text: ", bytes.size() / sizeof(int32_t),
                         " against our ", want.size());
  }
  return OkStatus();
}

// One row of the table, measured once a round.
struct Row {
  std::string impl;
  std::string work;  // "encode lines", "encode whole", "train"
  int threads = 1;
  std::function<StatusOr<double>()> measure;  // seconds
  std::vector<double> seconds = {};

  double Median() const {
    std::vector<double> sorted = seconds;
    std::sort(sorted.begin(), sorted.end());
    const size_t half = sorted.size() / 2;
    return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  }
  double Best() const { return *std::min_element(seconds.begin(), seconds.end()); }
};

double Seconds(const std::function<void()>& work) {
  const double start_s = RealClock()->MonotonicSeconds();
  work();
  return RealClock()->MonotonicSeconds() - start_s;
}

// Our own rows. All of them refer to what the caller keeps alive.
std::vector<Row> OurRows(const Tokenizer& tokenizer, std::string_view text,
                         const std::vector<std::string_view>& lines, int32_t vocab_size) {
  const auto encode_lines = [&tokenizer, &lines] {
    return Seconds([&] {
      std::vector<int32_t> ids;
      for (const std::string_view line : lines) {
        ids.clear();
        tokenizer.Encode(line, &ids);
      }
    });
  };
  const auto encode_whole = [&tokenizer, text] {
    return Seconds([&] {
      std::vector<int32_t> ids;
      tokenizer.Encode(text, &ids);
    });
  };
  const auto encode_lines_on_two = [&tokenizer, &lines] {
    const int before = NumThreads();
    SetNumThreads(2);
    const double seconds = Seconds([&] { EncodeTexts(tokenizer, lines); });
    SetNumThreads(before);
    return seconds;
  };
  const auto train = [text, vocab_size]() -> StatusOr<double> {
    Status status;
    const double seconds = Seconds([&] { status = Train(text, vocab_size).status(); });
    if (!status.ok()) return status;
    return seconds;
  };
  return {{"cria", "encode lines", 1, encode_lines},
          {"cria", "encode whole", 1, encode_whole},
          {"cria", "encode lines", 2, encode_lines_on_two},
          {"cria", "train", 1, train}};
}

std::vector<Row> PeerRows(PeerProcess* process, const std::string& name, int32_t vocab_size) {
  const auto ask = [process](std::string question) {
    return [process, question] { return AskSeconds(process, question); };
  };
  std::vector<Row> rows = {{name, "encode lines", 1, ask(StrCat("time\t", name, "\tlines\t1"))},
                           {name, "encode whole", 1, ask(StrCat("time\t", name, "\twhole\t1"))},
                           {name, "encode lines", 2, ask(StrCat("time\t", name, "\tlines\t2"))}};
  if (name == "tokenizers") {  // tiktoken has no trainer to speak of
    rows.push_back({name, "train", 2, ask(StrCat("train\t", name, "\t", vocab_size - 2))});
  }
  return rows;
}

// Our row of the same work; training is compared whatever the threads.
const Row* OursLike(const std::vector<Row>& rows, const Row& row) {
  for (const Row& other : rows) {
    if (other.impl == "cria" && other.work == row.work &&
        (other.threads == row.threads || row.work == "train")) {
      return &other;
    }
  }
  return nullptr;
}

Status PrintRows(const std::vector<Row>& rows, size_t text_bytes, bool is_json) {
  Json list = Json::array();
  const double megabytes = static_cast<double>(text_bytes) / 1e6;
  if (!is_json) {
    std::printf("%-14s %7s  %-12s %11s %11s %9s %15s\n", "work", "threads", "impl", "median MB/s",
                "best MB/s", "median s", "ours / theirs");
  }
  for (const Row& row : rows) {
    const double ratio = row.Median() / OursLike(rows, row)->Median();
    if (is_json) {
      list.push_back({{"impl", row.impl},
                      {"work", row.work},
                      {"threads", row.threads},
                      {"mb_per_s_median", megabytes / row.Median()},
                      {"mb_per_s_best", megabytes / row.Best()},
                      {"seconds_median", row.Median()},
                      {"ours_over_theirs", ratio}});
      continue;
    }
    const std::string shown = row.impl == "cria" ? "" : StrFormat("%.1fx", ratio);
    std::printf("%-14s %7d  %-12s %11.1f %11.1f %9.3f %15s\n", row.work.c_str(), row.threads,
                row.impl.c_str(), megabytes / row.Median(), megabytes / row.Best(), row.Median(),
                shown.c_str());
  }
  if (is_json) {
    CRIA_ASSIGN_OR_RETURN(const std::string text, DumpJson(list, 2));
    std::printf("%s\n", text.c_str());
  }
  return OkStatus();
}

}  // namespace

Status RunTokenizerBench(const TokenizerBenchOptions& options) {
  CRIA_ASSIGN_OR_RETURN(const std::string text, BenchText(options.text_path));
  CRIA_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Train(text, options.vocab_size));
  CRIA_RETURN_IF_ERROR(VerifyRoundTrip(tokenizer, text));
  const std::vector<std::string_view> lines = Lines(text);
  std::vector<int32_t> ids;
  tokenizer.Encode(text, &ids);
  std::FILE* const notes = options.is_json ? stderr : stdout;
  std::fprintf(notes, "%s; %.2f MB in %zu lines, vocabulary %d, %zu tokens; %d rounds\n",
               CpuName().c_str(), static_cast<double>(text.size()) / 1e6, lines.size(),
               tokenizer.vocab_size(), ids.size(), options.num_rounds);
  std::fprintf(notes, "verified: every line and the whole text round-trip\n");

  std::vector<Row> rows = OurRows(tokenizer, text, lines, options.vocab_size);
  std::unique_ptr<ScratchFolder> scratch;
  std::unique_ptr<PeerProcess> peer;
  if (!options.peer_python.empty()) {
    CRIA_ASSIGN_OR_RETURN(scratch, ScratchFolder::Create());
    CRIA_RETURN_IF_ERROR(tokenizer.Save(scratch->File("tokenizer.json")));
    CRIA_RETURN_IF_ERROR(WriteFileAtomic(scratch->File("text"), text));
    CRIA_ASSIGN_OR_RETURN(const std::string script, FindPeerScript("tokenizer_peer.py"));
    CRIA_ASSIGN_OR_RETURN(peer,
                          PeerProcess::Start(options.peer_python, script, kPeerDeadlineSeconds));
    std::fprintf(notes, "peers: %s\n", peer->greeting().c_str());
    CRIA_RETURN_IF_ERROR(AskSeconds(peer.get(), StrCat("load\t", scratch->File("tokenizer.json"),
                                                       "\t", scratch->File("text")))
                             .status());
    for (const char* name : kPeers) {
      const Status status = VerifyPeer(peer.get(), name, scratch->File("ids"), ids);
      if (status.code() == StatusCode::kInternal) {
        std::fprintf(notes, "left out: %s (%s)\n", name, Message(status).c_str());
        continue;
      }
      CRIA_RETURN_IF_ERROR(status);
      std::fprintf(notes, "verified: %s gives the same ids\n", name);
      for (Row& row : PeerRows(peer.get(), name, options.vocab_size)) {
        rows.push_back(std::move(row));
      }
    }
  }

  for (int round = 0; round < std::max(1, options.num_rounds); ++round) {
    for (Row& row : rows) {
      const StatusOr<double> seconds = row.measure();
      if (!seconds.ok()) {
        return Annotate(seconds.status(), StrCat("measure ", row.impl, ", ", row.work));
      }
      row.seconds.push_back(*seconds);
    }
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return std::pair(a.work, a.work == "train" ? 0 : a.threads) <
           std::pair(b.work, b.work == "train" ? 0 : b.threads);
  });
  return PrintRows(rows, text.size(), options.is_json);
}

}  // namespace cria::trainer
