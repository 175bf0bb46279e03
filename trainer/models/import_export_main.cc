// cria import, cria export: models from and to the formats of other programs.

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "base/file.h"
#include "base/stop_signals.h"
#include "base/str.h"
#include "trainer/models/gguf_model.h"
#include "trainer/models/hf_writer.h"
#include "trainer/models/meta_model.h"
#include "trainer/models/model_files.h"

namespace cria::trainer {
namespace {

using model::StDtype;

std::atomic<bool> stop{false};  // by the first signal; the second ends at once

struct Flags {
  std::string format;
  std::string path;
  std::string out;
  std::string dtype;
  std::string max_shard_size;
  std::optional<double> rope_factor;
  bool no_tokenizer = false;
};

// "5GB", "500MB", "1234": powers of 1000, as transformers counts.
StatusOr<uint64_t> ParseSize(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  double scale = 0;
  if (unit.empty() || unit == "B") scale = 1;
  if (unit == "KB") scale = 1e3;
  if (unit == "MB") scale = 1e6;
  if (unit == "GB") scale = 1e9;
  if (unit == "TB") scale = 1e12;
  if (end == text.c_str() || scale == 0 || !(number * scale >= 1 && number * scale < 1e18)) {
    return InvalidArgumentError("--max-shard-size ", text,
                                ": want a size as in 5GB (B, KB, MB, GB, TB)");
  }
  return static_cast<uint64_t>(number * scale);
}

std::optional<StDtype> HfDtype(const std::string& name) {
  if (name == "f32") return StDtype::kF32;
  if (name == "f16") return StDtype::kF16;
  if (name == "bf16") return StDtype::kBF16;
  return std::nullopt;
}

Status WriteHf(const ModelFiles& files, const Flags& flags) {
  HfWriterOptions options;
  options.stop = &stop;
  options.dtype = HfDtype(flags.dtype);
  if (!flags.dtype.empty() && !options.dtype) {
    return InvalidArgumentError("--dtype ", flags.dtype,
                                ": a Hugging Face folder holds f32, f16 or bf16");
  }
  if (!flags.max_shard_size.empty()) {
    CRIA_ASSIGN_OR_RETURN(options.max_shard_bytes, ParseSize(flags.max_shard_size));
  }
  CRIA_ASSIGN_OR_RETURN(const HfWriterResult result, WriteHfModel(files, flags.out, options));
  std::printf("wrote %s: %d file%s of weights, %s\n", flags.out.c_str(), result.num_files,
              result.num_files == 1 ? "" : "s",
              HumanBytes(static_cast<double>(result.bytes)).c_str());
  if (!files.tokenizer) {
    std::printf("no tokenizer: %s\n", Message(files.tokenizer_status).c_str());
  }
  return OkStatus();
}

std::optional<model::GgmlType> GgufType(const std::string& name) {
  using model::GgmlType;
  if (name == "f32") return GgmlType::kF32;
  if (name == "f16") return GgmlType::kF16;
  if (name == "bf16") return GgmlType::kBF16;
  if (name == "q8_0") return GgmlType::kQ8_0;
  return std::nullopt;
}

Status WriteGguf(const ModelFiles& files, const Flags& flags) {
  if (!flags.max_shard_size.empty()) {
    return InvalidArgumentError("--max-shard-size: a GGUF file is not split");
  }
  CRIA_RETURN_IF_ERROR(ExportGguf(
      files, flags.out,
      {.type = GgufType(flags.dtype), .keep_tokenizer = !flags.no_tokenizer, .overwrite = false}));
  CRIA_ASSIGN_OR_RETURN(const uint64_t bytes, FileSize(flags.out));
  std::printf("wrote %s: %s\n", flags.out.c_str(), HumanBytes(static_cast<double>(bytes)).c_str());
  return OkStatus();
}

Status CheckOut(const Flags& flags) {
  if (!Exists(flags.out)) return OkStatus();
  return InvalidArgumentError("--out ", flags.out, " exists already: choose another");
}

Status RunImport(const Flags& flags) {
  CRIA_RETURN_IF_ERROR(CheckOut(flags));
  if (flags.rope_factor) {
    if (flags.format != "meta") {
      return InvalidArgumentError("--rope-factor: only Meta's params.json leaves it open");
    }
    CRIA_ASSIGN_OR_RETURN(const ModelFiles files,
                          OpenMetaModel(flags.path, {.rope_factor = flags.rope_factor}));
    return WriteHf(files, flags);
  }
  CRIA_ASSIGN_OR_RETURN(const ModelFiles files, OpenModel(flags.path));
  if (flags.format != ModelFormatName(files.format)) {
    return InvalidArgumentError(flags.path, " is of the format ", ModelFormatName(files.format),
                                ", not ", flags.format);
  }
  return WriteHf(files, flags);
}

Status RunExport(const Flags& flags) {
  CRIA_RETURN_IF_ERROR(CheckOut(flags));
  if (flags.no_tokenizer && flags.format != "gguf") {
    return InvalidArgumentError("--no-tokenizer: for gguf alone; of a folder, leave out its files");
  }
  CRIA_ASSIGN_OR_RETURN(const ModelFiles files, OpenModel(flags.path));
  return flags.format == "gguf" ? WriteGguf(files, flags) : WriteHf(files, flags);
}

void AddImport(CLI::App* app, Flags* flags) {
  app->add_option("format", flags->format, "hf, gguf or meta")
      ->required()
      ->check(CLI::IsMember({"hf", "gguf", "meta"}));
  app->add_option("path", flags->path, "the model's folder or file")->required();
  app->add_option("--out", flags->out, "the folder to make, in Hugging Face's layout")->required();
  app->add_option("--rope-factor", flags->rope_factor,
                  "meta: how far scaled RoPE stretches [32 for Llama 3.2 1B and 3B, else 8]")
      ->check(CLI::Range(1.0, 1e6));
}

void AddExport(CLI::App* app, Flags* flags) {
  app->add_option("format", flags->format, "hf or gguf")
      ->required()
      ->check(CLI::IsMember({"hf", "gguf"}));
  app->add_option("model", flags->path, "a run of cria train, a checkpoint of it, or a model")
      ->required();
  app->add_option("--out", flags->out, "what to make: a folder (hf), a file (gguf)")->required();
  app->add_option("--dtype", flags->dtype,
                  "type of the weights, q8_0 for gguf alone [the model's own]")
      ->check(CLI::IsMember({"f32", "f16", "bf16", "q8_0"}));
  app->add_option("--max-shard-size", flags->max_shard_size,
                  "hf: split the weights into files of at most this [5GB]");
  app->add_flag("--no-tokenizer", flags->no_tokenizer,
                "gguf: leave the tokenizer out (where the format can't keep it)");
}

}  // namespace
}  // namespace cria::trainer

int main(int argc, char** argv) {
  cria::StopSignals signals;  // before any other thread
  cria::trainer::Flags flags;
  CLI::App app("Models from and to the formats of other programs.", "cria");
  app.require_subcommand(1);
  CLI::App* import_command = app.add_subcommand(
      "import", "makes a model folder (Hugging Face's layout) of another program's model");
  cria::trainer::AddImport(import_command, &flags);
  CLI::App* export_command =
      app.add_subcommand("export", "writes a run or a model for other programs");
  cria::trainer::AddExport(export_command, &flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  signals.Take([](int signal_number) {
    if (cria::trainer::stop.exchange(true)) _exit(128 + signal_number);
  });
  const bool is_import = import_command->parsed();
  const cria::Status status =
      is_import ? cria::trainer::RunImport(flags) : cria::trainer::RunExport(flags);
  if (status.ok()) return 0;
  std::fprintf(stderr, "cria %s: %s\n", is_import ? "import" : "export",
               cria::Message(status).c_str());
  return cria::ExitCode(status);
}
