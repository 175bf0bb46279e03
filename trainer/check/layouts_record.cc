#include "trainer/check/layouts_record.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/file.h"
#include "base/json.h"
#include "trainer/checkpoint/checkpoint.h"

namespace cria::trainer {
namespace {

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

Status ReadWeights(const std::string& dir, RunRecord* record) {
  CRIA_ASSIGN_OR_RETURN(const LoadedCheckpoint checkpoint, LoadCheckpoint(dir));
  const model::SafetensorsFile& file = checkpoint.file(CheckpointPart::kModel);
  for (const model::TensorInfo& tensor : file.tensors()) {
    const std::string_view bytes = file.Data(tensor);
    std::vector<float>& values = record->weights[tensor.name];
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

}  // namespace

StatusOr<RunRecord> ReadRunRecord(const std::string& out_dir, int64_t steps) {
  RunRecord record;
  const std::string metrics = JoinPath(out_dir, "metrics.jsonl");
  CRIA_RETURN_IF_ERROR(ReadMetrics(metrics, &record));
  if (static_cast<int64_t>(record.losses.size()) != steps) {
    return DataLossError(metrics, ": ", record.losses.size(), " steps of ", steps);
  }
  CRIA_RETURN_IF_ERROR(
      ReadWeights(CheckpointDir(JoinPath(out_dir, "checkpoints"), steps), &record));
  return record;
}

RunDifference Compare(const RunRecord& run, const RunRecord& reference) {
  RunDifference difference;
  difference.loss = Difference(run.losses, reference.losses, &difference.bit_equal);
  difference.grad_norm = Difference(run.grad_norms, reference.grad_norms, &difference.bit_equal);
  for (const auto& [name, values] : reference.weights) {
    const auto found = run.weights.find(name);
    const double relative =
        found == run.weights.end() ? kInfinite : Difference(found->second, values);
    if (found == run.weights.end() || !SameBits(found->second, values)) {
      difference.bit_equal = false;
    }
    if (relative > difference.weights) {
      difference.weights = relative;
      difference.worst_tensor = name;
    }
  }
  if (run.weights.size() != reference.weights.size()) difference.bit_equal = false;
  return difference;
}

}  // namespace cria::trainer
