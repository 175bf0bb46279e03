#include "base/config.h"

#include <unistd.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <exception>
#include <optional>
#include <sstream>
#include <utility>

#include "base/brief.h"
#include "base/file.h"

namespace cria {

// The file as our own tree: yaml-cpp stays in Build, and places survive overriding.
struct ConfigFile::Node {
  enum class Kind { kNull, kScalar, kList, kMap };
  struct Member;

  Kind kind = Kind::kNull;
  std::string place;    // "job.yaml:7"
  std::string scalar;   // the text
  bool quoted = false;  // the text was quoted, so it is a string and nothing else
  std::vector<Node> items;
  std::vector<Member> members;  // in the file's order

  const Node* Find(std::string_view key) const;
};

struct ConfigFile::Node::Member {
  std::string key;
  Node node;
};

const ConfigFile::Node* ConfigFile::Node::Find(std::string_view key) const {
  for (const Member& member : members) {
    if (member.key == key) return &member.node;
  }
  return nullptr;
}

namespace {

using Node = ConfigFile::Node;
using Kind = ConfigFile::Node::Kind;

constexpr int kDepthMax = 32;
// Aliases may multiply a small text ("billion laughs"): at most as many values as it has bytes, and
// these.
constexpr int64_t kNumNodesMax = 100'000;
constexpr int64_t kNumNodesFree = 1000;
constexpr size_t kSlipBytesMax = 100;  // a longer key is nobody's slip for one of ours
constexpr size_t kNumKeysMax = 1000;   // in one section; finding a key is a linear search
constexpr uint64_t kFileBytesMax = uint64_t{16} << 20;

// ---- From yaml-cpp's tree to ours.

class Converter {
 public:
  // Places are "<name>:<line>", or `name` alone without lines (an override).
  Converter(std::string name, bool with_lines, size_t text_bytes)
      : name_(std::move(name)),
        with_lines_(with_lines),
        num_nodes_max_(std::min(kNumNodesMax, kNumNodesFree + static_cast<int64_t>(text_bytes))) {}

  StatusOr<Node> Convert(const YAML::Node& yaml, const YAML::Mark& mark, int depth) {
    Node node;
    node.place = Place(mark);
    if (depth > kDepthMax) {
      return InvalidArgumentError(node.place, ": nested deeper than ", kDepthMax);
    }
    if (++num_nodes_ > num_nodes_max_) {
      return InvalidArgumentError(node.place, ": more than ", num_nodes_max_, " values");
    }
    switch (yaml.Type()) {
      case YAML::NodeType::Undefined:
      case YAML::NodeType::Null:
        break;
      case YAML::NodeType::Scalar:
        node.kind = Kind::kScalar;
        node.scalar = yaml.Scalar();
        node.quoted = yaml.Tag() == "!";
        break;
      case YAML::NodeType::Sequence:
        node.kind = Kind::kList;
        for (const YAML::Node& item : yaml) {
          CRIA_ASSIGN_OR_RETURN(Node child, Convert(item, item.Mark(), depth + 1));
          node.items.push_back(std::move(child));
        }
        break;
      case YAML::NodeType::Map:
        node.kind = Kind::kMap;
        for (const auto& member : yaml) {
          if (!member.first.IsScalar()) {
            return InvalidArgumentError(Place(member.first.Mark()), ": a key must be plain text");
          }
          const std::string& key = member.first.Scalar();
          CRIA_ASSIGN_OR_RETURN(Node child, Convert(member.second, member.first.Mark(), depth + 1));
          if (node.members.size() >= kNumKeysMax) {
            return InvalidArgumentError(child.place, ": more than ", kNumKeysMax, " keys");
          }
          if (node.Find(key) != nullptr) {
            return InvalidArgumentError(child.place, ": ", Brief(key),
                                        ": the key stands here again, ", "first at ",
                                        node.Find(key)->place);
          }
          node.members.push_back({key, std::move(child)});
        }
        break;
    }
    return node;
  }

 private:
  std::string Place(const YAML::Mark& mark) const {
    return with_lines_ ? StrCat(name_, ":", mark.line + 1) : name_;
  }

  const std::string name_;
  const bool with_lines_;
  const int64_t num_nodes_max_;
  int64_t num_nodes_ = 0;
};

// Passes over a document.
class NoEvents : public YAML::EventHandler {
  using Mark = YAML::Mark;
  using Anchor = YAML::anchor_t;
  using Style = YAML::EmitterStyle::value;
  void OnDocumentStart(const Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const Mark&, Anchor) override {}
  void OnAlias(const Mark&, Anchor) override {}
  void OnScalar(const Mark&, const std::string&, Anchor, const std::string&) override {}
  void OnSequenceStart(const Mark&, const std::string&, Anchor, Style) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const Mark&, const std::string&, Anchor, Style) override {}
  void OnMapEnd() override {}
};

// YAML::LoadAll finds documents without end in some broken files ("x]"), until the memory is full.
bool HasSecondDocument(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  NoEvents events;
  return parser.HandleNextDocument(events) && parser.HandleNextDocument(events);
}

StatusOr<Node> ParseYaml(const std::string& text, const std::string& name, bool with_lines) {
  try {
    if (HasSecondDocument(text)) {
      return InvalidArgumentError(name, ": more than one YAML document");
    }
    const YAML::Node yaml = YAML::Load(text);
    Converter converter(name, with_lines, text.size());
    return converter.Convert(yaml, yaml.IsNull() ? YAML::Mark() : yaml.Mark(), 0);
  } catch (const YAML::Exception& error) {
    return InvalidArgumentError(name, with_lines ? StrCat(":", error.mark.line + 1) : "",
                                ": not YAML: ", Brief(error.msg));
  } catch (const std::exception& error) {
    return InvalidArgumentError(name, ": not YAML: ", Brief(error.what()));
  }
}

// ---- Scalars.

template <typename T>
std::optional<T> ParseWhole(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> ParseDouble(std::string_view text) {
  const std::optional<double> value = ParseWhole<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

// "1000", "-3", and a whole number in exponent form: "1e6".
std::optional<int64_t> ParseInteger(std::string_view text) {
  if (const auto value = ParseWhole<int64_t>(text)) return value;
  if (text.find_first_of("eE") == std::string_view::npos) return std::nullopt;
  const std::optional<double> value = ParseDouble(text);
  if (!value || *value != std::floor(*value) || std::abs(*value) > 0x1.0p53) return std::nullopt;
  return static_cast<int64_t>(*value);
}

std::optional<bool> ParseBool(std::string_view text) {
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  return std::nullopt;
}

std::string Shown(const Node& node) {
  switch (node.kind) {
    case Kind::kNull:
      return "nothing";
    case Kind::kScalar:
      return StrCat(node.quoted ? "the string " : "", "\"", Brief(node.scalar), "\"");
    case Kind::kList:
      return "a list";
    case Kind::kMap:
      return "a section";
  }
  return "?";
}

// The number of single-character edits that turn a into b.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

// ---- Reading.

class Reader : public ConfigVisitor {
 public:
  explicit Reader(const Node* root) : level_{root, "", {}} {}

  Status Finish() {
    CheckUnknownKeys();
    // A missing key is often a misspelt one, so an unknown key anywhere is reported first.
    return error_.ok() ? missing_ : error_;
  }

  void Field(std::string_view key, int64_t* value, FieldLimits limits) override {
    ReadScalar(key, value, limits);
  }
  void Field(std::string_view key, double* value, FieldLimits limits) override {
    ReadScalar(key, value, limits);
  }
  void Field(std::string_view key, bool* value, FieldLimits limits) override {
    ReadScalar(key, value, limits);
  }
  void Field(std::string_view key, std::string* value, FieldLimits limits) override {
    ReadScalar(key, value, limits);
  }
  void Field(std::string_view key, std::vector<int64_t>* value, FieldLimits limits) override {
    ReadList(key, value, limits);
  }
  void Field(std::string_view key, std::vector<double>* value, FieldLimits limits) override {
    ReadList(key, value, limits);
  }
  void Field(std::string_view key, std::vector<std::string>* value, FieldLimits limits) override {
    ReadList(key, value, limits);
  }

  void Choice(std::string_view key, std::string* value, const std::vector<std::string>& choices,
              FieldLimits limits) override {
    const Node* node = Take(key, limits);
    if (node == nullptr || !Convert(*node, Dotted(key), limits, value)) return;
    if (std::find(choices.begin(), choices.end(), *value) != choices.end()) return;
    std::string list;
    for (const std::string& choice : choices) list += StrCat(list.empty() ? "" : ", ", choice);
    Fail(*node, Dotted(key), StrCat("expected one of ", list, ", got ", Shown(*node)));
  }

  void Section(std::string_view key, const Fields& fields) override {
    level_.known.emplace_back(key);
    const Node* node = level_.node->Find(key);
    Node missing;
    if (node == nullptr || node->kind == Kind::kNull) {
      missing.place = node != nullptr ? node->place : level_.node->place;
      node = &missing;
    } else if (node->kind != Kind::kMap) {
      Fail(*node, Dotted(key), StrCat("expected a section, got ", Shown(*node)));
      return;
    }
    Level outer = std::exchange(level_, Level{node, Dotted(key), {}});
    fields(*this);
    CheckUnknownKeys();
    level_ = std::move(outer);
  }

 private:
  // The section being read.
  struct Level {
    const Node* node;
    std::string path;                // "train.adam"; empty at the top
    std::vector<std::string> known;  // the keys that were asked for
  };

  std::string Dotted(std::string_view key) const {
    return level_.path.empty() ? std::string(key) : StrCat(level_.path, ".", key);
  }

  void Fail(const Node& node, const std::string& path, const std::string& problem) {
    if (error_.ok()) error_ = InvalidArgumentError(node.place, ": ", path, ": ", problem);
  }

  // The member, or null when it is missing (an error if it is required).
  const Node* Take(std::string_view key, const FieldLimits& limits) {
    level_.known.emplace_back(key);
    const Node* node = level_.node->Find(key);
    if (node == nullptr && limits.required && missing_.ok()) {
      missing_ = InvalidArgumentError(level_.node->place, ": ",
                                      level_.path.empty() ? "" : StrCat(level_.path, ": "),
                                      "the key \"", key, "\" is missing");
    }
    return node;
  }

  // Called when all fields of the section were visited.
  void CheckUnknownKeys() {
    for (const auto& [key, node] : level_.node->members) {
      if (std::find(level_.known.begin(), level_.known.end(), key) != level_.known.end()) continue;
      std::string best;
      size_t best_distance = 1 + std::max<size_t>((key.size() + 1) / 3, 1);
      for (const std::string& known : level_.known) {
        if (key.size() > kSlipBytesMax) break;
        const size_t distance = EditDistance(key, known);
        if (distance < best_distance) {
          best = known;
          best_distance = distance;
        }
      }
      Fail(node, Dotted(Brief(key)),
           best.empty() ? "unknown key" : StrCat("unknown key; did you mean \"", best, "\"?"));
    }
  }

  template <typename T>
  void ReadScalar(std::string_view key, T* value, const FieldLimits& limits) {
    if (const Node* node = Take(key, limits)) Convert(*node, Dotted(key), limits, value);
  }

  template <typename T>
  void ReadList(std::string_view key, std::vector<T>* value, const FieldLimits& limits) {
    const Node* node = Take(key, limits);
    if (node == nullptr) return;
    if (node->kind != Kind::kList) {
      Fail(*node, Dotted(key), StrCat("expected a list, got ", Shown(*node)));
      return;
    }
    std::vector<T> items(node->items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      if (!Convert(node->items[i], StrCat(Dotted(key), "[", i, "]"), limits, &items[i])) return;
    }
    *value = std::move(items);
  }

  bool Convert(const Node& node, const std::string& path, const FieldLimits& limits,
               int64_t* value) {
    const auto parsed = node.kind == Kind::kScalar && !node.quoted ? ParseInteger(node.scalar)
                                                                   : std::optional<int64_t>();
    return Store(node, path, "an integer", parsed, value) && InRange(node, path, limits, *value);
  }

  bool Convert(const Node& node, const std::string& path, const FieldLimits& limits,
               double* value) {
    const auto parsed = node.kind == Kind::kScalar && !node.quoted ? ParseDouble(node.scalar)
                                                                   : std::optional<double>();
    return Store(node, path, "a number", parsed, value) && InRange(node, path, limits, *value);
  }

  bool Convert(const Node& node, const std::string& path, const FieldLimits&, bool* value) {
    const auto parsed =
        node.kind == Kind::kScalar && !node.quoted ? ParseBool(node.scalar) : std::optional<bool>();
    return Store(node, path, "true or false", parsed, value);
  }

  bool Convert(const Node& node, const std::string& path, const FieldLimits&, std::string* value) {
    const auto parsed = node.kind == Kind::kScalar ? std::optional<std::string>(node.scalar)
                                                   : std::optional<std::string>();
    return Store(node, path, "a string", parsed, value);
  }

  template <typename T>
  bool Store(const Node& node, const std::string& path, std::string_view what,
             const std::optional<T>& parsed, T* value) {
    if (!parsed) {
      Fail(node, path, StrCat("expected ", what, ", got ", Shown(node)));
      return false;
    }
    *value = *parsed;
    return true;
  }

  template <typename T>
  bool InRange(const Node& node, const std::string& path, const FieldLimits& limits, T value) {
    const auto number = static_cast<double>(value);
    if (number >= limits.min && number <= limits.max) return true;
    Fail(node, path,
         StrCat(value, " is out of range ", std::isinf(limits.min) ? "(" : "[", limits.min, ", ",
                limits.max, std::isinf(limits.max) ? ")" : "]"));
    return false;
  }

  Level level_;
  Status error_;
  Status missing_;
};

// ---- Writing.

// A string is written plain only where nobody could take it for something else.
bool NeedsQuotes(std::string_view text) {
  if (text.empty() || ParseDouble(text) || ParseInteger(text) || ParseBool(text)) return true;
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  if (!is_letter(text[0]) && text[0] != '/') return true;
  for (const std::string_view word : {"null", "Null", "NULL", "yes", "no", "on", "off", "y", "n"}) {
    if (text == word) return true;
  }
  return !std::all_of(text.begin(), text.end(), [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '/' || c == '-';
  });
}

std::string Quoted(std::string_view text) {
  if (!NeedsQuotes(text)) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += StrCat('\\', c);
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += StrFormat("\\x%02x", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

// The fewest digits that read back equal, in a form that every YAML reader takes for a number: YAML
// 1.1 readers (PyYAML) take "1e-06" for a string, and "1.0e-06" for what it is.
std::string Shortest(double value) {
  char buffer[400];
  const double size = std::abs(value);
  const bool fixed = size == 0 || (size >= 1e-5 && size < 1e15);
  const auto result =
      std::to_chars(buffer, buffer + sizeof(buffer), value,
                    fixed ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer, result.ptr);
  const size_t e = text.find('e');
  if (e != std::string::npos && text.find('.') == std::string::npos) text.insert(e, ".0");
  return text;
}

class Writer : public ConfigVisitor {
 public:
  std::string Take() { return std::move(out_); }

  void Field(std::string_view key, int64_t* value, FieldLimits) override {
    Line(key, StrCat(*value));
  }
  void Field(std::string_view key, double* value, FieldLimits) override {
    Line(key, Shortest(*value));
  }
  void Field(std::string_view key, bool* value, FieldLimits) override { Line(key, StrCat(*value)); }
  void Field(std::string_view key, std::string* value, FieldLimits) override {
    Line(key, Quoted(*value));
  }
  void Field(std::string_view key, std::vector<int64_t>* value, FieldLimits) override {
    List(key, *value, [](int64_t item) { return StrCat(item); });
  }
  void Field(std::string_view key, std::vector<double>* value, FieldLimits) override {
    List(key, *value, [](double item) { return Shortest(item); });
  }
  void Field(std::string_view key, std::vector<std::string>* value, FieldLimits) override {
    List(key, *value, [](const std::string& item) { return Quoted(item); });
  }
  void Choice(std::string_view key, std::string* value, const std::vector<std::string>&,
              FieldLimits) override {
    Line(key, Quoted(*value));
  }

  void Section(std::string_view key, const Fields& fields) override {
    out_ += StrCat(std::string(indent_, ' '), key, ":\n");
    indent_ += 2;
    fields(*this);
    indent_ -= 2;
  }

 private:
  void Line(std::string_view key, const std::string& value) {
    out_ += StrCat(std::string(indent_, ' '), key, ": ", value, "\n");
  }

  template <typename T, typename Show>
  void List(std::string_view key, const std::vector<T>& items, Show show) {
    std::string text = "[";
    for (const T& item : items) text += StrCat(text.size() > 1 ? ", " : "", show(item));
    Line(key, text + "]");
  }

  std::string out_;
  size_t indent_ = 0;
};

std::vector<std::string> SplitDots(std::string_view dotted_key) {
  std::vector<std::string> keys(1);
  for (const char c : dotted_key) {
    if (c == '.') {
      keys.emplace_back();
    } else {
      keys.back() += c;
    }
  }
  return keys;
}

const Node* FindDotted(const Node* node, const std::string& dotted_key) {
  for (const std::string& key : SplitDots(dotted_key)) {
    node = node->Find(key);
    if (node == nullptr) return nullptr;
  }
  return node;
}

}  // namespace

ConfigFile::ConfigFile() : root_(std::make_unique<Node>()) {}
ConfigFile::ConfigFile(ConfigFile&&) noexcept = default;
ConfigFile& ConfigFile::operator=(ConfigFile&&) noexcept = default;
ConfigFile::~ConfigFile() = default;

StatusOr<ConfigFile> ConfigFile::FromFile(const std::string& path) {
  CRIA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kFileBytesMax));
  return FromText(text, path);
}

StatusOr<ConfigFile> ConfigFile::FromText(const std::string& text, const std::string& name) {
  ConfigFile file;
  CRIA_ASSIGN_OR_RETURN(*file.root_, ParseYaml(text, name, /*with_lines=*/true));
  if (file.root_->kind == Kind::kScalar || file.root_->kind == Kind::kList) {
    return InvalidArgumentError(file.root_->place, ": expected \"key: value\" lines, got ",
                                Shown(*file.root_));
  }
  file.root_->kind = Kind::kMap;
  return file;
}

Status ConfigFile::Override(const std::string& assignment) {
  const std::string place = StrCat("--set ", assignment);
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos) return InvalidArgumentError(place, ": expected KEY=VALUE");
  const std::vector<std::string> keys = SplitDots(assignment.substr(0, equals));
  if (std::any_of(keys.begin(), keys.end(), [](const auto& key) { return key.empty(); })) {
    return InvalidArgumentError(place, ": a part of the key is empty");
  }
  CRIA_ASSIGN_OR_RETURN(Node value,
                        ParseYaml(assignment.substr(equals + 1), place, /*with_lines=*/false));
  Node* node = root_.get();
  for (const std::string& key : keys) {
    if (node->kind == Kind::kNull) node->kind = Kind::kMap;
    if (node->kind != Kind::kMap) {
      return InvalidArgumentError(place, ": ", key, " is set inside ", Shown(*node), " at ",
                                  node->place);
    }
    auto* found = const_cast<Node*>(node->Find(key));
    if (found == nullptr) {
      Node section;
      section.place = place;
      node->members.push_back({key, std::move(section)});
      found = &node->members.back().node;
    }
    node = found;
  }
  *node = std::move(value);
  return OkStatus();
}

Status ConfigFile::Read(const ConfigVisitor::Fields& fields) const {
  Reader reader(root_.get());
  fields(reader);
  return reader.Finish();
}

bool ConfigFile::Has(const std::string& dotted_key) const {
  return FindDotted(root_.get(), dotted_key) != nullptr;
}

StatusOr<std::string> ConfigFile::GetString(const std::string& dotted_key) const {
  const Node* node = FindDotted(root_.get(), dotted_key);
  if (node == nullptr) return NotFoundError(root_->place, ": ", dotted_key, ": missing");
  if (node->kind != Kind::kScalar) {
    return InvalidArgumentError(node->place, ": ", dotted_key, ": expected a scalar, got ",
                                Shown(*node));
  }
  return node->scalar;
}

std::string WriteConfig(const ConfigVisitor::Fields& fields) {
  Writer writer;
  fields(writer);
  return writer.Take();
}

StatusOr<std::string> FindConfigFile(const std::string& kind, const std::string& name) {
  if (Exists(name) && !IsDir(name)) return name;
  std::string file = name;
  if (file.size() < 5 || file.substr(file.size() - 5) != ".yaml") file += ".yaml";
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
  const std::string program(self, length > 0 ? static_cast<size_t>(length) : 0);
  const std::string below = JoinPath(JoinPath("configs", kind), file);
  for (const std::string& root : {program + ".runfiles/cria", std::string(".")}) {
    const std::string path = JoinPath(root, below);
    if (Exists(path)) return path;
  }
  return NotFoundError("config '", name, "': no such file, and no ", below);
}

}  // namespace cria
