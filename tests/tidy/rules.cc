#include "tests/tidy/rules.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <thread>

#include "base/file.h"

namespace cria::tidy {
namespace {

constexpr int kNumLinesMax = 700;
constexpr int kNumColumnsMax = 100;

bool IsCpp(std::string_view path) {
  for (const std::string_view end : {".h", ".cc", ".cu", ".cuh"}) {
    if (path.ends_with(end)) return true;
  }
  return false;
}

bool IsHeader(std::string_view path) { return path.ends_with(".h") || path.ends_with(".cuh"); }

bool IsSource(const std::string& path) {
  if (IsCpp(path)) return true;
  for (const std::string_view end : {".py", ".sh", ".bzl", "/BUILD"}) {
    if (path.ends_with(end)) return true;
  }
  return path == "BUILD" || path == "WORKSPACE" || path == "cria";
}

bool IsUnder(std::string_view path, std::string_view folder) {
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

bool IsWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The dependency table. The longest folder that holds a file decides; a folder may always include
// itself, and a sub-folder listed here is no part of its parent.
const std::map<std::string, std::set<std::string>, std::less<>>& Edges() {
  static const auto* edges = new std::map<std::string, std::set<std::string>, std::less<>>{
      {"base", {}},
      {"debug", {"base"}},
      {"comm", {"comm/api", "comm/fabric", "debug", "base"}},
      {"comm/api", {"debug", "base"}},
      {"comm/fabric", {"base"}},
      {"model", {"model/cpu", "model/cuda", "comm/api", "debug", "base"}},
      {"model/cpu", {"model", "debug", "base"}},
      {"model/cuda", {"model", "debug", "base"}},
      {"storage", {"debug", "base"}},
      {"sched", {"sched/core", "comm/fabric", "debug", "base"}},
      {"sched/core", {"comm/fabric", "base"}},
      {"trainer",
       {"model", "model/cpu", "model/cuda", "comm", "comm/api", "comm/fabric", "storage", "sched",
        "sched/core", "debug", "base"}},
      {"tests",
       {"trainer", "model", "model/cpu", "model/cuda", "comm", "comm/api", "comm/fabric", "storage",
        "sched", "sched/core", "debug", "base"}},
  };
  return *edges;
}

// The table's folder for a path; empty for one outside (a third party's).
std::string_view FolderOf(std::string_view path) {
  std::string_view best;
  for (const auto& [folder, allowed] : Edges()) {
    if (IsUnder(path, folder) && folder.size() > best.size()) best = folder;
  }
  return best;
}

Problems Sorted(Problems problems) {
  std::sort(problems.begin(), problems.end());
  return problems;
}

}  // namespace

StatusOr<std::vector<SourceFile>> LoadSources(const std::string& root) {
  std::vector<SourceFile> files;
  std::error_code error;
  std::filesystem::recursive_directory_iterator entry(root, error), end;
  while (!error && entry != end) {
    const std::string name = entry->path().filename().string();
    if (entry->is_directory() &&
        (name[0] == '.' || name.starts_with("bazel-") || (name == "runs" && entry.depth() == 0))) {
      entry.disable_recursion_pending();
    }
    const std::string path = std::filesystem::relative(entry->path(), root).string();
    if (entry->is_regular_file() && IsSource(path)) {
      CRIA_ASSIGN_OR_RETURN(std::string text, ReadFile(entry->path().string()));
      files.push_back({path, std::move(text)});
    }
    entry.increment(error);
  }
  if (error) return ErrnoError(error.value(), StrCat("walk ", root));
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

std::string BlankCommentsAndStrings(std::string_view text) {
  std::string out(text);
  // Blanks [from, to) but for the ends of lines.
  const auto blank = [&out](size_t from, size_t to) {
    for (size_t i = from; i < std::min(to, out.size()); ++i) {
      if (out[i] != '\n') out[i] = ' ';
    }
  };
  const auto end_of = [text](std::string_view needle, size_t from) {
    const size_t at = text.find(needle, from);
    return at == std::string_view::npos ? text.size() : at + needle.size();
  };
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    const std::string_view rest = text.substr(i);
    const bool after_word = i > 0 && IsWord(text[i - 1]);
    if (rest.starts_with("//")) {
      end = std::min(text.find('\n', i), text.size());
      blank(i, end);
    } else if (rest.starts_with("/*")) {
      end = end_of("*/", i + 2);
      blank(i, end);
    } else if (rest.starts_with("R\"") && !after_word) {
      const size_t open = std::min(text.find('(', i), text.size());
      end = end_of(StrCat(")", text.substr(i + 2, open - i - 2), "\""), open);
      blank(i, end);
    } else if (text[i] == '"' || (text[i] == '\'' && !after_word)) {  // 1'000 is a number
      while (end < text.size() && text[end] != text[i] && text[end] != '\n') {
        end += text[end] == '\\' ? 2 : 1;
      }
      end = std::min(end + 1, text.size());
      blank(i + 1, end - 1);
    }
    i = end;
  }
  return out;
}

std::vector<Include> IncludesOf(const SourceFile& file) {
  std::vector<Include> includes;
  const std::string blanked = BlankCommentsAndStrings(file.text);
  const auto lines = Lines(file.text);
  const auto code = Lines(blanked);
  for (size_t i = 0; i < code.size(); ++i) {
    size_t at = code[i].find_first_not_of(" \t");
    if (at == std::string_view::npos || code[i][at] != '#') continue;
    at = code[i].find_first_not_of(" \t", at + 1);
    if (at == std::string_view::npos || !code[i].substr(at).starts_with("include")) continue;
    const size_t open = lines[i].find_first_of("\"<", at);
    if (open == std::string_view::npos) continue;
    const size_t close = lines[i].find_first_of("\">", open + 1);
    if (close == std::string_view::npos) continue;
    includes.push_back({static_cast<int>(i) + 1,
                        std::string(lines[i].substr(open + 1, close - open - 1)),
                        lines[i][open] == '"'});
  }
  return includes;
}

Problems CheckDependencies(const SourceFile& file) {
  Problems problems;
  if (!IsCpp(file.path)) return problems;
  const std::string_view from = FolderOf(file.path);
  if (from.empty()) {
    return {StrCat(file.path, ":1: the folder is not in the table of dependencies")};
  }
  for (const Include& include : IncludesOf(file)) {
    if (!include.quoted) continue;
    if (include.path.find('/') == std::string::npos || include.path.starts_with("..")) {
      problems.push_back(
          StrCat(file.path, ":", include.line, ": include \"", include.path,
                 "\" is no path from the repository's root; a third party's goes in <>"));
      continue;
    }
    const std::string_view to = FolderOf(include.path);
    if (to.empty() || to == from || Edges().at(std::string(from)).contains(std::string(to))) {
      continue;
    }
    problems.push_back(StrCat(file.path, ":", include.line, ": ", from, " may not include ", to,
                              " (", include.path, ")"));
  }
  return problems;
}

Problems CheckBannedCalls(const SourceFile& file) {
  struct Ban {
    std::string_view name;
    bool is_call;  // only when "(" follows
    std::string_view why;
    bool in_libraries;
    bool in_programs;
    bool in_tests;
  };
  static constexpr std::string_view kRandom =
      "differs between standard libraries; draw from base/rng.h";
  static constexpr std::string_view kExit =
      "ends the process inside a library; return a Status, or CRIA_CHECK";
  static constexpr std::string_view kSleep =
      "makes a test slow and flaky; use FakeClock, or wait for a condition with a deadline";
  static constexpr Ban kBans[] = {
      {"shuffle", true, kRandom, true, true, true},
      {"random_shuffle", true, kRandom, true, true, true},
      {"random_device", false, kRandom, true, true, true},
      {"rand", true, kRandom, true, true, true},
      {"srand", true, kRandom, true, true, true},
      {"default_random_engine", false, kRandom, true, true, true},
      {"exit", true, kExit, true, false, false},
      {"quick_exit", true, kExit, true, false, false},
      {"_Exit", true, kExit, true, false, false},
      {"sleep", true, kSleep, false, false, true},
      {"usleep", true, kSleep, false, false, true},
      {"nanosleep", true, kSleep, false, false, true},
      {"sleep_for", true, kSleep, false, false, true},
      {"sleep_until", true, kSleep, false, false, true},
  };

  Problems problems;
  if (!IsCpp(file.path)) return problems;
  const std::string code = BlankCommentsAndStrings(file.text);
  const bool is_test = IsUnder(file.path, "tests");
  const bool is_program = !is_test && code.find("int main(") != std::string::npos;
  const bool is_library = !is_test && !is_program;
  int line = 1;
  for (size_t i = 0; i < code.size(); ++i) {
    if (code[i] == '\n') ++line;
    if (!IsWord(code[i]) || (i > 0 && IsWord(code[i - 1]))) continue;
    size_t end = i;
    while (end < code.size() && IsWord(code[end])) ++end;
    const std::string_view word = std::string_view(code).substr(i, end - i);
    const size_t next = code.find_first_not_of(" \n", end);
    const bool is_call = next != std::string::npos && code[next] == '(';
    const bool is_member =
        i > 0 && (code[i - 1] == '.' || (i > 1 && code.substr(i - 2, 2) == "->"));
    const bool is_std = i >= 5 && code.compare(i - 5, 5, "std::") == 0;
    std::string_view why;
    for (const Ban& ban : kBans) {
      if (word == ban.name && (is_call || !ban.is_call) && !is_member &&
          ((is_library && ban.in_libraries) || (is_program && ban.in_programs) ||
           (is_test && ban.in_tests))) {
        why = ban.why;
      }
    }
    if (is_std && word.ends_with("_distribution")) why = kRandom;
    if (!why.empty()) problems.push_back(StrCat(file.path, ":", line, ": ", word, " ", why));
  }
  for (const Include& include : IncludesOf(file)) {
    if (include.path == "regex") {
      problems.push_back(StrCat(file.path, ":", include.line, ": <regex> is slow and recurses on ",
                                "long input; use PCRE2"));
    }
    if (include.path == "iostream" && is_library) {
      problems.push_back(StrCat(file.path, ":", include.line, ": <iostream> in a library; log ",
                                "through base/log.h, or return the text"));
    }
  }
  return problems;
}

Problems CheckHeavyHeaders(const SourceFile& file) {
  // A header's start, and the only files that may include it; no names: any .cc file.
  static const auto* heavy = new std::map<std::string, std::set<std::string>, std::less<>>{
      {"spdlog/", {"base/log.cc"}},
      {"yaml-cpp/", {"base/config.cc"}},
      {"nlohmann/", {}},
      {"base/json.h", {}},
      {"CLI/", {}},
      {"dnnl", {}},
      {"oneapi/", {}},
      {"pcre2.h", {}},
      {"zstd.h", {}},
      {"xxhash.h", {}},
  };
  Problems problems;
  if (!IsCpp(file.path) || IsUnder(file.path, "tests")) return problems;
  if (file.path == "base/json.h") return problems;  // is the wrapper, and heavy itself
  for (const Include& include : IncludesOf(file)) {
    for (const auto& [start, only] : *heavy) {
      if (!include.path.starts_with(start)) continue;
      if (only.empty() ? !IsHeader(file.path) : only.contains(file.path)) continue;
      problems.push_back(StrCat(file.path, ":", include.line, ": ", include.path,
                                only.empty() ? " is heavy: include it from a .cc file only"
                                             : " belongs to its wrapper in base/ alone"));
    }
  }
  return problems;
}

Problems CheckIncludeGuard(const SourceFile& file) {
  if (!IsHeader(file.path)) return {};
  std::string guard = "CRIA_";
  for (const char c : file.path) {
    guard += IsWord(c) ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : '_';
  }
  guard += '_';
  Problems problems;
  const std::array<std::string, 3> expected = {
      StrCat("#ifndef ", guard, "\n#define ", guard, "\n"),
      StrCat("\n#endif  // ", guard, "\n"),
      "",
  };
  if (file.text.find(expected[0]) == std::string::npos || !file.text.ends_with(expected[1])) {
    problems.push_back(StrCat(file.path, ":1: the include guard must be ", guard,
                              ", and the last line \"#endif  // ", guard, "\""));
  }
  return problems;
}

Problems CheckLength(const SourceFile& file) {
  Problems problems;
  const auto lines = Lines(file.text);
  if (lines.size() > kNumLinesMax) {
    problems.push_back(StrCat(file.path, ":", lines.size(), ": ", lines.size(),
                              " lines, more than ", kNumLinesMax, ": split it by purpose"));
  }
  if (!IsCpp(file.path)) return problems;
  for (size_t i = 0; i < lines.size(); ++i) {
    // Columns are characters: the bytes that do not continue a UTF-8 sequence.
    const auto columns =
        std::count_if(lines[i].begin(), lines[i].end(), [](char c) { return (c & 0xC0) != 0x80; });
    if (columns > kNumColumnsMax && lines[i].find("http") == std::string_view::npos) {
      problems.push_back(
          StrCat(file.path, ":", i + 1, ": ", columns, " columns, more than ", kNumColumnsMax));
    }
  }
  return problems;
}

std::vector<std::string> HeadersNotProvedByTheBuild(const std::vector<SourceFile>& files) {
  std::set<std::string> proved;
  for (const SourceFile& file : files) {
    if (!file.path.ends_with(".cc")) continue;
    const std::vector<Include> includes = IncludesOf(file);
    if (!includes.empty()) proved.insert(includes.front().path);
  }
  std::vector<std::string> headers;
  for (const SourceFile& file : files) {
    if (file.path.ends_with(".h") && !proved.contains(file.path)) headers.push_back(file.path);
  }
  return headers;
}

Problems CompileAlone(const std::string& root, const std::vector<std::string>& headers) {
  constexpr size_t kNumCompilers = 2;
  std::vector<std::string> outputs(headers.size());
  const auto compile_every_second = [&](size_t first) {
    for (size_t i = first; i < headers.size(); i += kNumCompilers) {
      // Twice: the second inclusion shows whether the guard works.
      const std::string command =
          StrCat("cd '", root, "' && printf '#include \"%s\"\\n' '", headers[i], "' '", headers[i],
                 "' | g++ -std=c++20 -Wall -Wextra -Werror -DCRIA_ISA=generic -I. -fsyntax-only "
                 "-x c++ - 2>&1");
      std::FILE* pipe = ::popen(command.c_str(), "r");
      if (pipe == nullptr) {
        outputs[i] = "popen failed";
        continue;
      }
      std::array<char, 4096> buffer;
      while (const size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
        outputs[i].append(buffer.data(), got);
      }
      if (::pclose(pipe) == 0) outputs[i].clear();
    }
  };
  std::vector<std::thread> compilers;
  for (size_t i = 0; i < kNumCompilers; ++i) compilers.emplace_back(compile_every_second, i);
  for (std::thread& compiler : compilers) compiler.join();
  Problems problems;
  for (size_t i = 0; i < headers.size(); ++i) {
    if (!outputs[i].empty()) {
      problems.push_back(StrCat(headers[i], ":1: does not compile alone:\n", outputs[i]));
    }
  }
  return Sorted(problems);
}

}  // namespace cria::tidy
