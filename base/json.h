// JSON with errors as Status, over nlohmann-json. Heavy: include it from .cc files only.
//
//   CRIA_ASSIGN_OR_RETURN(const Json manifest, ReadJsonFile("data/manifest.json"));
//   CRIA_ASSIGN_OR_RETURN(const auto vocab, JsonGet<int64_t>(manifest, "vocab",
//   "data/manifest.json"));
//
// Objects keep the order of their keys, and finding a key is a linear search: for objects with
// thousands of keys (a vocabulary), iterate when reading and use JsonAppend when writing.
// The text may be hostile: bad syntax, bad UTF-8, a key twice in one object, numbers out of range
// and nesting deeper than 100 are InvalidArgument with the name and the line.
// Functions are thread-safe.

#ifndef CRIA_BASE_JSON_H_
#define CRIA_BASE_JSON_H_

#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace cria {

using Json = nlohmann::ordered_json;

// `name` (a file, say) starts the messages.
StatusOr<Json> ParseJson(std::string_view text, const std::string& name);

// The text of a value: one line for indent < 0. Error: a string that is not UTF-8.
StatusOr<std::string> DumpJson(const Json& value, int indent = -1);

StatusOr<Json> ReadJsonFile(const std::string& path);

// Atomic; two spaces of indentation and a newline at the end.
Status WriteJsonFile(const std::string& path, const Json& value);

// Adds a key that the object does not have yet, without looking.
void JsonAppend(Json* object, std::string key, Json value);

// The value of `key` as T: bool, an integer type (range-checked), double or float, std::string,
// Json, or a std::vector of these. `where` (a file, say) starts the messages.
template <typename T>
StatusOr<T> JsonGet(const Json& object, const std::string& key, const std::string& where);

// The same, or `fallback` when the key is missing or null.
template <typename T>
StatusOr<T> JsonGetOr(const Json& object, const std::string& key, T fallback,
                      const std::string& where);

namespace json_internal {

// "<where>: <key>: expected <what>, got <value>".
Status TypeError(const std::string& where, const std::string& key, std::string_view what,
                 const Json& got);
// The member, or an error when `object` is no object or has no such key.
StatusOr<const Json*> Find(const Json& object, const std::string& key, const std::string& where);

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

template <typename T>
StatusOr<T> Convert(const Json& value, const std::string& key, const std::string& where) {
  if constexpr (std::same_as<T, Json>) {
    return value;
  } else if constexpr (std::same_as<T, bool>) {
    if (!value.is_boolean()) return TypeError(where, key, "true or false", value);
    return value.get<bool>();
  } else if constexpr (std::integral<T>) {
    if (!value.is_number_integer()) return TypeError(where, key, "an integer", value);
    const bool fits = value.is_number_unsigned() ? std::in_range<T>(value.get<uint64_t>())
                                                 : std::in_range<T>(value.get<int64_t>());
    if (!fits) {
      return TypeError(where, key,
                       StrCat("an integer in [", std::numeric_limits<T>::min(), ", ",
                              std::numeric_limits<T>::max(), "]"),
                       value);
    }
    return value.get<T>();
  } else if constexpr (std::floating_point<T>) {
    if (!value.is_number()) return TypeError(where, key, "a number", value);
    return value.get<T>();
  } else if constexpr (std::same_as<T, std::string>) {
    if (!value.is_string()) return TypeError(where, key, "a string", value);
    return value.get<std::string>();
  } else {
    static_assert(IsVector<T>::value, "JsonGet: a type that JSON does not have");
    if (!value.is_array()) return TypeError(where, key, "a list", value);
    T out;
    out.reserve(value.size());
    for (size_t i = 0; i < value.size(); ++i) {
      CRIA_ASSIGN_OR_RETURN(
          auto item, Convert<typename T::value_type>(value[i], StrCat(key, "[", i, "]"), where));
      out.push_back(std::move(item));
    }
    return out;
  }
}

}  // namespace json_internal

template <typename T>
StatusOr<T> JsonGet(const Json& object, const std::string& key, const std::string& where) {
  CRIA_ASSIGN_OR_RETURN(const Json* value, json_internal::Find(object, key, where));
  return json_internal::Convert<T>(*value, key, where);
}

template <typename T>
StatusOr<T> JsonGetOr(const Json& object, const std::string& key, T fallback,
                      const std::string& where) {
  if (object.is_object()) {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) return fallback;
  }
  return JsonGet<T>(object, key, where);
}

}  // namespace cria

#endif  // CRIA_BASE_JSON_H_
