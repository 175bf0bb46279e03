#include "comm/bench/bench_options.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "base/str.h"

namespace cria::comm {
namespace {

constexpr OpKind kBenchOps[] = {
    OpKind::kAllReduce,  OpKind::kReduce,        OpKind::kBroadcast,      OpKind::kAllGather,
    OpKind::kAllGatherV, OpKind::kReduceScatter, OpKind::kReduceScatterV, OpKind::kAllToAll,
    OpKind::kAllToAllV,  OpKind::kGather,        OpKind::kScatter,        OpKind::kSend,
    OpKind::kBarrier};

std::vector<std::string> SplitText(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t start = 0;
  while (start <= text.size()) {
    const size_t end = std::min(text.find(separator, start), text.size());
    if (end > start) parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

StatusOr<OpKind> ParseBenchOp(const std::string& name) {
  std::string plain;
  for (const char c : name) {
    if (c != '_' && c != '-') plain.push_back(static_cast<char>(std::tolower(c)));
  }
  if (plain == "sendrecv") return OpKind::kSend;
  for (const OpKind kind : kBenchOps) {
    std::string known = Name(kind);
    known.erase(std::remove(known.begin(), known.end(), '_'), known.end());
    if (plain == known) return kind;
  }
  std::string all;
  for (const OpKind kind : kBenchOps) {
    all += StrCat(all.empty() ? "" : ", ", kind == OpKind::kSend ? "sendrecv" : Name(kind));
  }
  return InvalidArgumentError("no operation \"", name, "\"; there are ", all);
}

template <typename T, typename Parse>
StatusOr<std::vector<T>> ParseList(const std::string& text, const std::vector<T>& all,
                                   const Parse& parse) {
  if (text == "all") return all;
  std::vector<T> list;
  for (const std::string& name : SplitText(text, ',')) {
    CRIA_ASSIGN_OR_RETURN(const T value, parse(name));
    list.push_back(value);
  }
  if (list.empty()) return InvalidArgumentError("an empty list");
  return list;
}

}  // namespace

StatusOr<int64_t> ParseBytes(const std::string& text) {
  char* end = nullptr;
  errno = 0;
  const double number = std::strtod(text.c_str(), &end);
  std::string unit = end;
  for (char& c : unit) c = static_cast<char>(std::toupper(c));
  if (unit.size() > 1 && unit.back() == 'B') unit.pop_back();
  if (unit.size() > 1 && unit.back() == 'I') unit.pop_back();
  const std::string units = "KMGT";
  double factor = 1;
  if (unit == "B") unit.clear();
  if (!unit.empty()) {
    const size_t power = units.find(unit);
    if (unit.size() != 1 || power == std::string::npos) {
      return InvalidArgumentError("\"", text, "\" is no size: a number, then K, M, G or nothing");
    }
    factor = std::pow(1024.0, static_cast<double>(power) + 1);
  }
  const double bytes = number * factor;
  if (end == text.c_str() || !(bytes >= 0) || bytes > 1e15) {
    return InvalidArgumentError("\"", text, "\" is no size: a number, then K, M, G or nothing");
  }
  return static_cast<int64_t>(bytes);
}

std::vector<int64_t> SizesOf(const BenchOptions& options) {
  std::vector<int64_t> sizes;
  int64_t size = options.min_bytes;
  while (size <= options.max_bytes) {
    sizes.push_back(size);
    const auto next = options.step_factor > 1
                          ? static_cast<int64_t>(static_cast<double>(size) * options.step_factor)
                          : size + options.step_bytes;
    size = std::max(next, size + 1);
  }
  return sizes;
}

StatusOr<int> SplitColor(const std::string& split, int rank) {
  const size_t space = split.find(' ');
  const std::string word = split.substr(0, space);
  char* end = nullptr;
  const std::string number = space == std::string::npos ? "" : split.substr(space + 1);
  const long value = std::strtol(number.c_str(), &end, 0);
  const bool valid = end != number.c_str() && *end == '\0' && value >= 0 && value < 1 << 20;
  if (valid && word == "MOD" && value > 0) return static_cast<int>(rank % value);
  if (valid && word == "DIV" && value > 0) return static_cast<int>(rank / value);
  if (valid && word == "AND") return static_cast<int>(rank & value);
  if (valid && word == "OR") return static_cast<int>(rank | value);
  return InvalidArgumentError("split \"", split,
                              "\": takes \"MOD n\", \"DIV n\", \"AND mask\" or "
                              "\"OR mask\"");
}

StatusOr<std::vector<OpKind>> ParseOps(const std::string& text) {
  return ParseList<OpKind>(text, {std::begin(kBenchOps), std::end(kBenchOps)}, &ParseBenchOp);
}

StatusOr<std::vector<DataType>> ParseDataTypes(const std::string& text) {
  std::vector<DataType> all;
  for (int i = 0; i < kNumDataTypes; ++i) all.push_back(static_cast<DataType>(i));
  return ParseList<DataType>(text, all, &ParseDataType);
}

StatusOr<std::vector<ReduceOp>> ParseReduceOps(const std::string& text) {
  std::vector<ReduceOp> all;
  for (int i = 0; i < kNumReduceOps; ++i) all.push_back(static_cast<ReduceOp>(i));
  return ParseList<ReduceOp>(text, all, &ParseReduceOp);
}

}  // namespace cria::comm
