#include "trainer/check/layout_list.h"

#include <charconv>
#include <optional>
#include <string_view>

#include "base/str.h"

namespace cria::trainer {
namespace {

using model::Layout;
using model::Shard;

constexpr Shard kShards[] = {Shard::kNone, Shard::kOptimizer, Shard::kGradients, Shard::kWeights};

std::vector<int> DivisorsOf(int n) {
  std::vector<int> divisors;
  for (int d = 1; d <= n; ++d) {
    if (n % d == 0) divisors.push_back(d);
  }
  return divisors;
}

// The ways to write n as tp x cp x pp x dp.
std::vector<Layout> Meshes(int n) {
  std::vector<Layout> meshes;
  for (const int tp : DivisorsOf(n)) {
    for (const int cp : DivisorsOf(n / tp)) {
      for (const int pp : DivisorsOf(n / tp / cp)) {
        meshes.push_back({.tp = tp, .cp = cp, .pp = pp, .dp = n / tp / cp / pp});
      }
    }
  }
  return meshes;
}

// The mesh with everything else that a layout says.
std::vector<Layout> VariantsOf(const Layout& mesh) {
  std::vector<Layout> variants;
  for (const Shard shard : kShards) {
    if (shard != Shard::kNone && mesh.replicas() == 1) continue;
    for (const int chunks : {1, 2}) {
      for (const bool short_ends : {false, true}) {
        if (mesh.pp == 1 && (chunks > 1 || short_ends)) continue;
        Layout layout = mesh;
        layout.shard = shard;
        layout.pp_chunks = chunks;
        layout.pp_short_ends = short_ends;
        variants.push_back(layout);
      }
    }
  }
  return variants;
}

// The number behind `name` when the word is nothing but the two.
std::optional<int> NumberAfter(std::string_view word, std::string_view name) {
  if (word.substr(0, name.size()) != name) return std::nullopt;
  const std::string_view digits = word.substr(name.size());
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

bool ReadWord(std::string_view word, Layout* layout) {
  const struct {
    const char* name;
    int* value;
    int least;
  } numbers[] = {{"tp", &layout->tp, 1},
                 {"cp", &layout->cp, 1},
                 {"pp", &layout->pp, 1},
                 {"dp", &layout->dp, 1},
                 {"chunks", &layout->pp_chunks, 1},
                 {"group", &layout->pp_group, 0}};
  for (const auto& number : numbers) {
    const std::optional<int> value = NumberAfter(word, number.name);
    if (!value || *value < number.least) continue;
    *number.value = *value;
    return true;
  }
  for (const Shard shard : kShards) {
    if (word != Name(shard)) continue;
    layout->shard = shard;
    return true;
  }
  if (word == "short") layout->pp_short_ends = true;
  return word == "short" || word == "one";
}

// The parts of `text` between any of the separators, without empty ones.
std::vector<std::string> Split(const std::string& text, const char* separators) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find_first_of(separators, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

std::vector<Layout> AllLayouts(const model::LlamaConfig& config, int64_t seq,
                               const std::vector<int>& ranks) {
  std::vector<Layout> layouts;
  for (const int n : ranks) {
    for (const Layout& mesh : Meshes(n)) {
      for (const Layout& layout : VariantsOf(mesh)) {
        if (CheckLayout(layout, config, seq, "").ok()) layouts.push_back(layout);
      }
    }
  }
  return layouts;
}

StatusOr<std::vector<Layout>> ParseLayouts(const std::string& text) {
  std::vector<Layout> layouts;
  for (const std::string& part : Split(text, ";\n")) {
    const std::vector<std::string> words = Split(part, ", \t");
    if (words.empty()) continue;
    Layout layout;
    for (const std::string& word : words) {
      if (ReadWord(word, &layout)) continue;
      return InvalidArgumentError("layout \"", part, "\": \"", word,
                                  "\" is none of tpN, cpN, ppN, dpN, none, optimizer, gradients, "
                                  "weights, chunksN, groupN, short");
    }
    layouts.push_back(layout);
  }
  if (layouts.empty()) return InvalidArgumentError("layouts \"", text, "\": there is none");
  return layouts;
}

std::string FormatLayout(const Layout& layout) {
  std::string text;
  const auto add = [&text](const std::string& word) { text += (text.empty() ? "" : ",") + word; };
  if (layout.tp > 1) add(StrCat("tp", layout.tp));
  if (layout.cp > 1) add(StrCat("cp", layout.cp));
  if (layout.pp > 1) add(StrCat("pp", layout.pp));
  if (layout.dp > 1) add(StrCat("dp", layout.dp));
  if (layout.shard != Shard::kNone) add(Name(layout.shard));
  if (layout.pp_chunks != 1) add(StrCat("chunks", layout.pp_chunks));
  if (layout.pp_group != 0) add(StrCat("group", layout.pp_group));
  if (layout.pp_short_ends) add("short");
  return text.empty() ? "one" : text;
}

}  // namespace cria::trainer
