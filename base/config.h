// YAML to plain structs and back. One list of fields serves reading, checking and writing.
//
//   struct TrainConfig { double lr = 3e-4; int64_t warmup = 100; std::string schedule = "cosine";
//   };
//
//   void VisitFields(ConfigVisitor& v, TrainConfig& config) {
//     v.Field("lr", &config.lr, {.min = 0, .max = 1});
//     v.Field("warmup", &config.warmup, {.min = 0});
//     v.Choice("schedule", &config.schedule, {"cosine", "wsd"});
//   }
//
//   CRIA_ASSIGN_OR_RETURN(ConfigFile file, ConfigFile::FromFile("job.yaml"));
//   CRIA_RETURN_IF_ERROR(file.Override("train.lr=1e-3"));          // from --set
//   TrainConfig train;
//   const auto fields = [&](ConfigVisitor& v) {
//     v.Section("train", [&](ConfigVisitor& v) { VisitFields(v, train); });
//   };
//   CRIA_RETURN_IF_ERROR(file.Read(fields));
//   CRIA_RETURN_IF_ERROR(WriteFileAtomic("run/config.yaml", WriteConfig(fields)));
//
// A field that the file does not have keeps the struct's value, unless it is required. Every
// mistake is InvalidArgument with its place:
//   job.yaml:7: train.lrr: unknown key; did you mean "lr"?
//   job.yaml:3: train: the key "lr" is missing
//   job.yaml:4: train.warmup: expected an integer, got "ten"
//   --set train.lr=3: train.lr: 3 is out of range [0, 1]
// Thread-compatible.

#ifndef CRIA_BASE_CONFIG_H_
#define CRIA_BASE_CONFIG_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cria {

// What a field's value must keep to. For numbers min and max bound the value (both allowed); for
// lists they bound each item. Integers above 2^53 are compared as the nearest double.
struct FieldLimits {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool required = false;
};

// What a struct's list of fields talks to: a reader or a writer. Keys are constant text.
class ConfigVisitor {
 public:
  using Fields = std::function<void(ConfigVisitor&)>;

  virtual ~ConfigVisitor() = default;
  virtual void Field(std::string_view key, int64_t* value, FieldLimits limits = {}) = 0;
  virtual void Field(std::string_view key, double* value, FieldLimits limits = {}) = 0;
  virtual void Field(std::string_view key, bool* value, FieldLimits limits = {}) = 0;
  virtual void Field(std::string_view key, std::string* value, FieldLimits limits = {}) = 0;
  virtual void Field(std::string_view key, std::vector<int64_t>* value,
                     FieldLimits limits = {}) = 0;
  virtual void Field(std::string_view key, std::vector<double>* value, FieldLimits limits = {}) = 0;
  virtual void Field(std::string_view key, std::vector<std::string>* value,
                     FieldLimits limits = {}) = 0;
  // A string that must be one of `choices`.
  virtual void Choice(std::string_view key, std::string* value,
                      const std::vector<std::string>& choices, FieldLimits limits = {}) = 0;
  // Fields one level deeper. A section that the file does not have is visited as an empty one.
  virtual void Section(std::string_view key, const Fields& fields) = 0;
};

// A parsed YAML file with the place of every value. Refused: syntax errors, a key twice, nesting
// deeper than 32, more than 1,000 keys in a section or 100,000 values, a document that is no map.
class ConfigFile {
 public:
  static StatusOr<ConfigFile> FromFile(const std::string& path);
  // `name` stands for the file in messages.
  static StatusOr<ConfigFile> FromText(const std::string& text, const std::string& name);

  ConfigFile(ConfigFile&&) noexcept;
  ConfigFile& operator=(ConfigFile&&) noexcept;
  ~ConfigFile();

  // "train.lr=3e-4": sets a value as if the file had it; the value is YAML ("[1, 2]" is a list).
  // Sections on the way are made. Whether the key exists is Read's question.
  Status Override(const std::string& assignment);

  // Fills the fields and checks the whole file: the first mistake is returned, an unknown key
  // before a missing one. On an error the fields may be partly filled.
  Status Read(const ConfigVisitor::Fields& fields) const;

  // "a.b.c" is in the file (or overridden).
  bool Has(const std::string& dotted_key) const;

  // A scalar's text as written. NotFound when missing, InvalidArgument when not a scalar.
  StatusOr<std::string> GetString(const std::string& dotted_key) const;

  struct Node;  // in config.cc

 private:
  ConfigFile();
  std::unique_ptr<Node> root_;
};

// A file of configs/<kind>/<name>[.yaml], or `name` itself where it is a path: beside the program
// (its runfiles), else below the working directory. NotFound, naming what was tried.
StatusOr<std::string> FindConfigFile(const std::string& kind, const std::string& name);

// The fields' present values as YAML. Reading it back gives equal values (strings: if UTF-8).
std::string WriteConfig(const ConfigVisitor::Fields& fields);

}  // namespace cria

#endif  // CRIA_BASE_CONFIG_H_
