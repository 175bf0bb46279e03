// `cria check layouts`: trains the same few steps on one rank and on every layout, and compares.
//
//   return RunLayoutsCheck({.ranks = {1, 2, 4}}, stdout, stderr);
//
// The command starts as many processes as the largest layout has ranks, once; each layout's world
// is a group of the first of them. Every layout runs the train loop itself, from initial weights
// over batches to the checkpoint; rank 0 then reads what the run left (layouts_record.h), and what
// the ranks saw (layouts_evidence.h), and prints a line. A layout that fails with an error is a
// line too; a process that dies ends the command, naming it. Single-threaded.

#ifndef CRIA_TRAINER_CHECK_LAYOUTS_CHECK_H_
#define CRIA_TRAINER_CHECK_LAYOUTS_CHECK_H_

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "base/status.h"

namespace cria::trainer {

struct LayoutsCheckOptions {
  // A job's file, or the name of one in configs/jobs. Empty: layouts; layouts_fp8 where `precision`
  // is FP8.
  std::string config = {};
  std::vector<std::string> set = {};  // "key=value" over it
  std::vector<int> ranks = {1, 2, 3, 4, 6, 8};
  std::string layouts = {};  // as ParseLayouts reads them, in place of all of `ranks`
  int64_t steps = 0;         // 0: the job's
  std::string precision = {}, numerics = {};  // empty: the job's
  bool json = false;                          // the report as JSON on `out`, lines on `notes`
  // Of a rank that the command has started: the folder that they share.
  std::string folder = {};
};

// Exit status: 0 all layouts hold, 1 one does not or something failed, 2 a mistake in the options
// or the job. `arguments` are those that make this program run the check again, without a folder.
int RunLayoutsCheck(const LayoutsCheckOptions& options, const std::vector<std::string>& arguments,
                    std::FILE* out, std::FILE* notes);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_CHECK_LAYOUTS_CHECK_H_
