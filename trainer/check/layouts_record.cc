#include "trainer/check/layouts_record.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/file.h"
#include "base/json.h"
#include "trainer/checkpoint/checkpoint.h"

namespace cria::trainer {
namespace {

using Tensors = std::map<std::string, std::vector<float>>;

constexpr double kInfinite = std::numeric_limits<double>::infinity();

Status ReadMetrics(const std::string& path, RunRecord* record) {
  CRIA_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    CRIA_ASSIGN_OR_RETURN(const Json line, ParseJson(text.substr(begin, end - begin), path));
    CRIA_ASSIGN_OR_RETURN(const double loss, JsonGetOr(line, "loss", kInfinite, path));
    CRIA_ASSIGN_OR_RETURN(const double norm, JsonGetOr(line, "grad_norm", kInfinite, path));
    if (!std::isfinite(loss) || !std::isfinite(norm)) {
      return InternalError(path, ": step ", record->losses.size() + 1, " was not finite");
    }
    record->losses.push_back(loss);
    record->grad_norms.push_back(norm);
    begin = end + 1;
  }
  return OkStatus();
}

// The checkpoint's tensors whose names begin with `prefix`, without it.
Status ReadTensors(const std::string& dir, CheckpointPart part, std::string_view prefix,
                   Tensors* tensors) {
  CRIA_ASSIGN_OR_RETURN(const LoadedCheckpoint checkpoint, LoadCheckpoint(dir));
  const model::SafetensorsFile& file = checkpoint.file(part);
  for (const model::TensorInfo& tensor : file.tensors()) {
    if (tensor.name.compare(0, prefix.size(), prefix) != 0) continue;
    const std::string_view bytes = file.Data(tensor);
    std::vector<float>& values = (*tensors)[tensor.name.substr(prefix.size())];
    values.resize(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  }
  return OkStatus();
}

bool SameBits(double a, double b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

// The largest |a - b| / |b|.
double Difference(const std::vector<double>& run, const std::vector<double>& reference,
                  bool* bit_equal) {
  if (run.size() != reference.size()) {
    *bit_equal = false;
    return kInfinite;
  }
  double largest = 0;
  for (size_t i = 0; i < run.size(); ++i) {
    if (SameBits(run[i], reference[i])) continue;
    *bit_equal = false;
    const double relative = std::abs(run[i] - reference[i]) / std::abs(reference[i]);
    largest = std::max(largest, std::isnan(relative) ? kInfinite : relative);
  }
  return largest;
}

// ||a - b|| / ||b||.
double Difference(const std::vector<float>& run, const std::vector<float>& reference) {
  if (run.size() != reference.size()) return kInfinite;
  double difference = 0, norm = 0;
  for (size_t i = 0; i < run.size(); ++i) {
    const double a = run[i], b = reference[i];
    difference += (a - b) * (a - b);
    norm += b * b;
  }
  if (difference == 0) return 0;
  const double relative = std::sqrt(difference / norm);
  return std::isnan(relative) ? kInfinite : relative;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The largest of all tensors, and whose it is.
double Difference(const Tensors& run, const Tensors& reference, std::string* worst,
                  bool* bit_equal) {
  double largest = 0;
  for (const auto& [name, values] : reference) {
    const auto found = run.find(name);
    const double relative = found == run.end() ? kInfinite : Difference(found->second, values);
    if (found == run.end() || !SameBits(found->second, values)) *bit_equal = false;
    if (relative > largest) {
      largest = relative;
      *worst = name;
    }
  }
  if (run.size() != reference.size()) *bit_equal = false;
  return largest;
}

}  // namespace

StatusOr<RunRecord> ReadRunRecord(const std::string& out_dir, int64_t steps) {
  RunRecord record;
  const std::string metrics = JoinPath(out_dir, "metrics.jsonl");
  CRIA_RETURN_IF_ERROR(ReadMetrics(metrics, &record));
  if (static_cast<int64_t>(record.losses.size()) != steps) {
    return DataLossError(metrics, ": ", record.losses.size(), " steps of ", steps);
  }
  const std::string checkpoints = JoinPath(out_dir, "checkpoints");
  // After one step a first moment is a fixed part of the gradient, which is clipped by one factor.
  CRIA_RETURN_IF_ERROR(ReadTensors(CheckpointDir(checkpoints, 1), CheckpointPart::kOptimizer,
                                   ExpAvgName(""), &record.gradients));
  CRIA_RETURN_IF_ERROR(
      ReadTensors(CheckpointDir(checkpoints, steps), CheckpointPart::kModel, "", &record.weights));
  return record;
}

RunDifference Compare(const RunRecord& run, const RunRecord& reference) {
  RunDifference difference;
  difference.loss = Difference(run.losses, reference.losses, &difference.bit_equal);
  difference.grad_norm = Difference(run.grad_norms, reference.grad_norms, &difference.bit_equal);
  difference.gradients = Difference(run.gradients, reference.gradients, &difference.worst_gradient,
                                    &difference.bit_equal);
  difference.weights =
      Difference(run.weights, reference.weights, &difference.worst_tensor, &difference.bit_equal);
  return difference;
}

}  // namespace cria::trainer
