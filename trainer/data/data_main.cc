// `cria data`: prepare a corpus, audit how an epoch reads it, look into it.
//
// Exit: 0 done; 1 something went wrong, or the audit found a fault; 2 usage.

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/json.h"
#include "base/stop_signals.h"
#include "trainer/data/audit.h"
#include "trainer/data/data_tokenizer.h"
#include "trainer/data/prepare.h"
#include "trainer/data/token_dataset.h"

namespace cria::trainer {
namespace {

std::atomic<bool> stop_requested = false;  // by the first signal; the second ends at once

struct PrepareFlags {
  PrepareOptions options;
  std::string format = "auto";
  std::string dtype = "auto";
  bool is_quiet = false;
  bool is_json = false;
};

struct AuditFlags {
  std::string dir;
  std::string split = "train";
  AuditOptions options;
  bool is_in_order = false;
  bool is_json = false;
};

struct InspectFlags {
  std::string dir;
  std::string split = "train";
  int64_t num_documents = 2;
  int64_t num_tokens = 64;
  bool verify = false;
  bool is_json = false;
};

// 1234567 -> "1,234,567".
std::string WithCommas(int64_t count) {
  std::string digits = StrCat(count);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<size_t>(at), 1, ',');
  }
  return digits;
}

// "\f" as typed in a shell, and its like, to the character that it stands for.
StatusOr<std::string> Unescape(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    const std::string_view names = "nrtf0\\";
    const std::string_view values("\n\r\t\f\0\\", 6);
    const size_t at = i + 1 < text.size() ? names.find(text[i + 1]) : names.npos;
    if (at == names.npos) {
      return InvalidArgumentError("--split-on \"", text, "\": after a backslash comes one of ",
                                  names);
    }
    out += values[at];
    ++i;
  }
  return out;
}

void PrintSplit(const char* name, const SplitInfo& split) {
  std::printf("  %-6s%14s tokens %10s documents %12s of text %5zu shard%s\n", name,
              WithCommas(split.num_tokens).c_str(), WithCommas(split.num_documents).c_str(),
              HumanBytes(static_cast<double>(split.num_bytes)).c_str(), split.shards.size(),
              split.shards.size() == 1 ? "" : "s");
}

void PrintManifest(const Manifest& manifest) {
  PrintSplit("train", manifest.train);
  PrintSplit("val", manifest.val);
  std::printf("  tokenizer %s: %s tokens, BOS %d, EOS %d; ids stored as %s\n",
              manifest.tokenizer_file.c_str(), WithCommas(manifest.vocab_size).c_str(),
              manifest.bos_id, manifest.eos_id,
              std::string(TokenTypeName(manifest.token_type)).c_str());
}

Json SplitJson(const SplitInfo& split) {
  return {{"tokens", split.num_tokens},
          {"documents", split.num_documents},
          {"bytes", split.num_bytes},
          {"shards", split.shards.size()}};
}

Json ManifestJson(const std::string& dir, const Manifest& manifest) {
  return {{"dir", dir},
          {"source", manifest.source},
          {"vocab_size", manifest.vocab_size},
          {"bos_id", manifest.bos_id},
          {"eos_id", manifest.eos_id},
          {"dtype", std::string(TokenTypeName(manifest.token_type))},
          {"tokenizer_fingerprint", manifest.tokenizer_fingerprint},
          {"train", SplitJson(manifest.train)},
          {"val", SplitJson(manifest.val)}};
}

Status PrintJson(const Json& json) {
  CRIA_ASSIGN_OR_RETURN(const std::string text, DumpJson(json, 2));
  std::printf("%s\n", text.c_str());
  return OkStatus();
}

Status RunPrepare(PrepareFlags flags) {
  PrepareOptions& options = flags.options;
  options.source.format = flags.format == "jsonl"  ? TextFormat::kJsonl
                          : flags.format == "text" ? TextFormat::kText
                                                   : TextFormat::kAuto;
  if (flags.dtype != "auto") {
    CRIA_ASSIGN_OR_RETURN(options.token_type, ParseTokenType(flags.dtype));
  }
  CRIA_ASSIGN_OR_RETURN(options.source.split_on, Unescape(options.source.split_on));
  options.progress = flags.is_quiet ? nullptr : stderr;
  options.stop = &stop_requested;
  CRIA_ASSIGN_OR_RETURN(const PrepareResult result, PrepareData(options));
  if (flags.is_json) {
    Json json = ManifestJson(options.out_dir, result.manifest);
    json["reused"] = result.is_reused;
    return PrintJson(json);
  }
  std::printf("%s %s from %s\n", result.is_reused ? "unchanged" : "prepared",
              options.out_dir.c_str(), result.manifest.source.c_str());
  PrintManifest(result.manifest);
  return OkStatus();
}

Json ReportJson(const AuditFlags& flags, const AuditReport& report) {
  return {{"dir", flags.dir},
          {"split", flags.split},
          {"ok", report.ok},
          {"problem", report.problem},
          {"seq", flags.options.seq},
          {"world", flags.options.world_size},
          {"batch", flags.options.global_batch},
          {"seed", flags.options.seed},
          {"epoch", flags.options.epoch},
          {"steps", report.num_steps},
          {"samples", report.num_samples},
          {"tokens", report.num_tokens},
          {"seen", report.num_seen},
          {"repeated", report.num_repeated},
          {"missing", report.num_missing},
          {"targets", report.num_valid},
          {"padding", report.num_padding},
          {"documents", report.num_documents},
          {"rank_samples_min", report.rank_samples_min},
          {"rank_samples_max", report.rank_samples_max}};
}

Status RunAudit(AuditFlags flags) {
  flags.options.shuffle = !flags.is_in_order;
  CRIA_ASSIGN_OR_RETURN(const TokenDataset dataset, TokenDataset::Open(flags.dir, flags.split));
  CRIA_ASSIGN_OR_RETURN(const AuditReport report, AuditEpoch(dataset, flags.options));
  if (flags.is_json) {
    CRIA_RETURN_IF_ERROR(PrintJson(ReportJson(flags, report)));
  } else {
    std::printf("audit %s %s: epoch %lld, seed %llu, seq %lld, batch %lld over %lld rank%s\n",
                flags.dir.c_str(), flags.split.c_str(), static_cast<long long>(flags.options.epoch),
                static_cast<unsigned long long>(flags.options.seed),
                static_cast<long long>(flags.options.seq),
                static_cast<long long>(flags.options.global_batch),
                static_cast<long long>(flags.options.world_size),
                flags.options.world_size == 1 ? "" : "s");
    std::printf("  %s steps, %s samples, a rank reads %s to %s\n",
                WithCommas(report.num_steps).c_str(), WithCommas(report.num_samples).c_str(),
                WithCommas(report.rank_samples_min).c_str(),
                WithCommas(report.rank_samples_max).c_str());
    std::printf("  %s tokens in the shards, %s seen, %s again, %s never\n",
                WithCommas(report.num_tokens).c_str(), WithCommas(report.num_seen).c_str(),
                WithCommas(report.num_repeated).c_str(), WithCommas(report.num_missing).c_str());
    std::printf("  %s targets = tokens - %s documents; %s places padded\n",
                WithCommas(report.num_valid).c_str(), WithCommas(report.num_documents).c_str(),
                WithCommas(report.num_padding).c_str());
    if (report.ok) std::printf("ok: every token of the epoch exactly once\n");
  }
  if (!report.ok) return DataLossError("audit ", flags.dir, ": ", report.problem);
  return OkStatus();
}

// Text for a terminal: control characters (escape sequences among them) become '?'.
std::string Printable(std::string text) {
  for (char& c : text) {
    if ((static_cast<uint8_t>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7F) c = '?';
  }
  return text;
}

// The first `num_tokens` ids of the first documents of a split, decoded.
std::vector<std::string> FirstDocuments(const TokenDataset& dataset, const Tokenizer& tokenizer,
                                        const InspectFlags& flags) {
  std::vector<std::string> texts;
  std::vector<int32_t> ids;
  const auto is_wanted = [&] { return static_cast<int64_t>(texts.size()) < flags.num_documents; };
  for (int64_t at = 0; at < dataset.num_tokens() && is_wanted(); ++at) {
    int32_t id;
    dataset.Read(at, std::span(&id, 1));
    if (id == dataset.bos_id()) {
      ids.clear();
    } else if (id == dataset.eos_id()) {
      texts.push_back(tokenizer.Decode(ids));
    } else if (static_cast<int64_t>(ids.size()) < flags.num_tokens) {
      ids.push_back(id);
    }
  }
  return texts;
}

Status RunInspect(const InspectFlags& flags) {
  CRIA_ASSIGN_OR_RETURN(const TokenDataset dataset,
                        TokenDataset::Open(flags.dir, flags.split, {.verify = flags.verify}));
  const Manifest& manifest = dataset.manifest();
  if (flags.verify) CRIA_RETURN_IF_ERROR(VerifyFiles(flags.dir, manifest));
  CRIA_ASSIGN_OR_RETURN(const Tokenizer tokenizer, LoadDataTokenizer(flags.dir, manifest));
  if (flags.is_json) return PrintJson(ManifestJson(flags.dir, manifest));

  std::printf("%s from %s%s\n", flags.dir.c_str(), manifest.source.c_str(),
              flags.verify ? " (all hashes right)" : "");
  PrintManifest(manifest);
  int64_t index = 0;
  for (const std::string& text : FirstDocuments(dataset, tokenizer, flags)) {
    std::printf("--- %s document %lld\n%s\n", flags.split.c_str(), static_cast<long long>(index++),
                Printable(text).c_str());
  }
  return OkStatus();
}

void AddPrepare(CLI::App* app, PrepareFlags* flags) {
  PrepareOptions& options = flags->options;
  app->add_option("INPUT", options.source.inputs,
                  "Text or JSONL files, also .zst, folders, - for standard input. "
                  "None: the King James Bible (Debian's bible-kjv)");
  app->add_option("-o,--out", options.out_dir, "The folder to make")->required();
  app->add_option("--tokenizer", options.tokenizer_path,
                  "A tokenizer.json; without it, one is trained on the input");
  app->add_option("--vocab-size", options.vocab_size, "Tokens of the trained tokenizer");
  app->add_option("--tokenizer-sample-bytes", options.tokenizer_sample_bytes,
                  "The most text it is trained on");
  app->add_option("--val-fraction", options.val_fraction,
                  "Documents held out for validation, by hash");
  app->add_option("--seed", options.seed, "Seed of that choice");
  app->add_option("--format", flags->format, "auto: JSONL by its name")
      ->check(CLI::IsMember({"auto", "text", "jsonl"}));
  app->add_option("--field", options.source.field, "The JSONL key that holds the text");
  app->add_option("--split-on", options.source.split_on,
                  "Text that ends a document in a text file, such as \\f or \\n\\n\\n; "
                  "without it, a file is a document");
  app->add_flag("--allow-binary", options.source.allow_binary, "Take files with NUL bytes");
  app->add_option("--shard-tokens", options.shard_tokens, "Tokens a shard file");
  app->add_option("--dtype", flags->dtype, "How ids are stored; auto: by vocabulary")
      ->check(CLI::IsMember({"auto", "uint16", "uint32"}));
  app->add_flag("--force", options.force, "Make the folder again, whatever is there");
  app->add_flag("-q,--quiet", flags->is_quiet, "No progress bar");
  app->add_flag("--json", flags->is_json, "Print the result as JSON");
}

void AddAudit(CLI::App* app, AuditFlags* flags) {
  app->add_option("DIR", flags->dir, "A prepared folder")->required();
  app->add_option("--split", flags->split, "train or val");
  app->add_option("--seq", flags->options.seq, "Tokens a sample");
  app->add_option("--world", flags->options.world_size, "Ranks that share each batch");
  app->add_option("--batch", flags->options.global_batch, "Samples a step, over all ranks");
  app->add_option("--seed", flags->options.seed, "Seed of the order");
  app->add_option("--epoch", flags->options.epoch, "Which epoch");
  app->add_flag("--in-order", flags->is_in_order, "Without the shuffle, as evaluation reads");
  app->add_flag("--json", flags->is_json, "Print the result as JSON");
}

void AddInspect(CLI::App* app, InspectFlags* flags) {
  app->add_option("DIR", flags->dir, "A prepared folder")->required();
  app->add_option("--split", flags->split, "train or val");
  app->add_option("--docs", flags->num_documents, "Documents to show");
  app->add_option("--tokens", flags->num_tokens, "Tokens to show of each");
  app->add_flag("--verify", flags->verify, "Compare all hashes first");
  app->add_flag("--json", flags->is_json, "Print the manifest's numbers as JSON");
}

int Main(int argc, char** argv) {
  StopSignals signals;  // before any other thread
  CLI::App app("Prepare training data, audit it, look into it", "cria data");
  app.require_subcommand(1);
  app.option_defaults()->always_capture_default();
  PrepareFlags prepare;
  AuditFlags audit;
  InspectFlags inspect;
  CLI::App* const prepare_app = app.add_subcommand("prepare", "Text into token shards");
  CLI::App* const audit_app =
      app.add_subcommand("audit", "Prove that an epoch shows every token exactly once");
  CLI::App* const inspect_app = app.add_subcommand("inspect", "What a prepared folder holds");
  AddPrepare(prepare_app, &prepare);
  AddAudit(audit_app, &audit);
  AddInspect(inspect_app, &inspect);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }

  Status status;
  if (*prepare_app) {
    signals.Take([](int signal_number) {
      if (stop_requested.exchange(true)) _exit(128 + signal_number);
    });
    status = RunPrepare(prepare);
  }
  if (*audit_app) status = RunAudit(audit);
  if (*inspect_app) status = RunInspect(inspect);
  if (!status.ok()) std::fprintf(stderr, "cria data: %s\n", Message(status).c_str());
  return ExitCode(status);
}

}  // namespace
}  // namespace cria::trainer

int main(int argc, char** argv) { return cria::trainer::Main(argc, argv); }
