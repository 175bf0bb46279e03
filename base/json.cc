#include "base/json.h"

#include <algorithm>
#include <exception>
#include <unordered_set>

#include "base/brief.h"
#include "base/file.h"

namespace cria {
namespace {

constexpr size_t kDepthMax = 100;
constexpr size_t kShownValueBytesMax = 60;

// Builds a Json value from the parser's events. nlohmann's own builder searches the whole object
// at each key, which is quadratic for a vocabulary; this one appends, and keeps the keys of each
// open object in a set to refuse a key that comes twice.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Json TakeRoot() { return std::move(root_); }
  const std::string& problem() const { return problem_; }
  size_t problem_byte() const { return problem_byte_; }

  bool null() override { return Add(Json()); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(int64_t value) override { return Add(value); }
  bool number_unsigned(uint64_t value) override { return Add(value); }
  bool number_float(double value, const std::string&) override { return Add(value); }
  bool string(std::string& value) override { return Add(std::move(value)); }
  bool binary(Json::binary_t&) override { return Refuse("binary data"); }
  bool start_object(size_t) override { return Open(Json::object()); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(std::string& name) override {
    Level& level = levels_.back();
    if (!level.keys.insert(name).second)
      return Refuse(StrCat("the key \"", Brief(name), "\" twice"));
    level.key = std::move(name);
    return true;
  }

  bool parse_error(size_t byte, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ...".
    const std::string what = error.what();
    const size_t colon = what.find(": ");
    // It quotes what it read last, be that megabytes.
    problem_ = Brief(colon == std::string::npos ? what : what.substr(colon + 2), 200);
    problem_byte_ = byte;
    return false;
  }

 private:
  struct Level {
    Json value;
    std::string key;  // of the member that comes next
    std::unordered_set<std::string> keys;
  };

  bool Refuse(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }

  bool Add(Json value) {
    if (levels_.empty()) {
      root_ = std::move(value);
      return true;
    }
    Level& level = levels_.back();
    if (level.value.is_object()) {
      JsonAppend(&level.value, std::move(level.key), std::move(value));
    } else {
      level.value.push_back(std::move(value));
    }
    return true;
  }

  bool Open(Json empty) {
    if (levels_.size() >= kDepthMax) return Refuse(StrCat("nested deeper than ", kDepthMax));
    levels_.push_back({std::move(empty), {}, {}});
    return true;
  }

  bool Close() {
    Json value = std::move(levels_.back().value);
    levels_.pop_back();
    return Add(std::move(value));
  }

  Json root_;
  std::vector<Level> levels_;
  std::string problem_;
  size_t problem_byte_ = 0;
};

}  // namespace

StatusOr<Json> ParseJson(std::string_view text, const std::string& name) {
  // nlohmann takes a NUL for the end of the text and would ignore what follows.
  if (text.find('\0') != std::string_view::npos) {
    return InvalidArgumentError(name, ": not JSON: a NUL byte at offset ", text.find('\0'));
  }
  Builder builder;
  bool ok = false;
  try {
    ok = Json::sax_parse(text.begin(), text.end(), &builder);
  } catch (const std::exception& error) {
    return InvalidArgumentError(name, ": not JSON: ", error.what());
  }
  if (ok) return builder.TakeRoot();
  if (builder.problem_byte() == 0) {
    return InvalidArgumentError(name, ": not usable JSON: ", builder.problem());
  }
  const size_t end = std::min(builder.problem_byte(), text.size());
  const auto line = 1 + std::count(text.begin(), text.begin() + end, '\n');
  return InvalidArgumentError(name, ":", line, ": not JSON: ", builder.problem());
}

StatusOr<std::string> DumpJson(const Json& value, int indent) {
  try {
    return value.dump(indent);
  } catch (const std::exception& error) {
    return InvalidArgumentError("write JSON: ", error.what());
  }
}

StatusOr<Json> ReadJsonFile(const std::string& path) {
  CRIA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseJson(text, path);
}

Status WriteJsonFile(const std::string& path, const Json& value) {
  StatusOr<std::string> text = DumpJson(value, 2);
  if (!text.ok()) return Annotate(text.status(), path);
  return WriteFileAtomic(path, StrCat(*text, "\n"));
}

void JsonAppend(Json* object, std::string key, Json value) {
  if (object->is_null()) *object = Json::object();
  // ordered_map is a vector of pairs with a map's interface on top.
  using Members = std::vector<std::pair<const std::string, Json>>;
  Members& members = object->get_ref<Json::object_t&>();
  members.emplace_back(std::move(key), std::move(value));
}

namespace json_internal {

Status TypeError(const std::string& where, const std::string& key, std::string_view what,
                 const Json& got) {
  std::string shown = got.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (shown.size() > kShownValueBytesMax) {
    shown.resize(kShownValueBytesMax);
    shown += "...";
  }
  return InvalidArgumentError(where, ": ", key, ": expected ", what, ", got ", shown);
}

StatusOr<const Json*> Find(const Json& object, const std::string& key, const std::string& where) {
  if (!object.is_object()) {
    return InvalidArgumentError(where, ": ", key, ": expected inside an object, which is missing");
  }
  const auto found = object.find(key);
  if (found == object.end()) return InvalidArgumentError(where, ": ", key, ": missing");
  return &*found;
}

}  // namespace json_internal
}  // namespace cria
